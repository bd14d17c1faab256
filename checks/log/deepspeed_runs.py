"""What did DeepSpeed say about its config, its launcher, ZeRO's parameters and its checkpoints?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from . import _plain_torch_cases
from ._circumstances import every, never, reported, said, shown, within
from ._deepspeed_config_cases import CONFIG_AS_BASE64
from ._settings_as_text import name_of_text

_BUILDER = "https://github.com/deepspeedai/DeepSpeed/blob/master/op_builder/builder.py"
_COORDINATOR = (
    "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/partitioned_param_coordinator.py"
)
_CONFIG = "https://www.deepspeed.ai/docs/config-json/"
_ELASTIC = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/elasticity/elasticity.py"
_ENGINE = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py"
_PARAMETERS = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/partition_parameters.py"
_PIPE = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/pipe/engine.py"
_RUNNER = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py"
_TO_FP32 = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/utils/zero_to_fp32.py"

# fmt: off
_REFERENCE_MODEL = Case(
    every(shown("reference_model_prepared"), never(reported("empty parameter list"))),
    "the reference model was given to DeepSpeed with ZeRO 1 or 2, which need an optimizer: it has none",
    "A reference, reward or teacher model is not trained. It can run with ZeRO-3, which only shards its weights, or "
    "with stage 0. The trainer must change the stage for it: older releases pass the config of the trained model.",
    (Fix("Upgrade the trainer.", ("pip install --upgrade trl", "pip show trl accelerate deepspeed")),
     Fix("Or use ZeRO-3, or stage 0 for that model.",
         ("accelerate launch --zero_stage 3 ...", '"zero_optimization": {{"stage": 0}}'))),
    "AssertionError: zero stage 2 requires an optimizer\nTraceback (most recent call last):\n"
    '  File "/x/trl/trainer/dpo_trainer.py", line 248, in __init__\n'
    "    self.ref_model = self.accelerator._prepare_deepspeed(self.ref_model)[0]\n",
    "https://github.com/huggingface/trl/pull/825")
_STILL_USED = Case(
    every(said(r"'active_sub_modules': \{\d"),
          within(r"deepspeed/runtime/zero/partition_parameters\.py in __exit__$")),
    "GatheredParameters ends while ZeRO-3's hooks still count a parameter as used by a module",
    "At its end each rank gives up the other ranks' parts, and active_sub_modules names the module that still holds "
    "one. ZeRO-3's hooks mark it before a forward pass and clear it after, or in the backward pass: a forward pass "
    "or generate() within GatheredParameters, or between a forward and its backward pass, can leave it marked.",
    (Fix("Take ZeRO-3's hooks off while the model generates. unwrap_model_for_generation of newer releases of TRL does "
         "that.", ("pip install --upgrade trl", "pip show trl deepspeed")),
     Fix("Or use ZeRO-2 if the model fits: it needs no gathering.", ("accelerate launch --zero_stage 2 ...",))),
    'Traceback (most recent call last):\n  File "/x/train.py", line 9, in compute_loss\n    with gathered(model):\n'
    '  File "/x/site-packages/deepspeed/runtime/zero/partition_parameters.py", line 2177, in __exit__\n'
    "    self.params[0].partition(param_list=self.params, has_been_updated=False)\n"
    "AssertionError: {'id': 0, 'status': 'AVAILABLE', 'numel': 896, 'ds_numel': 896, 'shape': (896,), "
    "'active_sub_modules': {3}}", _PARAMETERS)
ROWS = (
    Row("log_zero3_parameter_not_gathered", "root", "script",
        r"\{'id': \d+, 'status': '\w+'.*'ds_numel'|expected param \{.*\} to be available|"
        r"assert param\.ds_status == ZeroParamStatus\.AVAILABLE",
        ("AssertionError: {'id': 853, 'status': 'NOT_AVAILABLE', 'numel': 0, 'ds_numel': 0, 'shape': (0,), 'ds_shape': "
         "(0,), 'requires_grad': True}",
         "RuntimeError: expected param {'id': 12, 'status': 'INFLIGHT'} to be available",
         "AssertionError: {'id': 0, 'status': 'AVAILABLE', 'numel': 896, 'ds_numel': 896, 'shape': (896,), "
         "'active_sub_modules': {3}}"),
        "ZeRO-3 found a layer's parameters in an unexpected state: not gathered, or still in use",
        "ZeRO-3 gathers the parameters of a layer in the order of the first step. A layer was skipped, run twice, "
        "called by another method than forward(), changed after initialize() (LoRA, resized embeddings), or the "
        "parameter is empty (ds_numel 0: it was created under ZeRO-3 and never loaded).",
        (Fix("Use ZeRO-2 if the model fits.", ("accelerate launch --zero_stage 2 ...",)),
         Fix("Or upgrade DeepSpeed, and mark the modules that do not always run as leaf modules.",
             ("pip install --upgrade deepspeed", "deepspeed.utils.set_z3_leaf_modules(model, [ModuleClass])"))),
        _COORDINATOR, cases=(_STILL_USED,)),
    Row("log_zero3_dtypes_mixed", "root", "script",
        r"assert len\(set\(t\.dtype for t in tensors\)\) == 1|all params in a coalesced bucket must have the same "
        r"communication dtype|expected there to be only one unique element in <generator",
        ("    assert len(set(t.dtype for t in tensors)) == 1",
         "AssertionError: all params in a coalesced bucket must have the same communication dtype; expected "
         "torch.bfloat16, got [torch.float32]"),
        "ZeRO-3 found parameters of different dtypes",
        "ZeRO-3 joins parameters in one buffer, so all must have one dtype. A reference model, an adapter, a norm or a "
        "quantized layer has another one.",
        Fix("Load the whole model in one dtype, and upgrade DeepSpeed.",
            ("from_pretrained(..., torch_dtype=torch.bfloat16)", "model.to(torch.bfloat16)",
             "pip install --upgrade deepspeed")),
        "https://github.com/huggingface/trl/issues/1770"),
    Row("log_zero3_changed_in_gathering", "root", "script",
        r"in-place modification of ZeRO-3 parameters inside GatheredParameters|"
        r"Nested GatheredParameters contexts cannot overlap|"
        r"Cannot free a ZeRO-3 parameter while it is still active in submodules|"
        r"is on \S+ but broadcast requires it to be on",
        ("RuntimeError: Detected in-place modification of ZeRO-3 parameters inside GatheredParameters with "
         "modifier_rank=None. Use modifier_rank=<rank> to broadcast updates across ranks.",
         "RuntimeError: Cannot free a ZeRO-3 parameter while it is still active in submodules. This can happen if: "
         "(1)"),
        "code changed or released ZeRO-3's gathered parameters in a way that would lose the change",
        "A change to a gathered parameter is kept only if GatheredParameters knows which rank made it. Parameters that "
        "an outer context or a running layer still uses cannot be released.",
        Fix("Name the rank that changes them, and do not nest the contexts.",
            ("with deepspeed.zero.GatheredParameters(params, modifier_rank=0):",)), _PARAMETERS),
    Row("log_deepspeed_config_not_read", "root", "launcher",
        r"Expected a string path to an existing deepspeed config, or a dictionary.*Received: (?P<given>.{0,80})",
        ("ValueError: Expected a string path to an existing deepspeed config, or a dictionary or a valid base64. "
         "Received: ds_config_zero3.json",),
        "DeepSpeed's config was not found: {given}",
        "It is the path of a file that does not exist on this node, or is relative to another folder.",
        Fix("Pass the full path, and check that the file exists on every node.", ("pwd; ls -l ds_config.json",)),
        _CONFIG, summary="DeepSpeed's config was not found."),
    Row("log_base64_damaged", "root", "script",
        r"binascii\.Error: (?P<reason>(?:Incorrect padding|Invalid base64|Excess data|Non-base64|Only base64).*)",
        ("binascii.Error: Incorrect padding",
         "binascii.Error: Invalid base64-encoded string: number of data characters (5) cannot be 1 more than a "
         "multiple of 4"),
        "a text that should be base64 is not: {reason}",
        "It was cut, has other characters, or is something else: a path, JSON, an error page.",
        Fix("Print the beginning and the end of the text that is decoded."),
        "https://docs.python.org/3/library/binascii.html", cases=(CONFIG_AS_BASE64,),
        because_of=("log_deepspeed_config_not_read",), summary="A text that should be base64 is not."),
    Row("log_setting_is_text", "root", "script",
        r"TypeError: '(?:[<>]=?|[-+*/])' not supported between instances of '(?:str' and '(?:int|float)|(?:int|float)' "
        r"and 'str)'|TypeError: unsupported operand type\(s\) for [-+*/%]{1,2}=?: '(?:str' and '(?:int|float)|"
        r"(?:int|float)' and 'str)'|must be real number, not str",
        ("TypeError: '>' not supported between instances of 'str' and 'int'",
         "TypeError: '<=' not supported between instances of 'float' and 'str'",
         "TypeError: unsupported operand type(s) for *: 'float' and 'str'", "TypeError: must be real number, not str"),
        "a number is computed with text: probably a setting was read as text",
        "YAML reads 1e-5 as text (it needs 1.0e-5), and so it does quoted numbers. In a DeepSpeed file, 'auto' stays "
        "text without Trainer. Environment variables are always text.",
        Fix("Write the number so that it is read as one, or convert it.",
            ("learning_rate: 1.0e-5", '"train_micro_batch_size_per_gpu": 4', "int(os.environ['WORLD_SIZE'])")),
        "https://yaml.org/type/float.html", explain=name_of_text),
    Row("log_zero_trains_nothing", "root", "script",
        r"zero stage \d requires an optimizer|optimizer\.param_groups\[0\]\[['\"]params['\"]\]\[0\]\.dtype|"
        r"max\(\[max\(tensor\.numel\(\), tensor\.ds_numel\)|optimizer got an empty parameter list",
        ("AssertionError: zero stage 3 requires an optimizer",
         "    self.dtype = self.optimizer.param_groups[0]['params'][0].dtype",
         "    max([max(tensor.numel(), tensor.ds_numel) for tensor in fp16_partitioned_group]))",
         "ValueError: optimizer got an empty parameter list"),
        "there is nothing to train: the optimizer has no parameters",
        "Every parameter is frozen (requires_grad=False), the adapters were not added or were loaded for inference, or "
        "the engine got a model without an optimizer (a reference or reward model, which needs ZeRO-3 for inference or "
        "stage 0).",
        Fix("Check which parameters are trainable before the optimizer is built.",
            ("sum(p.numel() for p in model.parameters() if p.requires_grad)",
             "PeftModel.from_pretrained(model, FOLDER, is_trainable=True)")), _ENGINE, cases=(_REFERENCE_MODEL,)),
    Row("log_adapter_on_partitioned_parameter", "root", "library",
        r"num_experts, in_features, out_features = 1, param\.shape\[1\]|"
        r"^\s*(?:in_features, out_features|out_features, in_features) = \w+\.(?:weight\.)?shape\b(?!.*ds_shape)",
        ("    num_experts, in_features, out_features = 1, param.shape[1], param.shape[0]",),
        "the adapter reads the shape of a parameter that has no dimensions: probably ZeRO-3 has already partitioned it",
        "With zero3_init_flag, from_pretrained() partitions each parameter, which is then empty; its real shape is in "
        "ds_shape. This release of peft reads shape (LoRA with target_parameters, as for the experts of MoE models).",
        (Fix("Upgrade peft, or do not partition while the model is loaded.",
             ("pip install --upgrade peft", "accelerate launch --zero3_init_flag false ...")),
         Fix("Or use ZeRO-2, or FSDP.", ("accelerate launch --zero_stage 2 ...",))),
        "https://github.com/huggingface/peft/pull/3576"),
    Row("log_cpu_adam_without_offload", "root", "script", r"CPUAdam param is on \S+ and must be 'cpu'",
        ("AssertionError: CPUAdam param is on cuda:0 and must be 'cpu', make sure you enabled 'offload_optimizer': "
         "'cpu' in your ZeRO config.",),
        "DeepSpeedCPUAdam is used, but the optimizer is not offloaded to the CPU",
        "Its kernel computes on the CPU only. The parameters are on the GPU.",
        Fix("Offload the optimizer, or use torch's AdamW.",
            ("accelerate launch --offload_optimizer_device cpu ...", '"offload_optimizer": {{"device": "cpu"}}')),
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/ops/adam/cpu_adam.py"),
    Row("log_moe_with_zero3", "root", "launcher", r"MoE (?:is )?not supported with (?:ZeRO )?Stage 3",
        ("AssertionError: MoE not supported with Stage 3",
         "AssertionError: Native DeepSpeed MoE is not supported with ZeRO Stage 3. Use AutoEP or choose ZeRO stage "
         "1/2."),
        "DeepSpeed's own MoE layers do not work with ZeRO stage 3",
        "Expert parameters are already distributed over the expert-parallel ranks.",
        Fix("Use stage 1 or 2.", ("accelerate launch --zero_stage 2 ...",)), _ENGINE),
    Row("log_zero_unused_parameters", "root", "script", r"This assert indicates that your module has parameters that "
                                                        r"were "
        r"not used in producing loss",
        ("AssertionError: This assert indicates that your module has parameters that were not used in producing "
         "loss.",),
        "ZeRO-2 found parameters that got no gradient",
        "A layer is not used in this step, and ignore_unused_parameters is off.",
        Fix("Let DeepSpeed ignore them, or freeze them.", ('"ignore_unused_parameters": true',)), _CONFIG),
    Row("log_deepspeed_operators_of_another_torch", "root", "library",
        r"(?P<what>PyTorch|CUDA|HIP) version mismatch! DeepSpeed ops were compiled",
        ("RuntimeError: PyTorch version mismatch! DeepSpeed ops were compiled and installed with a different version "
         "than what is being used at runtime. Please re-install DeepSpeed or switch torch versions.",),
        "DeepSpeed's operators were built for another {what} version",
        "They were compiled when DeepSpeed was installed (DS_BUILD_OPS=1), and torch was changed afterwards.",
        Fix("Reinstall DeepSpeed for this torch.",
            ("pip install --force-reinstall --no-cache-dir --no-build-isolation --no-deps deepspeed", "ds_report")),
        _BUILDER, summary="DeepSpeed's operators were built for another version of torch or CUDA."),
    Row("log_deepspeed_builds_without_gpu", "root", "library",
        r"DeepSpeed JIT builder for '(?P<op>\w+)' (?:found no CUDA devices|cannot probe CUDA device)",
        ("RuntimeError: DeepSpeed JIT builder for 'fused_adam' found no CUDA devices. Set TORCH_CUDA_ARCH_LIST or make "
         "GPUs visible.",),
        "DeepSpeed cannot compile {op}: it does not know the GPU's architecture",
        "No GPU is visible where it compiles (a login node, a forked process that cannot use CUDA).",
        Fix("Make the GPUs visible, or name the architecture.",
            ("nvidia-smi -L", "export TORCH_CUDA_ARCH_LIST=9.0  # H100; 8.0: A100")), _BUILDER,
        summary="DeepSpeed cannot compile an operator: it does not know the GPU's architecture."),
    Row("log_universal_checkpoint_missing", "root", "script",
        r"Invalid for universal checkpoint|latest_universal\S* does not exist",
        ("ValueError: Invalid for universal checkpoint: out/latest_universal does not exist",),
        "the run loads a universal checkpoint, but the checkpoint was not converted",
        "load_universal reads a folder that ds_to_universal writes from a ZeRO checkpoint.",
        Fix("Convert the checkpoint first, or turn load_universal off.",
            ("python -m deepspeed.checkpoint.ds_to_universal --input_folder CHECKPOINT/global_stepN --output_folder "
             "CHECKPOINT/global_stepN_universal",)), "https://www.deepspeed.ai/tutorials/universal-checkpointing/"),
    Row("log_zero_shards_missing", "root", "script",
        r"Expected \d+ of '\*_optim_states\.pt' under .* but found \d+ files|"
        r"zero checkpoint\S* paths? (?:is|are) missing|can't find \S*(?:optim_states|model_states)\S* files in|"
        r"Missing ZeRO(?:-3| optimizer) checkpoint",
        ("ValueError: Expected 8 of '*_optim_states.pt' under 'ckpt/global_step10' but found 4 files. Possibly due "
         "to an overwrite of an old checkpoint, or a checkpoint didn't get saved by one or more processes.",
         "[WARNING] The following zero checkpoints paths are missing: "
         "['out/zero_pp_rank_8_mp_rank_00_optim_states.pt']",
         "FileNotFoundError: can't find *_optim_states.pt files in directory 'ckpt/global_step10'"),
        "parts of the ZeRO checkpoint are missing here",
        "Each rank writes its own part. On several nodes without a shared disk, every node has only the parts of its "
        "own ranks. Or the save was interrupted, or another run wrote into the folder.",
        (Fix("Copy the parts of all nodes into one folder, and save to a shared disk next time.",
             ("ls CHECKPOINT/global_step*/ | sort", "df -h CHECKPOINT")),
         Fix("If a save was interrupted, use the checkpoint before it.", ("cat CHECKPOINT/latest",))), _TO_FP32),
    Row("log_checkpoint_tags_differ", "root", "script",
        r"checkpoint tag name '[^']*' is not consistent across all ranks|"
        r"Detected a disagreement on list (?:length|contents) between rank0",
        ("AssertionError: [rank=1] The checkpoint tag name 'step-10' is not consistent across all ranks.",
         "RuntimeError: Detected a disagreement on list contents between rank0 and rank3: list length: 2"),
        "the ranks passed different values to DeepSpeed, which must be equal on all ranks",
        "The name of a checkpoint, or the order of parameters, depends on the rank (time, random numbers, a loss in "
        "the name).",
        Fix("Compute it on rank 0, and broadcast it.", ("torch.distributed.broadcast_object_list(names, src=0)",)),
        _ENGINE),
    Row("log_deepspeed_slots_wrong", "root", "launcher",
        r"No slot '\d+' specified on host|Hostname '\S+' not found in hostfile|"
        r"Cannot specify num_nodes/gpus with include/exclude|include_str and exclude_str are mutually exclusive",
        ("ValueError: No slot '4' specified on host 'localhost'", "ValueError: Hostname 'node3' not found in hostfile",
         "ValueError: Cannot specify num_nodes/gpus with include/exclude"),
        "deepspeed's options select a host or GPU that does not exist, or contradict each other",
        "--include and --exclude name hosts of the host file and GPU numbers on them, starting with 0. They cannot be "
        "combined with --num_gpus or --num_nodes. CUDA_VISIBLE_DEVICES is not applied to them.",
        Fix("Compare the options with the host file and the GPUs.",
            ("deepspeed --include localhost:0,1,2,3 train.py", "nvidia-smi -L; cat HOSTFILE")), _RUNNER),
    Row("log_deepspeed_finds_no_gpu", "root", "cuda", r"Unable to proceed, no GPU resources available",
        ("RuntimeError: Unable to proceed, no GPU resources available",),
        "DeepSpeed's launcher finds no GPU",
        "torch sees none: a CPU build of torch, a driver problem, an empty CUDA_VISIBLE_DEVICES, or a node without a "
        "GPU.",
        Fix("Find out why torch sees no GPU.", ("mgpu doctor", "nvidia-smi",
                                                "python -c 'import torch; print(torch.cuda.device_count())'")),
        _RUNNER),
    Row("log_deepspeed_local_rank_differs", "root", "launcher",
        r"Mismatch in local rank setting, args\.local_rank|not sure how to proceed as we're seeing conflicting local "
        r"rank|MPI (?:rank|world size) \d+ does not match torch|DeepSpeed requires the LOCAL_RANK environment variable",
        ("AssertionError: Mismatch in local rank setting, args.local_rank=0 but env['LOCAL_RANK']=3.",
         "AssertionError: DeepSpeed requires the LOCAL_RANK environment variable, it is set by the deepspeed launcher",
         "AssertionError: MPI world size 8 does not match torch world size 1"),
        "the rank that DeepSpeed read from the environment is missing, or differs from the one of the script",
        "Two launchers are nested (mpirun or srun around deepspeed or torchrun), or the script was started by a "
        "launcher that sets other variables.",
        Fix("Use one launcher.", ("mgpu launch train.py", "deepspeed --num_gpus 8 train.py",
                                  "env | grep -E 'RANK|WORLD_SIZE|OMPI|SLURM_PROCID'")), _ENGINE),
    Row("log_deepspeed_not_initialized", "root", "script",
        r"DeepSpeed backend not set, please initialize it using init_process_group",
        ("AssertionError: DeepSpeed backend not set, please initialize it using init_process_group()",),
        "DeepSpeed is used before its process group exists",
        "A collective of deepspeed.comm ran before deepspeed.init_distributed() or initialize(), or in a process "
        "without ranks (a notebook, a conversion script).",
        Fix("Initialize it first.", ("deepspeed.init_distributed()",)),
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/comm/comm.py"),
    Row("log_pipeline_with_zero", "root", "launcher",
        r"ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism|Only train_batch\(\) is accessible in pipeline "
        r"mode|num_stages \(\d+\) must divide distributed world size",
        ("AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
         "deepspeed.runtime.pipe.engine.PipelineError: Only train_batch() is accessible in pipeline mode.",
         "RuntimeError: num_stages (3) must divide distributed world size (8)"),
        "DeepSpeed's pipeline parallelism does not fit the run",
        "It works with ZeRO stage 0 or 1 only, its number of stages must divide the number of ranks, and a step is "
        "train_batch(), not forward() and backward().",
        Fix("Use stage 1, a number of stages that divides the ranks, and engine.train_batch().",
            ('"zero_optimization": {{"stage": 1}}', "loss = engine.train_batch(data_iterator)")), _PIPE),
    Row("log_elastic_batch_impossible", "root", "launcher",
        r"World size \(\d+\) is not valid with the current list of valid GPU counts|"
        r"One or more batch related parameters were found in your ds_config",
        ("deepspeed.elasticity.config.ElasticityIncompatibleWorldSize: World size (6) is not valid with the current "
         "list of valid GPU counts: [1, 2, 4, 8]",),
        "DeepSpeed's elasticity does not allow this number of ranks or these batch settings",
        "It computes the batch sizes for a list of numbers of ranks. Batch sizes in the file contradict it.",
        Fix("Use one of the listed numbers of ranks, remove the batch sizes, or turn elasticity off.",
            ('"elasticity": {{"enabled": false}}',)), _ELASTIC),
    Row("log_integers_made_trainable", "root", "script",
        r"[Oo]nly Tensors of floating point(?: and complex)? dtype can require gradients",
        ("RuntimeError: only Tensors of floating point and complex dtype can require gradients",
         "RuntimeError: Only Tensors of floating point and complex dtype can require gradients"),
        "quantized (integer) weights were made trainable",
        "Weights in 4 or 8 bits are integers, which get no gradient. The script sets requires_grad on all parameters, "
        "or ZeRO-3 or FSDP wraps a quantized model that it cannot shard.",
        (Fix("Train LoRA adapters, and set requires_grad on those only.",
             ("model = prepare_model_for_kbit_training(model); model = get_peft_model(model, LoraConfig(...))",)),
         Fix("With FSDP or ZeRO-3, store 4-bit weights in a float dtype.",
             ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",))),
        "https://huggingface.co/docs/peft/accelerate/fsdp", cases=_plain_torch_cases.INTEGERS),
    Row("log_backward_not_of_engine", "root", "script",
        r"Direct calls to tensor\.backward\(\) are not supported|"
        r"'DeepSpeedZeroOptimizer\w*' object has no attribute '_?ipg_\w+'",
        ("RuntimeError: Direct calls to tensor.backward() are not supported in this configuration.",
         "AttributeError: 'DeepSpeedZeroOptimizer' object has no attribute 'ipg_index'"),
        "loss.backward() was called, but DeepSpeed's engine must run the backward pass",
        "The engine prepares its buffers, scales the loss and reduces gradients in its own backward().",
        Fix("Call the engine.", ("accelerator.backward(loss)", "engine.backward(loss)")),
        "https://github.com/deepspeedai/DeepSpeed/issues/6995"),
    Row("log_deepspeed_before_torch_25", "root", "library",
        r"'(?:dict|collections\.OrderedDict)' object has no attribute '_in_forward'",
        ("AttributeError: 'dict' object has no attribute '_in_forward'",),
        "the installed DeepSpeed is too old for this torch",
        "Since torch 2.5 a module keeps its parameters in a plain dict, on which older DeepSpeed releases cannot store "
        "its own attribute.",
        Fix("Upgrade DeepSpeed.", ("pip install 'deepspeed>=0.16.4'", "pip show torch deepspeed")),
        "https://github.com/deepspeedai/DeepSpeed/issues/6961"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
