"""Did LlamaFactory, ms-swift or Unsloth refuse a template, a dataset, an option or the way it was started?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_LF_PARSER = "https://github.com/hiyouga/LlamaFactory/blob/main/src/llamafactory/hparams/parser.py"
_LF_MM = "https://github.com/hiyouga/LlamaFactory/blob/main/src/llamafactory/data/mm_plugin.py"
_UNSLOTH = "https://github.com/unslothai/unsloth/blob/main/unsloth/models/loader.py"
# fmt: off
ROWS = (
    Row("log_option_against_zero3", "root", "script",
        r"`?(?P<what>[\w ]{3,40}?)`? (?:is|are) incompatible with DeepSpeed ZeRO-3(?! or FSDP)",
        ("ValueError: `predict_with_generate` is incompatible with DeepSpeed ZeRO-3.",
         "ValueError: Unsloth is incompatible with DeepSpeed ZeRO-3."),
        "{what} does not work with ZeRO-3",
        "ZeRO-3 keeps only a part of each weight on a rank and gathers it layer by layer. What replaces layers, "
        "casts weights or generates needs whole weights.",
        Fix("Use ZeRO-2 if the model fits on one GPU, or leave the option out.",
            ("deepspeed: examples/deepspeed/ds_z2_config.json",
             "mgpu configure")),
        _LF_PARSER,
        summary="An option of the trainer does not work with ZeRO-3."),
    Row("log_quantized_weights_sharded", "root", "script",
        r"(?:ZeRO-3 or FSDP is incompatible with PTQ|\w+ quantization is incompatible with DeepSpeed ZeRO-3 or FSDP)|"
        r"Only 4-bit quantized model can use fsdp\+qlora|Cannot use device map for quantized models in training",
        ("ValueError: DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models.",
         "ValueError: HQQ quantization is incompatible with DeepSpeed ZeRO-3 or FSDP.",
         "ValueError: Only 4-bit quantized model can use fsdp+qlora or auto device map."),
        "weights of this quantization cannot be sharded",
        "GPTQ, AWQ, HQQ and EETQ pack weights in forms that ZeRO-3 and FSDP cannot split and gather. bitsandbytes' "
        "4 bit can be stored in a form that FSDP splits.",
        (Fix("Train the 16-bit checkpoint in 4 bit of bitsandbytes with FSDP.",
             ("quantization_bit: 4",
              "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)")),
         Fix("Or use ZeRO-2 or DDP: a whole quantized model per GPU.",
             ("deepspeed: examples/deepspeed/ds_z2_config.json",))),
        "https://github.com/hiyouga/LlamaFactory/blob/main/src/llamafactory/model/model_utils/quantization.py"),
    Row("log_output_folder_not_empty", "root", "script",
        r"Output directory (?:\(\S+\) )?already exists and is not empty",
        ("ValueError: Output directory already exists and is not empty. Please set `overwrite_output_dir`.",
         "ValueError: Output directory (out) already exists and is not empty. Use --overwrite_output_dir to "
         "overcome."),
        "the output folder has files of an earlier run, and the script does not overwrite them",
        "The check protects its checkpoints. After a restart of the job, the run should resume instead.",
        (Fix("Resume from the last checkpoint, or use another folder.",
             ("trainer.train(resume_from_checkpoint=True)",
              "resume_from_checkpoint: true  # LlamaFactory")),
         Fix("Or overwrite it.",
             ("overwrite_output_dir: true",))),
        _LF_PARSER),
    Row("log_no_usable_samples", "root", "script",
        r"Cannot find valid samples, check `data/README|Cannot find sufficient samples, consider increasing dataset",
        ("RuntimeError: Cannot find valid samples, check `data/README.md` for the data format.",),
        "none of the dataset's samples is usable",
        "Its columns are not mapped in dataset_info.json (formatting, columns, tags), the roles alternate wrongly, "
        "or the answers begin after cutoff_len tokens.",
        Fix("Check the mapping with one sample, and raise the length.",
            ("head -c 600 DATA.json; grep -A12 NAME data/dataset_info.json",
             "cutoff_len: 8192")),
        "https://github.com/hiyouga/LlamaFactory/blob/main/src/llamafactory/data/loader.py"),
    Row("log_dataset_not_registered", "root", "script",
        r"Undefined dataset (?P<name>\S+) in (?P<file>\S+?)\.?$",
        ("ValueError: Undefined dataset my_data in dataset_info.json.",),
        "the dataset {name} is not listed in {file}",
        "LlamaFactory finds datasets by their entry in the dataset_info.json of dataset_dir. The file is read where "
        "the command runs, on every node.",
        Fix("Add the entry, or point to the folder that has it.",
            ("dataset_dir: /shared/data",
             "grep -n '\": {{' data/dataset_info.json | head -40")),
        "https://github.com/hiyouga/LlamaFactory/blob/main/data/README.md",
        summary="The dataset is not listed in dataset_info.json."),
    Row("log_template_without_images", "root", "script",
        r"model does not support (?P<what>image|video|audio) input\. Please check whether the correct `template`",
        ("ValueError: This model does not support image input. Please check whether the correct `template` is "
         "used.",),
        "the samples have {what} data, and the template is one for text",
        "The template decides how they are turned into tokens, whatever the model can do.",
        Fix("Use the template of the multimodal model.",
            ("template: qwen2_vl  # the model's own, see the README's list",
             "pip install --upgrade llamafactory")),
        _LF_MM,
        summary="The samples have images, video or audio, and the template is one for text."),
    Row("log_template_not_known", "root", "library",
        r"ValueError: Template (?P<name>\S+) does not exist",
        ("ValueError: Template qwen3_vl does not exist.",),
        "the installed LlamaFactory has no template {name}",
        "Templates are added with the models: the release is older than the model, or the name is misspelled.",
        Fix("Upgrade it, or use a name of its list.",
            ("pip install --upgrade llamafactory",
             "python -c 'from llamafactory.data.template import TEMPLATES; print(sorted(TEMPLATES))'")),
        "https://github.com/hiyouga/LlamaFactory/blob/main/src/llamafactory/data/template.py",
        summary="The installed LlamaFactory does not have the template."),
    Row("log_processor_not_loaded", "root", "library",
        r"(?:Processor|Image processor|Video processor|"
        r"Audio feature extractor) was not found, please check and update your model file",
        ("ValueError: Processor was not found, please check and update your model file.",
         "ValueError: Image processor was not found, please check and update your model file."),
        "the model's image or audio processor could not be loaded, and LlamaFactory went on without it",
        "Loading it failed earlier, with a message that is only a warning: preprocessor_config.json is missing in "
        "the model folder (after merging or copying), transformers is too old for the model, or a package "
        "(torchvision, pillow, av, qwen-vl-utils) is missing.",
        (Fix("Load it by hand to see the real error.",
             ("python -c \"from transformers import AutoProcessor; AutoProcessor.from_pretrained('MODEL', "
              "trust_remote_code=True)\"",)),
         Fix("Then install what it names, or copy the missing file from the base model.",
             ("pip install --upgrade transformers torchvision pillow av",
              "ls MODEL | grep -i processor"))),
        _LF_MM),
    Row("log_launched_without_ranks_per_gpu", "root", "launcher",
        r"(?P<what>DeepSpeed|FSDP2|GRPO with vLLM|GKD with vLLM) is not compatible with `device_map`\. ",
        ("ValueError: DeepSpeed is not compatible with `device_map`. n_gpu: 8, local_world_size: 1.",
         "ValueError: GRPO with vLLM is not compatible with `device_map`. Please set NPROC_PER_NODE equal to "
         "num_processes."),
        "ms-swift runs as one process that sees several GPUs, and would spread the model over them, which {what} "
        "does not allow",
        "Without NPROC_PER_NODE, swift starts a single process and uses device_map='auto'. DeepSpeed, FSDP and vLLM "
        "need one process per GPU.",
        Fix("Start one process per GPU.",
            ("NPROC_PER_NODE=8 swift sft ...",
             "CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift rlhf ...")),
        "https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html",
        summary="ms-swift runs as one process that sees several GPUs."),
    Row("log_swift_arguments_unknown", "root", "script",
        r"ValueError: remaining_argv: (?P<arguments>\[.{1,300})",
        ("ValueError: remaining_argv: ['--sft_type', 'lora']",),
        "ms-swift does not know these arguments: {arguments}",
        "They are misspelled, or of another release: 3.0 renamed many (sft_type to train_type, model_id_or_path to "
        "model).",
        (Fix("Compare with the installed release.",
             ("swift sft --help | less",
              "pip show ms-swift")),
         Fix("Or install the release that the command was written for.",
             ("pip install \"ms-swift<3\"",))),
        "https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html",
        summary="ms-swift does not know some arguments."),
    Row("log_swift_samples_all_refused", "root", "script",
        r"Failed to retrieve the dataset\. You can avoid this issue by increasing `max_length`",
        ("ValueError: Failed to retrieve the dataset. You can avoid this issue by increasing `max_length` or "
         "modifying the `truncation_strategy`.",),
        "ms-swift could not encode sample after sample, and gave up",
        "Each one is longer than max_length, has a damaged or missing image, or does not fit the template. A run "
        "whose ranks give up at different times hangs first.",
        Fix("Look at the warnings before it, which name the reason, and test one sample.",
            ("swift sft ... --max_length 16384 --truncation_strategy right --strict true",)),
        "https://github.com/modelscope/ms-swift/blob/main/swift/dataset/utils.py"),
    Row("log_unsloth_wants_newer_transformers", "root", "library",
        r"Unsloth: (?:Your transformers version of (?P<installed>\S+) does not support (?P<what>[\w. -]+?)\.(?:\s|$))",
        ("ImportError: Unsloth: Your transformers version of 4.42.0 does not support Llama 3.1.",),
        "the installed transformers {installed} is too old for {what}",
        "Unsloth patches the model's code, and checks the release when it loads the model. The next line of the log "
        "has the least release.",
        Fix("Upgrade them together.",
            ("pip install --upgrade transformers unsloth unsloth_zoo",
             "pip show transformers unsloth")),
        _UNSLOTH,
        summary="The installed transformers is too old for the model, Unsloth reports."),
    Row("log_unsloth_cache_differs", "root", "script",
        r"Unsloth: Compiled cache file \S+ (?:differs between rank 0|exists on rank 0 but is not readable)",
        ("RuntimeError: Unsloth: Compiled cache file UnslothSFTTrainer.py differs between rank 0 (0123456789ab) "
         "and rank 3 (ba9876543210), so the ranks would import different implementations.",),
        "the ranks have different files in unsloth_compiled_cache",
        "Unsloth writes patched classes into that folder of the working directory. The nodes have different "
        "releases of trl or Unsloth, or one has files of an older run.",
        Fix("Delete the folder on every node, and install the same releases.",
            ("rm -rf unsloth_compiled_cache",
             "pip show unsloth unsloth_zoo trl transformers")),
        "https://github.com/unslothai/unsloth-zoo/blob/main/unsloth_zoo/compiler.py"),
    Row("log_all_labels_masked", "root", "script",
        r"Unsloth: All labels in your dataset are -100|train_on_responses_only masked all/most labels|"
        r"has no samples left after dropping samples with no trainable tokens",
        ("ZeroDivisionError: Unsloth: All labels in your dataset are -100. Training losses will be all 0.",
         "ValueError: Unsloth: train_on_responses_only masked all/most labels to -100."),
        "no token of the dataset is trained: all labels are masked",
        "The marks of instruction and response are not those of the model's chat template, or samples are cut "
        "before the answer begins.",
        Fix("Use the template's own marks, and a longer maximum.",
            ("train_on_responses_only(trainer, instruction_part='<|im_start|>user\\n', "
             "response_part='<|im_start|>assistant\\n')",
             "print(tokenizer.decode(trainer.train_dataset[0]['input_ids']))")),
        "https://github.com/unslothai/unsloth-zoo/blob/main/unsloth_zoo/training_utils.py"),
    Row("log_xformers_for_other_torch", "root", "library",
        r"Unsloth: You have torch = (?P<torch>\S+) but xformers = (?P<xformers>\S+?)\.?$",
        ("ImportError: Unsloth: You have torch = 2.2.0 but xformers = 0.0.26.",),
        "xformers {xformers} was built for another torch than {torch}",
        "Each release of xformers is built for one release of torch.",
        Fix("Install the pair.",
            ("pip install --upgrade --no-deps xformers",
             "python -m xformers.info")),
        _UNSLOTH,
        summary="xformers was built for another torch."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
