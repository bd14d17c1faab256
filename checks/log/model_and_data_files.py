"""Can the files of a model, a tokenizer or a dataset be read, and what they contain be used?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from ._library_cases import GENERATED_FROM_BATCH, beyond_last_row
from ._one_process_cases import NO_ROWS

_HUB = "https://github.com/huggingface/transformers/blob/main/src/transformers/utils/hub.py"
_CONFIG = "https://github.com/huggingface/transformers/blob/main/src/transformers/configuration_utils.py"
_DEEPSPEED = "https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/deepspeed.py"
# fmt: off
ROWS = (
    Row("log_model_not_loaded", "root", "library",
        r"Can't load the (?P<what>configuration of|model for) '(?P<path>[^']+)'\. If you were trying",
        ("OSError: Can't load the configuration of 'out/checkpoint-500'. If you were trying to load it from "
         "'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
         "OSError: Can't load the model for 'org/model'. If you were trying to load it from "
         "'https://huggingface.co/models', make sure"),
        "transformers cannot load the {what} {path}",
        "A path that does not exist on this node is taken for a name on the Hub. A folder of that name without "
        "config.json or weights (an adapter, a DeepSpeed or FSDP checkpoint, an interrupted save) hides the name on "
        "the Hub. Or the Hub did not answer.",
        (Fix("Check what is there, on every node.",
             ("ls -la {path:path}",)),
         Fix("A checkpoint of ZeRO or FSDP must be converted first.",
             ("python zero_to_fp32.py . OUTPUT",
              "accelerate merge-weights CHECKPOINT/pytorch_model_fsdp_0 OUTPUT"))),
        _HUB,
        summary="transformers cannot load a model or its configuration from a path or name."),
    Row("log_config_file_damaged", "root", "script",
        r"like the config file at '(?P<path>[^']+)' is not a valid JSON file",
        ("OSError: It looks like the config file at '/data/model/config.json' is not a valid JSON file.",),
        "{path} is not valid JSON",
        "It is empty or cut (a full disk, an interrupted download, several ranks that saved at once), a Git LFS "
        "pointer, or was edited by hand.",
        (Fix("Look at it, and fetch it again.",
             ("head -c 300 {path:path}",
              "hf download ORG/MODEL config.json")),
         Fix("Save on the main process only.",
             ("if accelerator.is_main_process: model.save_pretrained('out')",))),
        _CONFIG,
        summary="The config file of a model is not valid JSON."),
    Row("log_config_fields_invalid", "root", "library",
        r"StrictDataclass(?:FieldValidation|ClassValidation|Definition)?Error: |Validation error for field '\w+':$",
        ("huggingface_hub.errors.StrictDataclassFieldValidationError: Validation error for field 'layer_types':",
         "huggingface_hub.errors.StrictDataclassClassValidationError: Class validation error for validator "
         "'validate_layer_type':"),
        "a model's config.json has a value that the installed transformers does not accept",
        "transformers 5 checks the type and range of each field when it loads a config. Older files have integers "
        "for floats, null, or names of another release. The line after it names the field.",
        (Fix("Correct the field, or use the release that wrote the file.",
             ("grep transformers_version MODEL/config.json",
              "pip show transformers huggingface_hub")),
         Fix("Or upgrade: a newer release may accept it.",
             ("pip install --upgrade transformers",))),
        "https://huggingface.co/docs/huggingface_hub/package_reference/dataclasses"),
    Row("log_tokenizer_of_transformers_5", "root", "library",
        r"^\s*self\.SPECIAL_TOKENS_ATTRIBUTES = self\.SPECIAL_TOKENS_ATTRIBUTES \+ list\(special_tokens\.keys",
        ("        self.SPECIAL_TOKENS_ATTRIBUTES = self.SPECIAL_TOKENS_ATTRIBUTES + list(special_tokens.keys())",),
        "the tokenizer was saved by transformers 5, and the installed transformers 4 cannot read it",
        "In tokenizer_config.json, extra_special_tokens is a list since 5.0. Older releases expect a dictionary, "
        "and Python only reports that a list has no keys.",
        (Fix("Upgrade transformers where the tokenizer is loaded (training, vLLM, evaluation).",
             ("pip install --upgrade 'transformers>=5'",
              "pip show transformers vllm")),
         Fix("Or use the tokenizer files of the base model.",
             ("cp BASE_MODEL/tokenizer* BASE_MODEL/special_tokens_map.json OUTPUT/",))),
        "https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/tokenization_utils_base.py"),
    Row("log_hub_xet_failed", "root", "network",
        r"Data processing error: (?:CAS|File reconstruction|MerkleDB|Xet)|CAS service error ?: ",
        ("RuntimeError: Data processing error: CAS service error : Reqwest Error: HTTP status server error (503 "
         "Service Unavailable)",
         "RuntimeError: Data processing error: File reconstruction error: CAS Client Error: Request error"),
        "a download from the Hub through Xet failed",
        "hf_xet fetches large files in chunks from another host (cas-server.xethub.hf.co), over many connections. A "
        "proxy or firewall that allows only huggingface.co, or many ranks that download at once, can break it.",
        (Fix("Download without Xet, once, before the ranks start.",
             ("HF_HUB_DISABLE_XET=1 hf download ORG/MODEL",
              "HF_HUB_OFFLINE=1 mgpu launch train.py")),
         Fix("Or upgrade its client.",
             ("pip install --upgrade huggingface_hub hf_xet",))),
        "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"),
    Row("log_columns_all_removed", "root", "script",
        r"IndexError: Invalid key: (?P<key>-?\d+) is out of bounds for size (?P<size>\d+)",
        ("IndexError: Invalid key: 1432 is out of bounds for size 0",),
        "the dataset has no column left, so that it has no rows",
        "Trainer removes the columns whose names are not arguments of the model's forward(). If forward() has only "
        "*args and **kwargs (a wrapper, PEFT of a custom model, torch.compile), all are removed.",
        (Fix("Keep them.",
             ("TrainingArguments(remove_unused_columns=False)",)),
         Fix("Or name the arguments in forward().",
             ("def forward(self, input_ids, attention_mask, labels): ...",))),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py",
        explain=beyond_last_row,
        cases=(NO_ROWS,)),
    Row("log_text_is_not_text", "root", "script",
        r"text input must be of type `str`|TextEncodeInput must be Union\[|TextInputSequence must be str",
        ("ValueError: text input must be of type `str` (single example), `List[str]` (batch or single "
         "pretokenized example) or `List[List[str]]` (batch of pretokenized examples).",
         "TypeError: TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"),
        "the tokenizer got something other than text: None, a number or a dictionary",
        "A row of the dataset has no text (null, NaN), or the column has lists of messages. Only the rank or the "
        "worker with this row fails.",
        Fix("Drop such rows, and turn messages into text first.",
            ("dataset = dataset.filter(lambda x: isinstance(x['text'], str) and x['text'])",
             "tokenizer.apply_chat_template(messages, tokenize=False)")),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/tokenization_utils_base.py"),
    Row("log_zero_inference_stage", "root", "script",
        r"ZeRO inference only makes sense with ZeRO Stage 3",
        ("ValueError: ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config",),
        "evaluate() or predict() runs without a training under DeepSpeed, with a stage below 3",
        "Before training, Trainer starts an engine for inference, which is of use only if the weights are "
        "partitioned. After train() it uses the training's engine.",
        (Fix("Call train() first, or use stage 3 for this run.",
             ("\"zero_optimization\": {{\"stage\": 3}}",)),
         Fix("Or evaluate without DeepSpeed.",
             ("torchrun --nproc_per_node=8 evaluate.py  # without --deepspeed",))),
        _DEEPSPEED),
    Row("log_deepspeed_values_not_filled", "root", "script",
        r"trainer_config_process\(\) wasn't called yet",
        ("ValueError: trainer_config_process() wasn't called yet",),
        "a model is loaded under a DeepSpeed config whose auto values Trainer has not filled in yet",
        "HfTrainerDeepSpeedConfig belongs to TrainingArguments, which fills in its values. It was created by hand, "
        "or the model is loaded before.",
        Fix("Create TrainingArguments first, or use the class for scripts without Trainer.",
            ("args = TrainingArguments(..., deepspeed='ds.json')  # before from_pretrained()",
             "from transformers.integrations import HfDeepSpeedConfig; dschf = HfDeepSpeedConfig('ds.json')")),
        _DEEPSPEED),
    Row("log_dataset_too_small_to_split", "root", "script",
        r"the resulting train set will be empty\. Adjust|"
        r"test_size=\S+ should be either positive and smaller than the number of samples",
        ("ValueError: With n_samples=1, test_size=0.1 and train_size=None, the resulting train set will be empty. "
         "Adjust any of the aforementioned parameters.",
         "ValueError: test_size=200 should be either positive and smaller than the number of samples 100 or a "
         "float in the (0, 1) range"),
        "the dataset has too few samples for the split",
        "A filter removed most of them (too long, other columns), only a part was loaded on this node, or a test of "
        "the script limits the samples.",
        Fix("Print how many are left after each step, and use a number that fits.",
            ("print(dataset.num_rows)",
             "dataset.train_test_split(test_size=0.05)")),
        "https://github.com/huggingface/datasets/blob/main/src/datasets/arrow_dataset.py"),
    Row("log_stream_not_dividable", "root", "script",
        r"Sharding is ambiguous for this dataset: we found several data sources|"
        r"Loading a streaming dataset in parallel with `num_proc` is not implemented",
        ("RuntimeError: Sharding is ambiguous for this dataset: we found several data sources lists of different "
         "lengths, and we don't know over which list we should parallelize:",
         "NotImplementedError: Loading a streaming dataset in parallel with `num_proc` is not implemented. To "
         "parallelize streaming, you can wrap the dataset with a PyTorch DataLoader using `num_workers` > 1 "
         "instead."),
        "the dataset cannot be divided among processes this way",
        "datasets divides lists of files. A generator with several lists of different lengths, or a stream with "
        "num_proc, has no one list to divide.",
        Fix("Pass one list in gen_kwargs, and stream with loader workers.",
            ("IterableDataset.from_generator(read, gen_kwargs={{'files': files}})",
             "DataLoader(dataset, num_workers=4)  # without num_proc in load_dataset()")),
        "https://github.com/huggingface/datasets/blob/main/src/datasets/utils/sharding.py"),
    Row("log_parquet_file_damaged", "root", "script",
        r"Parquet magic bytes not found in footer|Parquet file size is \d+ bytes, smaller than",
        ("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this "
         "is not a parquet file.",
         "pyarrow.lib.ArrowInvalid: Parquet file size is 0 bytes, smaller than the minimum file footer (8 bytes)"),
        "a file that is read as Parquet is cut, empty or no Parquet",
        "A download or a save was interrupted, it is a Git LFS pointer (130 bytes of text), or another rank is "
        "still writing it.",
        Fix("Find it by its size and its end, and fetch it again.",
            ("find DATA -name '*.parquet' -size -1k",
             "for f in DATA/*.parquet; do [ \"$(tail -c 4 $f)\" = PAR1 ] || echo $f; done")),
        "https://arrow.apache.org/docs/python/parquet.html"),
    Row("log_weight_not_in_file", "root", "script",
        r"SafetensorError: File does not contain tensor (?P<name>\S+)",
        ("safetensors_rust.SafetensorError: File does not contain tensor model.embed_tokens.weight",),
        "the index of the checkpoint says that a file has the weight {name}, but it has not",
        "model.safetensors.index.json and the shards are of different saves: an older index was left when the model "
        "was saved again in other parts, or merged.",
        Fix("Remove the old index or shards, or save the model into an empty folder.",
            ("ls -la --time-style=full-iso MODEL/*.safetensors*",
             "model.save_pretrained('EMPTY_FOLDER')")),
        "https://huggingface.co/docs/safetensors/index",
        summary="The index of a checkpoint names a file that does not have the weight."),
    Row("log_generation_arguments_unknown", "root", "script",
        r"The following `model_kwargs` are not used by the model: (?P<names>\[[^\]]*\])",
        ("ValueError: The following `model_kwargs` are not used by the model: ['token_type_ids'] (note: typos in "
         "the generate arguments will also show up in this list)",),
        "generate() got arguments that the model's forward() does not accept: {names}",
        "Tokenizers return columns that not every model accepts (token_type_ids), trainers of a newer release pass "
        "arguments that this model's code does not have, or a name is misspelled.",
        (Fix("Leave them out.",
             ("tokenizer(texts, return_tensors='pt', return_token_type_ids=False)",)),
         Fix("If a trainer passes them, upgrade transformers and the trainer together.",
             ("pip install --upgrade transformers trl",))),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/generation/utils.py",
        summary="generate() got arguments that the model does not accept.", cases=(GENERATED_FROM_BATCH,)),
    Row("log_hf_transfer_missing", "root", "library",
        r"'hf_transfer' is enabled \(HF_HUB_ENABLE_HF_TRANSFER=1\) but 'hf_transfer' package is not|"
        r"error occurred while (?:down|up)loading using `hf_transfer`",
        ("ValueError: Fast download using 'hf_transfer' is enabled (HF_HUB_ENABLE_HF_TRANSFER=1) but "
         "'hf_transfer' package is not available in your environment. Try `pip install hf_transfer`.",
         "RuntimeError: An error occurred while downloading using `hf_transfer`. Consider disabling "
         "HF_HUB_ENABLE_HF_TRANSFER for better error handling."),
        "HF_HUB_ENABLE_HF_TRANSFER is set, and the package hf_transfer is missing or failed",
        "The variable comes from an image or a profile. The package hides the network's error.",
        (Fix("Turn it off.",
             ("export HF_HUB_ENABLE_HF_TRANSFER=0",
              "HF_HUB_ENABLE_HF_TRANSFER=0 hf download ORG/MODEL")),
         Fix("Or install it; huggingface_hub 1 uses hf_xet instead.",
             ("pip install hf_transfer",
              "pip install --upgrade huggingface_hub"))),
        "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"),
    Row("log_stream_shuffled_without_seed", "root", "script",
        r"doesn't have a fixed random seed across nodes to shuffle and split",
        ("RuntimeError: The dataset doesn't have a fixed random seed across nodes to shuffle and split the list "
         "of dataset shards by node. Please pass e.g. `seed=42` in `.shuffle()` to make all the nodes use the "
         "same seed. ",),
        "a streamed dataset is shuffled without a seed, so that each rank would order the files differently",
        "The ranks divide the list of files among themselves. Without a common seed, some files would be read twice "
        "and others never.",
        Fix("Give all ranks the same seed.",
            ("dataset = dataset.shuffle(seed=42, buffer_size=10_000)",
             "dataset = split_dataset_by_node(dataset, rank=rank, world_size=world_size)")),
        "https://github.com/huggingface/datasets/blob/main/src/datasets/iterable_dataset.py"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
