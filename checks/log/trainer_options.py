"""Did Trainer or from_pretrained refuse an option, or a model that does not have what an option needs?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_ARGUMENTS = "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py"
_TRAINER = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"
_OPTIMIZER = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer_optimizer.py"
_INTEGRATIONS = (
    "https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/integration_utils.py"
)
_MODEL = "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py"
_CONFIG = "https://github.com/huggingface/transformers/blob/main/src/transformers/configuration_utils.py"
_ROPE = "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_rope_utils.py"
_MODELING = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py"
_ACCELERATE = "https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/accelerate.py"
# fmt: off
ROWS = (
    Row("log_two_precisions", "root", "script",
        r"At most one of fp16 and bf16 can be True",
        ("ValueError: At most one of fp16 and bf16 can be True, but not both",
         "ValueError: At most one of fp16 and bf16 can be True for full eval, but not both"),
        "both fp16 and bf16 are turned on",
        "One of them is in the script's arguments, and the other in a config file, a copied command line or the "
        "DeepSpeed file.",
        Fix("Keep one: bf16 on GPUs that support it (Ampere and newer), fp16 on others.",
            ("TrainingArguments(bf16=True, fp16=False)",
             "mgpu doctor --only gpu")),
        _ARGUMENTS),
    Row("log_interval_of_zero", "root", "script",
        r"(?:eval(?:uation)?|logging|save) strategy \S+ requires (?:either )?non-zero|--(?:logging|eval|"
        r"save)_steps must be an integer if bigger than 1",
        ("ValueError: evaluation strategy IntervalStrategy.STEPS requires either non-zero --eval_steps or "
         "--logging_steps",
         "ValueError: logging strategy steps requires non-zero --logging_steps",
         "ValueError: --eval_steps must be an integer if bigger than 1: 50.5"),
        "the steps between logs, evaluations or checkpoints are 0 or not a whole number",
        "They are often computed from the number of samples: divided by the global batch of many GPUs, the result "
        "is below 1. Numbers below 1 are a share of all steps.",
        Fix("Use at least 1, as a whole number.",
            ("TrainingArguments(eval_strategy='steps', eval_steps=max(1, steps // 10), logging_steps=10)",)),
        _ARGUMENTS),
    Row("log_metric_for_best_missing", "root", "script",
        r"EarlyStoppingCallback requires (?:metric_for_best_model|IntervalStrategy|load_best)|"
        r"`args\.metric_for_best_model` must be provided",
        ("AssertionError: EarlyStoppingCallback requires metric_for_best_model to be defined",
         "ValueError: `args.metric_for_best_model` must be provided when using 'best' save_strategy or if "
         "`args.load_best_model_at_end` is set to `True`."),
        "the best checkpoint is asked for, but not which metric decides",
        "Early stopping, save_strategy='best' and load_best_model_at_end compare one metric of the evaluations.",
        Fix("Name it, and evaluate.",
            ("TrainingArguments(eval_strategy='steps', metric_for_best_model='eval_loss', "
             "greater_is_better=False, load_best_model_at_end=True)",)),
        _TRAINER),
    Row("log_train_dataset_missing", "root", "script",
        r"raining requires (?:specifying )?a train_dataset|`train_dataset` is required$|"
        r"Please specify dataset for training",
        ("ValueError: Trainer: training requires a train_dataset.",
         "ValueError: Please specify dataset for training."),
        "Trainer has no train_dataset",
        "The argument is missing, or the variable is None: a split with another name, or data that only the main "
        "process loaded.",
        Fix("Load it on all ranks.",
            ("with accelerator.main_process_first(): dataset = load_dataset(NAME, split='train')",
             "print(dataset)  # which splits are there?")),
        _TRAINER),
    Row("log_automatic_batch_refused", "root", "script",
        r"`?auto_find_batch_size`? (?:isn't supported yet with DeepSpeed|is not supported by)",
        ("ValueError: `auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3. Please consider using "
         "Zero-2, Zero-1, or FSDP",
         "ValueError: auto_find_batch_size is not supported by GRPO, because the generation batch must contain "
         "full prompt groups"),
        "auto_find_batch_size does not work with this kind of training",
        "It starts the training again with a smaller batch: ZeRO-3 cannot partition the model a second time, and "
        "GRPO's batches must contain whole groups.",
        Fix("Set the batch size yourself.",
            ("TrainingArguments(auto_find_batch_size=False, per_device_train_batch_size=1, "
             "gradient_accumulation_steps=16)",
             "mgpu configure")),
        _TRAINER),
    Row("log_layerwise_optimizer_on_ranks", "root", "script",
        r"[Ll]ayer-?wise \S+ does not support (?:DDP|gradient accumulation)|"
        r"Distributed training does not support layer-wise|Per-layer \w+ does not support gradient accumulation|"
        r"GaLore and APOLLO are incompatible with DeepSpeed|adio-based BAdam does not yet support distributed",
        ("NotImplementedError: Layer-wise GaLore does not support DDP at this time",
         "ValueError: Layerwise APOLLO does not support gradient accumulation!",
         "ValueError: Distributed training does not support layer-wise GaLore.",
         "ValueError: Per-layer GaLore does not support gradient accumulation."),
        "a layer-wise optimizer (GaLore, APOLLO, BAdam) is used with several ranks or with accumulation",
        "It updates each layer within the backward pass, and frees its gradient. DDP exchanges gradients and "
        "accumulation adds them up after that.",
        (Fix("Use the form that is not layer-wise, or another optimizer.",
             ("TrainingArguments(optim='galore_adamw')  # not galore_adamw_layerwise",
              "TrainingArguments(optim='adamw_torch_fused')")),
         Fix("To save memory on several GPUs, shard.",
             ("mgpu configure",))),
        _OPTIMIZER),
    Row("log_optimizer_package_missing", "root", "library",
        r"You need to install `(?P<package>[\w.-]+)` in order to use \S+(?: \w+)? optimizers?",
        ("ImportError: You need to install `galore_torch` in order to use GaLore optimizers install it with `pip "
         "install git+https://github.com/jiaweizzhao/GaLore`",),
        "the optimizer needs the package {package}, which is not installed",
        "Trainer's `optim` names an optimizer of another package.",
        Fix("Install it, or use an optimizer of torch.",
            ("pip install {package:package}",
             "TrainingArguments(optim='adamw_torch_fused')")),
        _OPTIMIZER,
        summary="The optimizer that `optim` names needs a package that is not installed."),
    Row("log_optimizer_not_imported", "root", "library",
        r"Trainer tried to instantiate (?:apex FusedAdam|bnb optimizer)|"
        r"AdEMAMix optimizer is not supported by your current version of `bitsandbytes`|"
        r"requires the latest version of `?schedulefree|You need to install `schedulefree>=",
        ("ValueError: Trainer tried to instantiate apex FusedAdam but apex is not installed!",
         "ValueError: Trainer tried to instantiate bnb optimizer but `bitsandbytes` is not installed!",
         "ValueError: The AdEMAMix optimizer is not supported by your current version of `bitsandbytes`. Please "
         "install `bitsandbytes` >= 0.44.0."),
        "the optimizer that `optim` names cannot be imported: its package is missing, broken or too old",
        "apex is built from source, and the package `apex` on PyPI is another one. bitsandbytes fails to import if "
        "its CUDA library does not load.",
        (Fix("Use torch's fused optimizer instead of apex's: it is as fast.",
             ("TrainingArguments(optim='adamw_torch_fused')",)),
         Fix("Or find out why the import fails.",
             ("python -c 'import bitsandbytes'",
              "pip install --upgrade bitsandbytes"))),
        _OPTIMIZER),
    Row("log_reporter_missing", "root", "library",
        r"(?P<what>TensorBoard|MLflow|Wandb|Comet|ClearML|DVCLive|Trackio|SwanLab|Neptune|AzureML|CodeCarbon|DagsHub|"
        r"Flyte)Callback requires ",
        ("RuntimeError: TensorBoardCallback requires tensorboard to be installed. Either update your PyTorch "
         "version or install tensorboardX.",
         "RuntimeError: WandbCallback requires wandb to be installed. Run `pip install wandb`."),
        "report_to asks for {what}, whose package cannot be imported here",
        "It is not installed in the environment of the ranks, or a file or folder with its name is imported instead.",
        Fix("Install it, or report to nothing.",
            ("TrainingArguments(report_to='none')",
             "pip install tensorboard  # or the package that the line names")),
        _INTEGRATIONS,
        summary="report_to asks for a tracker whose package cannot be imported."),
    Row("log_gpu_memory_full_in_evaluation", "root", "cuda",
        r"Evaluation hit an out-of-memory error",
        ("RuntimeError: Evaluation hit an out-of-memory error. `auto_find_batch_size` only adjusts the training "
         "batch size, reduce `per_device_eval_batch_size` instead.",),
        "a GPU's memory is full during evaluation",
        "Evaluation keeps the logits of all batches on the GPU until it ends, and its batch size defaults to 8 per "
        "GPU.",
        Fix("Use smaller batches, and do not keep the logits.",
            ("TrainingArguments(per_device_eval_batch_size=1, eval_accumulation_steps=8, "
             "prediction_loss_only=True)",)),
        _TRAINER),
    Row("log_lengths_not_known", "root", "script",
        r"`--group_by_length` option is only available for `Dataset`|"
        r"only automatically infer lengths for datasets whose items are dictionaries with an",
        ("ValueError: the `--group_by_length` option is only available for `Dataset`, not `IterableDataset",
         "ValueError: Can only automatically infer lengths for datasets whose items are dictionaries with an "
         "'input_ids' key."),
        "samples should be grouped by length, but their lengths are not known",
        "The dataset streams, or it is tokenized in the collator and has no input_ids.",
        Fix("Turn it off, or add the lengths.",
            ("TrainingArguments(group_by_length=False)  # transformers 5.2: train_sampling_strategy",
             "dataset.map(lambda x: {{'length': len(x['input_ids'])}})")),
        _TRAINER),
    Row("log_model_cannot_checkpoint_layers", "root", "script",
        r"ValueError: \S+ does not support (?:gradient|activation) checkpointing\.|"
        r"is not compatible with gradient checkpointing\. Make sure all the architecture",
        ("ValueError: XxxForCausalLM does not support gradient checkpointing.",
         "ValueError: MyModel is not compatible with gradient checkpointing. Make sure all the architecture "
         "support it by setting a boolean attribute `gradient_checkpointing`"),
        "the model does not support gradient checkpointing",
        "Its code has no call that recomputes layers: the class lacks supports_gradient_checkpointing, or comes "
        "with the checkpoint (trust_remote_code) in an old version.",
        Fix("Turn it off, or wrap the layers with torch's own function.",
            ("TrainingArguments(gradient_checkpointing=False)",
             "accelerate launch --fsdp_activation_checkpointing true ...  # with FSDP")),
        _MODEL),
    Row("log_config_has_generation_values", "root", "script",
        r"ValueError: Some generation parameters are set in the model config\. These should go into|"
        r"ValueError: You have modified the pretrained model configuration to control generation",
        ("ValueError: Some generation parameters are set in the model config. These should go into "
         "`model.generation_config`as opposed to `model.config`.",),
        "the model cannot be saved: its config.json holds values of generation (temperature, top_p, max_length)",
        "Older releases of transformers kept them there, and checked them only when the model was saved: after the "
        "training has run until its first checkpoint.",
        Fix("Move them before training, and set them to None in model.config.",
            ("model.generation_config.temperature = 0.7",
             "grep -E 'temperature|top_p|max_length|do_sample' MODEL/config.json")),
        _CONFIG),
    Row("log_no_split_modules", "root", "script",
        r"does not support `device_map='(?:auto|balanced|balanced_low_0|sequential)'`",
        ("ValueError: MyModel does not support `device_map='auto'`. To implement support, the model class needs "
         "to implement the `_no_split_modules` attribute.",),
        "the model cannot be spread across GPUs by device_map",
        "Its class does not name the layers that must stay together (_no_split_modules).",
        (Fix("Load a whole model per rank.",
             ("from_pretrained(MODEL)  # without device_map",
              "mgpu launch train.py")),
         Fix("If it does not fit on one GPU, shard it.",
             ("mgpu configure",))),
        _MODEL),
    Row("log_attention_has_no_weights", "root", "script",
        r"`output_attentions` attribute is not supported when using the `attn_implementation`",
        ("ValueError: The `output_attentions` attribute is not supported when using the `attn_implementation` set "
         "to sdpa. Please set it to 'eager' instead.",),
        "the script asks for attention weights, which sdpa and FlashAttention do not compute",
        "Only the eager implementation builds that matrix.",
        Fix("Load the model with it, or do not ask for the weights.",
            ("from_pretrained(..., attn_implementation='eager')",
             "model.config.output_attentions = False")),
        _CONFIG),
    Row("log_rope_settings_unknown", "root", "library",
        r"`rope_scaling` must be a dictionary with (?:with )?two fields|Missing required keys in `rope_(?:scaling|"
        r"parameters)`|ValueError: `rope_scaling`'s type field must be one of",
        ("ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, got {'factor': "
         "8.0, 'low_freq_factor': 1.0, 'rope_type': 'llama3'}",
         "KeyError: \"Missing required keys in `rope_scaling` for 'rope_type'='llama3': {'factor'}\"",
         "ValueError: `rope_scaling`'s type field must be one of ['linear', 'dynamic'], got yarn"),
        "the installed transformers does not understand the rope settings in the model's config.json",
        "Their form changed: Llama 3.1 needs transformers 4.43, yarn 4.45, and transformers 5 saves rope_parameters "
        "in place of rope_scaling.",
        (Fix("Upgrade transformers on every node.",
             ("pip install --upgrade transformers",
              "pip show transformers vllm")),
         Fix("If the model was saved by a newer release, load it with that release.",
             ("grep -E 'transformers_version|rope' MODEL/config.json",))),
        _ROPE),
    Row("log_weights_without_format", "root", "script",
        r"safetensors archive passed at (?P<path>\S+) does not contain the valid metadata",
        ("OSError: The safetensors archive passed at out/model.safetensors does not contain the valid metadata. "
         "Make sure you save your model with the `save_pretrained` method.",),
        "{path} was saved without the entry that says that its tensors are torch's",
        "transformers and accelerate write metadata {{'format': 'pt'}}. safetensors' save_file() and converters do "
        "not by default.",
        (Fix("Save it again with the entry.",
             ("python -c \"from safetensors.torch import load_file, save_file as s; s(load_file('FILE'), "
              "'FILE.new', metadata={{'format': 'pt'}})\"",
              "mv FILE.new FILE")),
         Fix("Or save with the model's own method.",
             ("model.save_pretrained('out')",))),
        _MODELING,
        summary="A safetensors file was saved without its format."),
    Row("log_device_map_incomplete", "root", "script",
        r"device_map provided does not give any device for the following|`device_map` does not contain the module|"
        r"ValueError: \S+ doesn't have any device set\.|is not recognized, available devices are integers",
        ("ValueError: The device_map provided does not give any device for the following parameters: "
         "model.norm.weight",
         "ValueError: model.norm.weight doesn't have any device set.",
         "ValueError: Device cuda:0 is not recognized, available devices are integers(for GPU/XPU), 'mps', 'cpu' "
         "and 'disk'"),
        "the device_map or max_memory of the script does not fit the model",
        "It was written for another model or another release: module names differ (model., language_model., "
        "lm_head). Devices are integers, not strings.",
        Fix("Let accelerate compute it, or load a whole model per rank.",
            ("from_pretrained(..., device_map='auto', max_memory={{0: '40GiB', 1: '40GiB', 'cpu': '100GiB'}})",
             "from_pretrained(MODEL)  # one process per GPU")),
        _MODELING),
    Row("log_loaded_on_meta_device", "root", "script",
        r"using `from_pretrained` with a meta device context manager",
        ("RuntimeError: You are using `from_pretrained` with a meta device context manager or "
         "`torch.set_default_device('meta')`.",),
        "from_pretrained() runs while the meta device is the default, which has no memory",
        "transformers 5 refuses it. init_empty_weights(), torch.device('meta') or a framework's lazy loading "
        "surrounds the call.",
        Fix("Call it outside of that context, or build an empty model from the config.",
            ("with torch.device('meta'): model = AutoModelForCausalLM.from_config(config)",)),
        _ACCELERATE),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
