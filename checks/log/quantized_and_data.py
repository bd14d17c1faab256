"""Do quantized weights and adapters fit the packages and the GPUs, and datasets and caches the ranks?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_BNB_QUANTIZER = (
    "https://github.com/huggingface/transformers/blob/main/src/transformers/quantizers/quantizer_bnb_4bit.py"
)
_BNB = "https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/bitsandbytes.py"
_QLORA = "https://huggingface.co/docs/bitsandbytes/main/en/fsdp_qlora"
_MODEL = "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py"
_AUTO = "https://github.com/huggingface/transformers/blob/main/src/transformers/quantizers/auto.py"
_FP8 = "https://github.com/huggingface/transformers/blob/main/src/transformers/quantizers/quantizer_finegrained_fp8.py"
_KERNELS = "https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/hub_kernels.py"
_PEFT_LAYER = "https://github.com/huggingface/peft/blob/main/src/peft/tuners/lora/layer.py"
_LORA_MODEL = "https://github.com/huggingface/peft/blob/main/src/peft/tuners/lora/model.py"
_ITERABLE = "https://github.com/huggingface/datasets/blob/main/src/datasets/iterable_dataset.py"
_ARROW = "https://github.com/huggingface/datasets/blob/main/src/datasets/arrow_dataset.py"
_DOWNLOAD = "https://github.com/huggingface/huggingface_hub/blob/main/src/huggingface_hub/file_download.py"
# fmt: off
ROWS = (
    Row("log_qat_not_in_training_mode", "root", "script",
        r"prepare_qat\w* only works on models in training mode",
        ("AssertionError: prepare_qat only works on models in training mode",),
        "prepare_qat() got a model in evaluation mode",
        "Fusing layers needs evaluation mode, and preparing the model for quantization-aware training needs training "
        "mode.",
        Fix("Change the mode in between.", ("model.train()", "model = prepare_qat(model)")),
        "https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.prepare_qat.html",
        summary="A model in evaluation mode was prepared for quantization-aware training."),
    Row("log_bitsandbytes_missing", "root", "library",
        r"quantization requires bitsandbytes: `pip install|"
        r"Please make sure (?:the latest version of )?`?bitsandbytes`? .{0,30}is installed|"
        r"version of `bitsandbytes` that is not compatible with \dbit",
        ("ImportError: Using `bitsandbytes` 4-bit quantization requires bitsandbytes: `pip install -U "
         "bitsandbytes>=0.46.1`",
         "ValueError: You have a version of `bitsandbytes` that is not compatible with 4bit quantization,make "
         "sure you have the latest version of `bitsandbytes` installed."),
        "the model is loaded in 4 or 8 bit, but bitsandbytes is missing or too old",
        "transformers requires a newer release of it with each of its own. Its record (pip) can also be damaged.",
        Fix("Upgrade it where the ranks run.",
            ("pip install --upgrade bitsandbytes",
             "python -m bitsandbytes")),
        _BNB_QUANTIZER),
    Row("log_bitsandbytes_finds_no_device", "root", "cuda",
        r"None of the available devices `available_devices = (?P<devices>[^`]+)` are supported by the bitsandbytes",
        ("RuntimeError: None of the available devices `available_devices = None` are supported by the "
         "bitsandbytes version you have installed: `bnb_supported_devices = {'cuda', 'xpu'}`.",),
        "bitsandbytes cannot quantize here: torch sees no GPU that it supports (available devices: {devices})",
        "The node, the container or the job has no GPU, CUDA_VISIBLE_DEVICES hides it, or torch is a CPU build.",
        Fix("Check what torch sees.",
            ("python -c 'import torch; print(torch.__version__, torch.cuda.is_available())'",
             "mgpu doctor --only visibility,driver,torch_is_cpu_build")),
        _BNB,
        summary="bitsandbytes cannot quantize: torch sees no GPU that it supports."),
    Row("log_quantized_twice", "root", "script",
        r"Blockwise (?:4bit )?(?:de)?quantization only supports 16/32-bit floats, but got torch\.u?int8",
        ("ValueError: Blockwise quantization only supports 16/32-bit floats, but got torch.uint8",),
        "weights that are quantized already are quantized again",
        "A 4-bit model (packed as uint8) was saved, sharded or restored as if its weights were plain: by FSDP or "
        "ZeRO-3 without bnb_4bit_quant_storage, by load_state_dict() into a quantized model, or by moving it to the "
        "GPU a second time.",
        (Fix("Load the quantized model with from_pretrained() only, and restore only the adapters.",
             ("model.load_adapter('out/checkpoint-500', adapter_name='default')",)),
         Fix("With FSDP, store 4-bit weights in the dtype of the others.",
             ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",))),
        _QLORA),
    Row("log_int8_multiplication_failed", "root", "cuda",
        r"cublasLt ran into an error!",
        ("RuntimeError: cublasLt ran into an error!",
         "Exception: cublasLt ran into an error!"),
        "bitsandbytes' 8-bit matrix multiplication failed on this GPU",
        "The GPU's memory was full, the GPU has no int8 tensor cores in the required form, or bitsandbytes loaded "
        "another cuBLAS than torch.",
        (Fix("Use 4 bit, which needs no int8 multiplication.",
             ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)",)),
         Fix("Or upgrade it, and check which libraries it loads.",
             ("pip install --upgrade bitsandbytes",
              "python -m bitsandbytes"))),
        "https://github.com/bitsandbytes-foundation/bitsandbytes/issues/538"),
    Row("log_quantization_given_twice", "root", "script",
        r"can't pass `load_in_4bit` ?or `load_in_8bit` as a kwarg when|load_in_4bit and load_in_8bit (?:can't be both|"
        r"are both) True|use 8 bit and 4 bit precision at the same time",
        ("ValueError: You can't pass `load_in_4bit`or `load_in_8bit` as a kwarg when passing "
         "`quantization_config` argument at the same time.",
         "ValueError: load_in_4bit and load_in_8bit are both True, but only one can be used at the same time"),
        "the quantization is set twice",
        "Both the arguments load_in_4bit or load_in_8bit and a quantization_config are passed, or both sizes.",
        Fix("Pass the config only.",
            ("from_pretrained(..., quantization_config=BitsAndBytesConfig(load_in_4bit=True))",)),
        _MODEL),
    Row("log_quantized_otherwise", "root", "script",
        r"The model is quantized with (?P<saved>\w+) but you are passing an? (?P<wanted>\w+) config",
        ("ValueError: The model is quantized with Mxfp4Config but you are passing a BitsAndBytesConfig config. "
         "Please make sure to pass the same quantization config class to `from_pretrained` with different loading "
         "attributes.",),
        "the checkpoint is quantized already ({saved}), and the script asks for another quantization ({wanted})",
        "Quantized weights cannot be quantized again with another method.",
        (Fix("Load it as it is, or choose the checkpoint with 16-bit weights.",
             ("from_pretrained(MODEL)  # without quantization_config",)),
         Fix("gpt-oss: convert it to bf16 while loading, then train LoRA.",
             ("from_pretrained(MODEL, quantization_config=Mxfp4Config(dequantize=True), "
              "torch_dtype=torch.bfloat16)",))),
        _AUTO,
        summary="The checkpoint is quantized already, with another method than the script asks for."),
    Row("log_quantization_not_known", "root", "library",
        r"ValueError: Unknown quantization type, got (?P<method>\S+) - supported types are",
        ("ValueError: Unknown quantization type, got fp8 - supported types are: ['awq', 'bitsandbytes_4bit', "
         "'bitsandbytes_8bit', 'gptq']",),
        "the installed transformers does not know the quantization of this checkpoint: {method}",
        "Each method came with a release: fp8 with 4.49, mxfp4 (gpt-oss) with 4.55. Others belong to an inference "
        "engine only.",
        Fix("Upgrade transformers, or use a checkpoint with 16-bit weights.",
            ("pip install --upgrade transformers",
             "grep -A8 quantization_config MODEL/config.json")),
        _AUTO,
        summary="The installed transformers does not know the quantization of a checkpoint."),
    Row("log_quantization_needs_newer_gpu", "root", "cuda",
        r"ValueError: (?:FP8|MXFP4|"
        r"NVFP4)\w* quant\w+ (?:models )?is only supported on GPUs with compute capability (?P<needs>>= ?\d\S*)",
        ("ValueError: FP8 quantized models is only supported on GPUs with compute capability >= 8.9 (e.g "
         "4090/H100), actual = `8.0`",
         "ValueError: MXFP4 quantization is only supported on GPUs with compute capability >= 7.5 (e.g T4, A100, "
         "L4, H100, or B200)"),
        "this GPU has no kernels for the quantization of the checkpoint: compute capability {needs} is needed",
        "fp8 needs Ada or Hopper (8.9, 9.0), the 4-bit formats of NVIDIA Blackwell or a fallback.",
        Fix("Convert it to bf16 while loading, or load a checkpoint with 16-bit weights.",
            ("from_pretrained(MODEL, quantization_config=FineGrainedFP8Config(dequantize=True))  # transformers 5",
             "nvidia-smi --query-gpu=name,compute_cap --format=csv")),
        _FP8,
        summary="The GPU is too old for the quantization of a checkpoint."),
    Row("log_quantization_kernels_missing", "root", "library",
        r"ValueError: MXFP4 quantization requires the `kernels` package|"
        r"Error: `?[Kk]ernels`? (?:is either not installed or uses an incompatible version|"
        r"are not available\. Please install a compatible)",
        ("ValueError: MXFP4 quantization requires the `kernels` package: `pip install kernels>=0.12.0`",
         "ImportError: `kernels` is either not installed or uses an incompatible version. Please install a "
         "compatible version (0.12.0 <= version < 0.15.0)"),
        "the package kernels is missing or of another version than transformers expects",
        "transformers downloads GPU kernels from the Hub through it, and accepts a narrow range of its releases. "
        "The ranks also need access to the Hub, or a filled cache.",
        Fix("Install it together with transformers.",
            ("pip install --upgrade transformers kernels",
             "pip show transformers kernels")),
        _KERNELS),
    Row("log_quantization_cannot_train", "root", "script",
        r"that quantization method do(?:es)? not support training|"
        r"cannot fine-tune quantized model with `torch\.compile\(\)`",
        ("ValueError: The model you are trying to fine-tune is quantized with awq but that quantization method do "
         "not support training.",
         "ValueError: You cannot fine-tune quantized model with `torch.compile()` make sure to pass a "
         "non-compiled model"),
        "models of this quantization, or compiled ones, cannot be trained, with or without adapters",
        "Training through quantized layers needs a backward pass of their kernels.",
        (Fix("Train a checkpoint with 16-bit weights, in 4 bit with bitsandbytes.",
             ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)",)),
         Fix("Compile after the model is wrapped, or not at all.",
             ("TrainingArguments(torch_compile=False)",))),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer_utils.py"),
    Row("log_quantized_model_not_saved", "root", "script",
        r"The model is quantized with \S+ and is not serializable",
        ("ValueError: The model is quantized with QuantizationMethod.HQQ and is not serializable - check out the "
         "warnings from the logger on the traceback to understand the reason why the quantized model is not "
         "serializable.",),
        "a quantized model of this method cannot be saved",
        "Trainer saves the whole model if it is not a PeftModel, at the first checkpoint.",
        Fix("Train and save adapters only.",
            ("model = get_peft_model(model, LoraConfig(...))",
             "pip install --upgrade transformers bitsandbytes")),
        _MODEL),
    Row("log_lora_of_parameters_with_dropout", "root", "script",
        r"lora\.ParamWrapper does not work with (?P<what>\S+)",
        ("ValueError: lora.ParamWrapper does not work with lora_dropout != 0.",),
        "LoRA on nn.Parameters (target_parameters, experts of MoE models) does not work with {what}",
        "It adds to the weight itself: there is no input to which dropout or a bias could apply.",
        Fix("Set them to their defaults.",
            ("LoraConfig(..., target_parameters=[...], lora_dropout=0.0, bias='none')",)),
        _PEFT_LAYER,
        summary="LoRA on nn.Parameters does not work with an option."),
    Row("log_peft_finds_old_package", "root", "library",
        r"Found an incompatible version of (?P<package>[\w-]+)\. Found version `?(?P<installed>[\w.+]+)`?, but only "
        r"versions (?:above )?`?(?P<needs>[\w.]+)",
        ("ImportError: Found an incompatible version of torchao. Found version 0.10.0, but only versions above "
         "0.16.0 are supported",
         "ImportError: Found an incompatible version of auto-gptq. Found version 0.4.2, but only versions above "
         "0.5.0 are supported"),
        "PEFT refuses the installed {package} {installed}: it needs {needs} or newer",
        "PEFT checks it whenever adapters are added, even if the run does not use it. Images (Colab, NGC) come with "
        "old ones.",
        Fix("Remove it if nothing needs it, or upgrade it together with torch.",
            ("pip uninstall -y {package:package}",
             "pip install --upgrade {package:package}")),
        "https://github.com/huggingface/peft/blob/main/src/peft/import_utils.py",
        summary="PEFT refuses an installed package that is too old, even if the run does not use it."),
    Row("log_peft_forward_twice", "root", "script",
        r"Multiple invocations of PEFT forward hooks before \.backward\(\)",
        ("ValueError: Multiple invocations of PEFT forward hooks before .backward() with enabled gradient "
         "checkpointing. Disable gradient checkpointing or only call forward once per backward.",),
        "the adapted model runs forward twice before backward, with gradient checkpointing",
        "Losses that compare two passes (DPO, contrastive, R-Drop) do so. This kind of adapter (aLoRA) keeps state "
        "between a pass and its recomputation.",
        Fix("Concatenate both inputs into one pass, or turn checkpointing off.",
            ("TrainingArguments(gradient_checkpointing=False)",)),
        _LORA_MODEL),
    Row("log_decoder_package_missing", "root", "library",
        r"To support (?:de|"
        r"en)coding (?P<what>[a-zA-Z]+(?: [a-z]+)?), please install '(?P<package>(?!torchcodec)[\w.-]+)'",
        ("ImportError: To support decoding images, please install 'Pillow'.",
         "ImportError: To support decoding macromolecular structures, please install 'biopython'."),
        "datasets needs {package} to decode {what}",
        "It imports decoders only when a column of that kind is read: often in a loader worker, after training has "
        "begun.",
        Fix("Install it on every node, or read the column without decoding.",
            ("pip install {package:package}",
             "dataset.cast_column('image', Image(decode=False))")),
        "https://huggingface.co/docs/datasets/image_load",
        summary="datasets needs a package to decode a column."),
    Row("log_streamed_shards_below_ranks", "root", "script",
        r"Cannot split an iterable dataset with num_shards=\d+ across world_size=\d+ nodes with "
        r"strategy='shards'|Cannot iterate with strategy='shards': .{1,60} which is lower than world_size=",
        ("ValueError: Cannot split an iterable dataset with num_shards=2 across world_size=8 nodes with "
         "strategy='shards' because some nodes would not be assigned any shard.",
         "ValueError: Cannot iterate with strategy='shards': the dataset now has num_shards=3, which is lower than "
         "world_size=8, so some nodes would not be assigned any shard."),
        "the streamed dataset has fewer shards than there are ranks",
        "With strategy='shards' each rank reads whole files: some would get none.",
        (Fix("Write the data in at least as many files, a multiple of ranks x loader workers.",
             ("dataset.save_to_disk('data', num_shards=64)",
              "dataset.to_iterable_dataset(num_shards=64)")),
         Fix("Or let every rank read all files and keep each n-th sample.",
             ("split_dataset_by_node(dataset, rank=rank, world_size=world_size)",))),
        _ITERABLE,
        summary="A streamed dataset has fewer shards than there are ranks."),
    Row("log_streams_split_differently", "root", "script",
        r"Datasets should be identically split_by_node before (?:concatenating|interleaving)",
        ("ValueError: Datasets should be identically split_by_node before interleaving, but got "
         "None!=DistributedConfig(rank=1, world_size=8) at index 0 and 1",),
        "some of the mixed streams are split among the ranks, and others are not",
        "split_dataset_by_node() was called on a part of them before they were combined.",
        Fix("Combine them first, and split the result once.",
            ("dataset = interleave_datasets(parts)",
             "dataset = split_dataset_by_node(dataset, rank=rank, world_size=world_size)")),
        _ITERABLE),
    Row("log_dataset_overwrites_itself", "root", "script",
        r"Tried to overwrite (?P<path>\S+) but a dataset can't overwrite itself",
        ("PermissionError: Tried to overwrite /data/x but a dataset can't overwrite itself.",),
        "the script saves a dataset into the folder {path} that it was loaded from",
        "Its files are memory-mapped while they would be replaced. In a run of several ranks, each of them would "
        "write there too.",
        Fix("Save to another folder, on the main process only.",
            ("if accelerator.is_main_process: dataset.save_to_disk('data_new')",
             "accelerator.wait_for_everyone()")),
        _ARROW,
        summary="The script saves a dataset into the folder that it was loaded from."),
    Row("log_dataset_lacks_column", "root", "script",
        r"(?:Column(?: name)?s?(?: to remove)?|Input column|"
        r"Original column names?) (?P<column>\[?['\x22][^\]]{1,120}?['\x22]\]?) not in the dataset\. (?:Current c|"
        r"C)olumns in the dataset: (?P<columns>\[[^\]]*\])",
        ("ValueError: Column to remove ['text'] not in the dataset. Current columns in the dataset: ['prompt', "
         "'answer']",
         "ValueError: Original column name 'label' not in the dataset. Current columns in the dataset: ['text', "
         "'labels']",
         "KeyError: \"Column 'text' not in the dataset. Current columns in the dataset: ['prompt', 'answer']\""),
        "the script names a column {column} that the dataset does not have: it has {columns}",
        "Another split or version of the dataset has other columns, an earlier map() removed or renamed it, or a "
        "cached result of an older script was loaded.",
        (Fix("Use one of its columns.",
             ("print(dataset.column_names)",
              "dataset = dataset.rename_column('prompt', 'text')")),
         Fix("After a change of the preprocessing, do not use its old cache.",
             ("dataset.map(..., load_from_cache_file=False)",))),
        _ARROW,
        summary="The script names a column that the dataset does not have."),
    Row("log_dataset_formats_mixed", "root", "script",
        r"Couldn't infer the same data file format for all splits",
        ("ValueError: Couldn't infer the same data file format for all splits. Got {NamedSplit('train'): ('json', "
         "{}), NamedSplit('test'): ('csv', {})}",),
        "the splits of the dataset have different file formats",
        "load_dataset(FOLDER) guesses one format from the file names: notes, images or metadata beside the data are "
        "files too.",
        Fix("Name the format and the files.",
            ("load_dataset('json', data_files={{'train': 'DATA/train*.jsonl', 'test': 'DATA/test*.jsonl'}})",)),
        "https://huggingface.co/docs/datasets/loading"),
    Row("log_hub_mirror_answers_otherwise", "root", "library",
        r"Distant resource does not (?:seem to be on huggingface\.co|have an ETag|have a Content-Length)|"
        r"does not seem to be served by a Hugging Face Hub endpoint",
        ("huggingface_hub.errors.FileMetadataError: Distant resource does not seem to be on huggingface.co. It is "
         "possible that a configuration issue prevents you from downloading resources from https://huggingface.co.",
         "huggingface_hub.errors.FileMetadataError: Response from https://mirror/x is missing the 'X-Repo-Commit' "
         "header, so it does not seem to be served by a Hugging Face Hub endpoint."),
        "something other than the Hub answers the download: a mirror, a proxy or a login page",
        "HF_ENDPOINT names a mirror that does not pass the Hub's headers on, or a proxy of the network answers "
        "instead of it.",
        Fix("Check who answers, and use the Hub itself.",
            ("curl -sI https://huggingface.co/gpt2/resolve/main/config.json | head",
             "env | grep -iE 'HF_ENDPOINT|proxy'",
             "unset HF_ENDPOINT")),
        _DOWNLOAD),
    Row("log_hub_cache_incomplete", "root", "library",
        r"cached snapshot for '(?P<name>[^']+)' .{0,120}is incomplete",
        ("huggingface_hub.errors.IncompleteSnapshotError: The cached snapshot for 'org/model' (revision 'main', "
         "commit abc) is incomplete: 3 file(s) are missing",),
        "the cache has only a part of {name}, and the run is offline",
        "A download was interrupted, or fetched only some files (allow_patterns). Offline, the rest cannot be added.",
        Fix("Complete it on a node with internet access, in the same cache.",
            ("hf download {name:path}",
             "echo $HF_HOME $HF_HUB_CACHE")),
        _DOWNLOAD,
        summary="The cache has only a part of a model or dataset, and the run is offline."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
