"""Do the options of accelerate, Trainer, FSDP and DeepSpeed contradict each other, or the calls of the script?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_STATE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"
_FSDP2 = "https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2"
_ARGUMENTS = "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py"
_TRAINER = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"
_ACCELERATOR = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py"
_PLUGINS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py"
_OPERATIONS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/operations.py"
# fmt: off
ROWS = (
    Row("log_context_parallel_needs_fsdp2", "root", "launcher",
        r"`cp_size > 1` specified in the `parallelism_config`, but no `fsdp_plugin`|Using `cp_size>1` requires FSDP2",
        ("ValueError: `cp_size > 1` specified in the `parallelism_config`, but no `fsdp_plugin` was provided.",
         "ValueError: Using `cp_size>1` requires FSDP2, but the provided `fsdp_plugin` is using FSDP1. "),
        "context parallelism is on, but FSDP 2 is not",
        "Context parallelism of torch splits the sequence and the model across the same ranks: accelerate combines "
        "it with FSDP 2 only.",
        (Fix("Turn on FSDP 2 in the same config.",
             ("accelerate launch --use_fsdp --fsdp_version 2 ...",
              "mgpu configure --validate accelerate.yaml")),
         Fix("Or turn context parallelism off.",
             ("ParallelismConfig(cp_size=1)",))),
        _STATE),
    Row("log_fsdp_option_of_other_version", "root", "launcher",
        r"reshard_after_forward set to .{1,60} This is not supported with FSDP[12]|"
        r"FSDP2 does not support LOCAL_STATE_DICT|forward_prefetch is not yet implemented in FSDP2|"
        r"`cpu_offload` must be an instance of `torch\.distributed\.fsdp\.\w+` in FSDP[12]|"
        r"`activation_checkpointing_offload=True` requires `fsdp_version=2`|"
        r"only available with FSDP1\. Set `fsdp_config",
        ("ValueError: reshard_after_forward set to FULL_SHARD. This is not supported with FSDP2, please set to a "
         "`bool`",
         "ValueError: FSDP2 does not support LOCAL_STATE_DICT. Please set `fsdp_state_dict_type` to "
         "`SHARDED_STATE_DICT`",
         "ValueError: forward_prefetch is not yet implemented in FSDP2, set to None or use `fsdp_version=1`",
         "ValueError: `cpu_offload` must be an instance of `torch.distributed.fsdp.OffloadPolicy` in FSDP2, got "
         "CPUOffload",
         "ValueError: `fsdp=hybrid_shard` is only available with FSDP1. Set `fsdp_config['version'] = 1` to use it"),
        "the config mixes settings of FSDP 1 and FSDP 2",
        "The two versions share a section of the config, but not its values: sharding strategies, prefetching and "
        "offload policies of FSDP 1 do not exist in FSDP 2. transformers 5 uses FSDP 2 by default.",
        (Fix("Translate the config to FSDP 2, and check it.",
             ("accelerate to-fsdp2 --config_file accelerate.yaml --output_file fsdp2.yaml",
              "mgpu configure --validate fsdp2.yaml")),
         Fix("Or stay with FSDP 1.",
             ("accelerate launch --fsdp_version 1 ...",
              "fsdp_config={{'version': 1}}  # TrainingArguments"))),
        _FSDP2),
    Row("log_fsdp_options_contradict", "root", "script",
        r"`--fsdp offload` can't work on its own|`--fsdp full_shard` is not compatible with|"
        r"`min_num_params` and `transformer_layer_cls_to_wrap` are mutually|Unknown `fsdp` option: \w+|"
        r"`auto_wrap_policy` must be one of|Invalid auto wrap policy: ",
        ("ValueError: `--fsdp offload` can't work on its own. It needs to be added to `--fsdp full_shard` or "
         "`--fsdp shard_grad_op`.",
         "ValueError: `--fsdp full_shard` is not compatible with `--fsdp shard_grad_op`.",
         "ValueError: `min_num_params` and `transformer_layer_cls_to_wrap` are mutually exclusive.",
         "ValueError: Unknown `fsdp` option: fullshard"),
        "Trainer's FSDP options contradict each other, or one does not exist",
        "`fsdp` is one sharding strategy, with `offload` and `auto_wrap` as additions. Which layers are wrapped is "
        "set once, in fsdp_config.",
        (Fix("Use one strategy and one wrap policy.",
             ("TrainingArguments(fsdp='full_shard auto_wrap', fsdp_config={{'transformer_layer_cls_to_wrap': "
              "['LlamaDecoderLayer']}})  # transformers 4",
              "TrainingArguments(fsdp=True, fsdp_config={{'transformer_layer_cls_to_wrap': "
              "['LlamaDecoderLayer']}})  # transformers 5")),
         Fix("Or leave them out, and write accelerate's config.",
             ("mgpu configure",))),
        _ARGUMENTS),
    Row("log_fsdp_with_deepspeed", "root", "launcher",
        r"Using --fsdp \w+ together with --deepspeed is not possible|FSDP2 is not compatible with DeepSpeed",
        ("ValueError: Using --fsdp xxx together with --deepspeed is not possible, deactivate one of those flags.",
         "ValueError: FSDP2 is not compatible with DeepSpeed."),
        "both FSDP and DeepSpeed are turned on",
        "Both shard the model. One is usually set in the training arguments and the other in accelerate's config, "
        "which accelerate launch reads without being asked (default_config.yaml).",
        Fix("Look at both, and keep one.",
            ("cat ~/.cache/huggingface/accelerate/default_config.yaml",
             "env | grep -E 'ACCELERATE_USE_(FSDP|DEEPSPEED)'",
             "mgpu configure")),
        _TRAINER),
    Row("log_fsdp_without_launcher", "root", "launcher",
        r"Using fsdp only works in distributed training|"
        r"Please use `FORCE_TORCHRUN=1` to launch DeepSpeed",
        ("ValueError: Using fsdp only works in distributed training.",
         "ValueError: Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training."),
        "FSDP or DeepSpeed is turned on, but the script was started as a single process",
        "Only a launcher starts one process per GPU and sets RANK and WORLD_SIZE. Plain python does not.",
        Fix("Start it with a launcher.",
            ("mgpu launch train.py",
             "torchrun --nproc_per_node=8 train.py",
             "FORCE_TORCHRUN=1 llamafactory-cli train config.yaml  # LlamaFactory")),
        _TRAINER),
    Row("log_recomputation_set_twice", "root", "script",
        r"activation_checkpointing in FSDP config and the gradient_checkpointing in training arg|"
        r"FSDP's own activation checkpointing\) and the `activation_checkpointing`",
        ("ValueError: The activation_checkpointing in FSDP config and the gradient_checkpointing in training arg "
         "can't be set to True simultaneously.",
         "ValueError: `fsdp_config['activation_checkpointing']` (FSDP's own activation checkpointing) and the "
         "`activation_checkpointing` training argument can't both be set to True."),
        "activation checkpointing is turned on twice: by FSDP's config and by Trainer's arguments",
        "Each of them would recompute the same layers.",
        Fix("With FSDP, use FSDP's.",
            ("TrainingArguments(gradient_checkpointing=False, fsdp_config={{'activation_checkpointing': True}})",
             "accelerate launch --fsdp_activation_checkpointing true ...")),
        _TRAINER),
    Row("log_accumulation_set_twice", "root", "script",
        r"`num_steps` is set but `gradient_accumulation_steps` is greater than 1|"
        r"only pass one of `gradient_accumulation_steps` and `gradient_accumulation_plugin`",
        ("ValueError: The `AcceleratorConfig`'s `num_steps` is set but `gradient_accumulation_steps` is greater "
         "than 1 in the passed `TrainingArguments`",
         "ValueError: You can only pass one of `gradient_accumulation_steps` and `gradient_accumulation_plugin`."),
        "gradient accumulation is set in two places",
        "Trainer passes its own gradient_accumulation_steps to accelerate. The plugin or accelerator_config sets it "
        "again.",
        Fix("Keep one of them.",
            ("TrainingArguments(gradient_accumulation_steps=8)  # without num_steps in accelerator_config",)),
        _TRAINER),
    Row("log_sharded_model_under_ddp", "root", "script",
        r"model contains `DTensor` parameters, which is incompatible with DDP|"
        r"Model should undergo tensor parallel before passing it to accelerate|"
        r"tp_size in the plugin \S+ should be same as model's tp size",
        ("ValueError: Your model contains `DTensor` parameters, which is incompatible with DDP. Maybe you loaded "
         "your model with `device_map='auto'`?",
         "NotImplementedError: Model should undergo tensor parallel before passing it to accelerate.",
         "ValueError: tp_size in the plugin 2 should be same as model's tp size 4"),
        "the model was loaded with another kind of parallelism than accelerate was set up for",
        "Started by a launcher, transformers turns device_map='auto' (4.50 and newer) and tp_plan='auto' into "
        "tensor parallelism: its weights are sharded across the ranks. DDP needs a whole model on every rank.",
        (Fix("For DDP, FSDP or DeepSpeed, load the whole model.",
             ("from_pretrained(MODEL)  # without device_map and tp_plan",)),
         Fix("For tensor parallelism, use the same size in both.",
             ("from_pretrained(MODEL, tp_plan='auto')",
              "ParallelismConfig(tp_size=4)"))),
        _ACCELERATOR),
    Row("log_optimizer_on_other_device", "root", "script",
        r"model and the optimizer parameters are not on the same device",
        ("ValueError: The model and the optimizer parameters are not on the same device, which probably means you "
         "created an optimizer around your model **before** putting on the device.",),
        "the optimizer was created before the model was moved to its device",
        "On XLA devices (TPU) and some others, moving a model replaces its parameters: the optimizer holds the old "
        "ones.",
        Fix("Move the model first, or let accelerate do both.",
            ("model = model.to(accelerator.device)",
             "optimizer = AdamW(model.parameters())")),
        _ACCELERATOR),
    Row("log_device_placement_with_engine", "root", "script",
        r"can't customize device placements with DeepSpeed or Megatron|"
        r"`device_placement` should be a list with \d+ elements",
        ("ValueError: You can't customize device placements with DeepSpeed or Megatron-LM.",),
        "prepare() was called with device_placement, which DeepSpeed and Megatron decide themselves",
        "Their engines move and partition the model when they are created.",
        Fix("Leave it out.",
            ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",)),
        _ACCELERATOR),
    Row("log_deepspeed_auto_not_filled", "root", "launcher",
        r"not possible to automatically fill out the following `auto` entries|"
        r"` not found in kwargs\. Please specify `(?=\S+ without `auto`)",
        ("ValueError: Can't find `model.config` entry, therefore it's not possible to automatically fill out the "
         "following `auto` entries in the DeepSpeed config file: ['zero_optimization.reduce_bucket_size'].",
         "ValueError: The model's config file has neither `hidden_size` nor `hidden_sizes` entry, therefore it's "
         "not possible to automatically fill out the following `auto` entries",
         "ValueError: `optimizer.params.lr` not found in kwargs. Please specify `optimizer.params.lr` without "
         "`auto` (set to correct value) in the DeepSpeed config file"),
        "a value of the DeepSpeed file is \"auto\", but nothing in this run gives it a value",
        "accelerate computes bucket sizes from model.config.hidden_size, which custom, multimodal and composite "
        "models do not have at the top, and learning rates and batch sizes from arguments that only Trainer passes.",
        Fix("Write numbers for the keys that the message names.",
            ("\"reduce_bucket_size\": 5e8, \"stage3_prefetch_bucket_size\": 5e7, "
             "\"stage3_param_persistence_threshold\": 1e5",
             "mgpu configure")),
        _ACCELERATOR),
    Row("log_deepspeed_zero_section_missing", "root", "launcher",
        r"Please specify the ZeRO optimization config in the DeepSpeed config",
        ("ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.",),
        "the DeepSpeed file has no zero_optimization section",
        "accelerate and Trainer read the stage from it.",
        Fix("Add it, with stage 0 if nothing should be sharded.",
            ("\"zero_optimization\": {{\"stage\": 2}}",
             "mgpu configure")),
        _PLUGINS),
    Row("log_deepspeed_scheduler_half_replaced", "root", "script",
        r"Either specify a scheduler in the config file or pass in the `lr_scheduler_callable`|"
        r"only specify `accelerate\.utils\.DummyScheduler` in the code when using",
        ("ValueError: Either specify a scheduler in the config file or pass in the `lr_scheduler_callable` "
         "parameter when using `accelerate.utils.DummyScheduler`.",
         "ValueError: You can only specify `accelerate.utils.DummyScheduler` in the code when using "
         "`accelerate.utils.DummyOptim`."),
        "the script uses DummyScheduler, but the DeepSpeed file does not define what replaces it",
        "DummyOptim and DummyScheduler are placeholders: DeepSpeed creates the real ones from the file. A real "
        "optimizer needs a real scheduler.",
        (Fix("Define both in the file.",
             ("\"optimizer\": {{\"type\": \"AdamW\", \"params\": {{\"lr\": \"auto\"}}}}, \"scheduler\": "
              "{{\"type\": \"WarmupDecayLR\", \"params\": {{\"total_num_steps\": \"auto\"}}}}",)),
         Fix("Or use real ones in the script.",
             ("get_scheduler('cosine', optimizer, ...)",))),
        _ACCELERATOR),
    Row("log_state_without_deepspeed", "root", "script",
        r"that was not initialized for DeepSpeed, but also passed in a `deepspeed`|"
        r"`'use_configured_state':True` to the AcceleratorConfig requires a pre-configured|"
        r"Couldn't retrieve the active `DeepSpeedPlugin` as none were enabled|"
        r"DeepSpeed is not enabled, please make sure that an `Accelerator` is configured",
        ("RuntimeError: Tried to use an already configured `Accelerator` or `PartialState` that was not "
         "initialized for DeepSpeed, but also passed in a `deepspeed` configuration to the `TrainingArguments`.",
         "ValueError: Passing `'use_configured_state':True` to the AcceleratorConfig requires a pre-configured "
         "`AcceleratorState`",
         "ValueError: Couldn't retrieve the active `DeepSpeedPlugin` as none were enabled."),
        "accelerate's state exists already, without DeepSpeed, when DeepSpeed should be set up",
        "One process has one state. An Accelerator(), PartialState() or TrainingArguments that was created earlier "
        "fixed it: a logger, a metric or device_map={{'': PartialState().process_index}} is enough.",
        (Fix("Create TrainingArguments(deepspeed=...) first, before anything of accelerate.",
             ("args = TrainingArguments(..., deepspeed='ds.json')  # first line of main()",)),
         Fix("Or let the launcher turn DeepSpeed on, for all of them.",
             ("accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py",))),
        _ARGUMENTS),
    Row("log_clip_by_value_sharded", "root", "script",
        r"do not support `clip_grad_value_`",
        ("Exception: DeepSpeed and FSDP do not support `clip_grad_value_`. Use `clip_grad_norm_` instead.",),
        "gradients are clipped by value, which sharded training does not support",
        "With FSDP and DeepSpeed each rank holds a part of the gradients, in the engine's own buffers.",
        Fix("Clip by norm, through accelerate.",
            ("accelerator.clip_grad_norm_(model.parameters(), 1.0)",)),
        _ACCELERATOR),
    Row("log_empty_weights_saved", "root", "script",
        r"can't save the model since some parameters are on the meta device",
        ("RuntimeError: You can't save the model since some parameters are on the meta device.",),
        "the model has weights without data (meta device) when it is saved",
        "device_map offloaded them to the CPU or the disk, they were created under init_empty_weights() and never "
        "loaded, or the rank has no copy because only rank 0 loaded the model.",
        Fix("Load the model without device_map, and save it through accelerate on all ranks.",
            ("accelerator.save_model(model, 'out')",
             "accelerator.get_state_dict(model)  # FSDP and ZeRO-3 gather it")),
        _ACCELERATOR),
    Row("log_registered_objects_differ", "root", "script",
        r"Number of custom checkpoints in folder \S+ does not match the number of registered objects",
        ("RuntimeError: Number of custom checkpoints in folder out/checkpoint_3 does not match the number of "
         "registered objects:",),
        "the checkpoint has another number of registered objects than the script registers",
        "register_for_checkpointing() was added, removed or called after load_state(), or the checkpoint is another "
        "script's.",
        Fix("Register the same objects in the same order, before load_state().",
            ("accelerator.register_for_checkpointing(scheduler)",
             "ls CHECKPOINT/custom_checkpoint_*.pkl")),
        _ACCELERATOR),
    Row("log_objects_without_state", "root", "script",
        r"All `objects` must include a `state_dict` and `load_state_dict`",
        ("ValueError: All `objects` must include a `state_dict` and `load_state_dict` function to be stored. The "
         "following inputs are invalid:",),
        "an object that has no state_dict() was registered for checkpoints",
        "accelerate saves and restores registered objects through state_dict() and load_state_dict().",
        Fix("Register objects that have both methods, and save plain values yourself on the main process.",
            ("if accelerator.is_main_process: json.dump({{'epoch': epoch}}, open('out/extra.json', 'w'))",)),
        _ACCELERATOR),
    Row("log_gathered_not_tensors", "root", "script",
        r"Unsupported types \(<class '\w+'>\) passed to `_?\w*(?:gather|broadcast|reduce|pad|recursively|concat)\w*`|"
        r"Can't gather the values of type <class|Can only concatenate tensors but got <class",
        ("TypeError: Unsupported types (<class 'NoneType'>) passed to `_gpu_gather_one`. Only nested "
         "list/tuple/dicts of objects that are valid for `is_torch_tensor` should be passed.",
         "TypeError: Can't gather the values of type <class 'str'>, only of nested list/tuple/dicts of tensors."),
        "ranks should exchange values that are not tensors",
        "gather(), gather_for_metrics() and reduce() exchange tensors only. None, strings and numbers come from a "
        "model output without labels, from a batch with text columns, or from compute_metrics input.",
        (Fix("Gather tensors, or use the function for objects.",
             ("accelerator.gather_for_metrics(torch.tensor(value, device=accelerator.device))",
              "accelerate.utils.gather_object(texts)")),
         Fix("In Trainer, drop outputs that are not tensors.",
             ("trainer.evaluate(ignore_keys=['past_key_values'])",))),
        _OPERATIONS),
    Row("log_gathered_on_cpu", "root", "script",
        r"tensors passed to \S+ were not on the \w+ while the `Accelerator`",
        ("accelerate.utils.operations.DistributedOperationException: One or more of the tensors passed to "
         "accelerate.utils.operations.gather were not on the cpu while the `Accelerator` is configured for cuda.",),
        "a tensor that ranks should exchange is on another device than the ranks use",
        "NCCL exchanges tensors on GPUs only. The tensor was created on the CPU, or moved there before the exchange.",
        Fix("Move it before the call.",
            ("accelerator.gather(value.to(accelerator.device))",)),
        _OPERATIONS),
    Row("log_prepared_model_pickled", "root", "script",
        r"Cannot pickle a prepared model with automatic mixed precision",
        ("_pickle.PicklingError: Cannot pickle a prepared model with automatic mixed precision, please unwrap the "
         "model with `Accelerator.unwrap_model(model)` before pickling it.",),
        "the prepared model is copied or saved with its mixed-precision wrapper",
        "accelerate wraps forward() of a prepared model. torch.save(model), copy.deepcopy(model) and processes "
        "started with spawn pickle that wrapper.",
        Fix("Unwrap it, or save its weights.",
            ("accelerator.unwrap_model(model, keep_fp32_wrapper=False)",
             "accelerator.save_model(model, 'out')")),
        _OPERATIONS),
    Row("log_batch_size_not_found", "root", "script",
        r"Cannot find the batch size from empty <class|Can only find the batch size of tensors but got",
        ("TypeError: Can only find the batch size of tensors but got <class 'str'>.",
         "ValueError: Cannot find the batch size from empty <class 'dict'>."),
        "the main process cannot divide a batch among the ranks: it has something other than tensors",
        "With an IterableDataset, accelerate reads on the main process and sends slices to the ranks "
        "(dispatch_batches). Each value of the batch must be a tensor.",
        (Fix("Let each rank read for itself.",
             ("Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False))",
              "TrainingArguments(accelerator_config={{'dispatch_batches': False}})")),
         Fix("Or keep text and ids out of the batch in the collator.")),
        _OPERATIONS),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
