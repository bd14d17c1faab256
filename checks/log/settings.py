"""Did accelerate reject the config or the command line?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_LAUNCH = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py"
_UTILS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py"
_CLASSES = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py"
_ARGS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/config/config_args.py"
_PARALLEL = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/parallelism_config.py"
_VALIDATE = "mgpu configure --validate accelerate.yaml"

# fmt: off
ROWS = (
    Row("log_processes_not_a_number", "root", "launcher",
        r"argument --num_processes(?:/--num-processes)?: invalid int value: (?P<value>.+)",
        ("accelerate <command> [<args>] launch: error: argument --num_processes/--num-processes: invalid int value: "
         "'auto'", "accelerate <command> [<args>] launch: error: argument --num_processes: invalid int value: ''"),
        "--num_processes is {value}, but must be a number",
        "Only torchrun accepts 'auto'. An empty value comes from an unset variable.",
        Fix("Pass the total number of ranks on all nodes.", ("accelerate launch --num_processes 8 ...",)), _LAUNCH,
        summary="--num_processes is not a number."),
    Row("log_modes_exclude_each_other", "root", "launcher", r"can only use one of `--cpu`, `--multi_gpu`",
        ("ValueError: You can only use one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, `--use_fsdp` at a "
         "time.",),
        "accelerate was given two mutually exclusive training modes",
        "Two command-line flags are mutually exclusive.", Fix("Keep one of them.", (_VALIDATE,)), _LAUNCH),
    Row("log_processes_left_open", "root", "launcher", r"manually pass in `--num_processes` using this config yaml",
        ("ValueError: You need to manually pass in `--num_processes` using this config yaml.",),
        "the config does not set the number of processes (-1)",
        "It is a template. accelerate requires the number on the command line.",
        Fix("Pass the number.", ("accelerate launch --num_processes 8 ...", _VALIDATE)), _LAUNCH),
    Row("log_multi_gpu_with_one", "root", "launcher",
        r"but only using 1 GPU on a single machine|at least 2 processes to use `--multi_gpu`|"
        r"Less than two GPU ids were configured",
        ("ValueError: Specified distributed type MULTI_GPU but only using 1 GPU on a single machine.",
         "ValueError: You need to use at least 2 processes to use `--multi_gpu`.",
         "ValueError: Less than two GPU ids were configured and tried to run on multiple GPUs."),
        "the config sets MULTI_GPU but starts a single process",
        "accelerate's wizard suggests 1 GPU on every machine.",
        Fix("Set the number of GPUs.", ("mgpu configure", "accelerate launch --num_processes 8 ...")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/config/cluster.py"),
    Row("log_config_keys_unknown", "root", "launcher", r"had unknown keys \((?P<keys>\[[^\]]*\])",
        ("ValueError: The config file at u.yaml had unknown keys (['foo_bar']), please try upgrading your `accelerate` "
         "version",),
        "the config has keys that this version of accelerate does not support: {keys}",
        "It was written by another version, or by hand.",
        Fix("Upgrade accelerate, or remove the keys.", (_VALIDATE, "pip install --upgrade accelerate")), _ARGS,
        summary="The config has keys that this version of accelerate does not support."),
    Row("log_config_type_missing", "root", "launcher", r"`distributed_type` must be specified in the config file",
        ("ValueError: A `distributed_type` must be specified in the config file.",),
        "the config does not set distributed_type", "It is not an accelerate config, or is incomplete.",
        Fix("Create a complete one.", ("mgpu configure", _VALIDATE)), _ARGS),
    Row("log_rtx40_needs_switches", "root", "launcher", r"RTX 4000 series doesn't support",
        ("NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB.",),
        "accelerate rejects RTX 40 cards with this driver unless P2P and InfiniBand are turned off",
        "Drivers before 550.40.07 report direct access that these cards do not have. NCCL then hangs.",
        (Fix("Update the driver.", ("mgpu doctor --only rtx40_peer_access_misreported",), who="admin"),
         Fix("Or turn both off.", ("export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1",))),
        "https://github.com/NVIDIA/nccl-tests/issues/117"),
    Row("log_parallel_sizes_wrong", "root", "launcher",
        r"ParallelismConfig total_size \((?P<size>\d+)\) does not match num_processes \((?P<ranks>\d+)\)",
        ("ValueError: ParallelismConfig total_size (8) does not match num_processes (4). Please adjust "
         "dp_replicate_size",),
        "the product of the parallel sizes is {size}, but {ranks} ranks are started",
        "dp_replicate x dp_shard x tp x cp x sp must equal the number of ranks.",
        Fix("Change one of them.", (_VALIDATE,)), _PARALLEL,
        summary="The product of the parallel sizes differs from the number of ranks."),
    Row("log_parallel_needs_fsdp", "root", "launcher",
        r"cannot use `--use_parallelism_config` without `--use_fsdp`|CP\) and Sequence Parallelism \(SP\) are mutually|"
        r"cannot be used with pure data parallelism|no dimension for FSDP to shard across|"
        r"ParallelismConfig is only compatible",
        ("ValueError: You cannot use `--use_parallelism_config` without `--use_fsdp` and `--fsdp_version=2`. ",
         "ValueError: Context Parallelism (CP) and Sequence Parallelism (SP) are mutually exclusive. Got cp_size=2",
         "ValueError: Tensor/Context parallelism (tp/cp_size > 1) cannot be used with pure data parallelism"),
        "the config combines incompatible kinds of parallelism",
        "Tensor and context parallelism require FSDP 2.",
        Fix("Check which combinations are valid.", (_VALIDATE, "mgpu configure")),
        _PARALLEL),
    Row("log_fsdp_loading_needs_sync", "root", "launcher", r"When using `--fsdp_cpu_ram_efficient_loading` set"
        r'|`sync_module_states` must be `\"True\"` if `cpu_ram|Set the `sync_module_states` flag to `True` so that',
        ("ValueError: When using `--fsdp_cpu_ram_efficient_loading` set `--fsdp_sync_module_states` to `True`",
         "ValueError: `sync_module_states` must be `\"True\"` if `cpu_ram_efficient_loading` is `\"True\"`",
         "ValueError: Set the `sync_module_states` flag to `True` so that model states are synced across processes "
         "when initializing FSDP object"),
        "only rank 0 loads the weights, and they are not sent to the other ranks",
        "fsdp_cpu_ram_efficient_loading requires fsdp_sync_module_states.",
        Fix("Turn it on.", ("accelerate launch --fsdp_sync_module_states true ...", _VALIDATE)), _UTILS),
    Row("log_option_value_unknown", "root", "launcher",
        r"Unknown (?P<setting>mixed_precision mode|dynamo backend): (?P<value>[\w-]+(?:\.[\w-]+)*)",
        ("ValueError: Unknown mixed_precision mode: bf17. Choose between ['no', 'fp8', 'fp16', 'bf16'].",
         "ValueError: Unknown dynamo backend: FAST. Choose between ['NO', 'EAGER', 'INDUCTOR']."),
        "accelerate does not know the {setting} {value}",
        "The message lists the accepted values. Another one is a typo, a name of another library (Lightning's "
        "16-mixed, torch's float16), or a value of a newer accelerate.",
        (Fix("Correct it where it is set: in the script's call of Accelerator(), or in the config.",
             ("grep -rn --include='*.py' --include='*.yaml' -E 'mixed_precision|dynamo_backend' .",)),
         Fix("Validate the config.", (_VALIDATE,))), _UTILS,
        summary="accelerate does not know the precision or the compile backend that is set."),
    Row("log_fp8_library_missing", "root", "launcher",
        r"FP8 is not available on this machine|Using `fp8` precision requires|"
        r"`fp8` (?:mixed )?precision requires",
        ("RuntimeError: FP8 is not available on this machine. Please ensure that either Transformer Engine, MSAMP or "
         "torchao is installed.", "ValueError: Using `fp8` precision requires `transformer_engine` or `MS-AMP` to be "
         "installed."),
        "the config uses fp8, but no library that supports it is installed",
        "accelerate needs Transformer Engine, torchao or MS-AMP for fp8.",
        Fix("Install one, or use bf16.", ("pip install torchao", "accelerate launch --mixed_precision bf16 ...",
                                          "mgpu doctor --only config_fp8_library_missing")), _UTILS),
    Row("log_kernel_too_old", "wrapper", "launcher",
        r"Detected kernel version (?P<version>\S+), which is below the recommended minimum",
        ("Detected kernel version 4.14.105, which is below the recommended minimum of 5.5.0; this can cause the "
         "process to hang.",),
        "the Linux kernel {version} is older than accelerate recommends",
        "With older kernels, loader workers can hang when there are several ranks. This is a cause only if the run "
        "hung.",
        Fix("Update the kernel.", ("mgpu doctor --only kernel_older_than_advised",), who="admin"),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/other.py",
        summary="The Linux kernel is older than accelerate recommends.", tags=("before_ranks", "can_hang")),
    Row("log_module_and_no_python", "root", "launcher", r"--module and --no_python cannot be used together",
        ("ValueError: --module and --no_python cannot be used together",),
        "both --module and --no_python were passed", "A module always runs in Python.", Fix("Remove one of them.", ()),
        _UTILS),
    Row("log_megatron_missing", "root", "launcher", r"Megatron-LM is not (?:installed|available)",
        ("ImportError: Megatron-LM is not installed. please build it from source.",),
        "the config uses Megatron-LM, which is not installed", "It is not available on PyPI.",
        Fix("Install it, or choose FSDP.", ("mgpu configure",)), _CLASSES),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
