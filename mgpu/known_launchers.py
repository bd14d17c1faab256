"""Which launchers does mgpu support, and how does it recognize each in a command line, a log and a process list?

One record per launcher. How `mgpu launch` starts one is in launchers/table.py, which needs a record for every launcher
that is `started` here.
"""

# Without `from __future__ import annotations`: NamedTuple would compile each one, 1 ms of every start.
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Launcher = Literal["accelerate", "torchrun", "deepspeed", "mgpu", "python", "command"]


class KnownLauncher(NamedTuple):
    """One launcher. Options are named without their dashes, with _ for every - inside."""

    started: bool = False  # `mgpu launch --launcher` offers it
    # On a command line. A * at the end of a word matches anything.
    commands: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # the same after `python -m`
    switches: frozenset[str] = frozenset()  # its options without a value
    config: tuple[str, ...] = ()  # its options for an accelerate config, with their dashes
    per_node: bool = False  # one launcher per node, which starts the ranks of its node
    address: str = ""  # its options for the rendezvous address,
    port: str = ""  # the port,
    endpoint: str = ""  # and both in one: HOST:PORT
    # Among processes
    starts_ranks: bool = True  # its ranks are separate processes, with RANK in their environment
    lone_rank: Literal["", "itself", "child"] = ""  # the process that is the rank, if a single rank has no RANK
    flattens: bool = True  # it exits with 1 whatever exit code its ranks had
    # In a log: the paths of its own frames in a traceback, and patterns of what it prints when a rank has failed.
    frames: tuple[str, ...] = ()
    says: tuple[str, ...] = ()


# fmt: off
KNOWN: Final[Mapping[Launcher, KnownLauncher]] = {
    "accelerate": KnownLauncher(
        started=True,
        commands=("accelerate launch", "accelerate-launch"),
        modules=("accelerate.commands.launch", "accelerate.commands.accelerate_cli launch", "accelerate launch"),
        # of accelerate 1.15 and older
        switches=frozenset({
            "help", "h", "quiet", "q", "cpu", "multi_gpu", "tpu", "mps", "use_mps_device", "use_xpu", "ipex",
            "enable_cpu_affinity", "dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation",
            "use_deepspeed", "use_fsdp", "use_parallelism_config", "use_megatron_lm", "same_network", "m", "module",
            "no_python", "tpu_cluster", "no_tpu_cluster", "tpu_use_sudo", "downcast_bf16", "debug", "fp16",
            "fp8_use_autocast_during_eval",
        }),
        config=("--config_file", "--config-file"),
        per_node=True,
        address="main_process_ip", port="main_process_port",
        lone_rank="child",
        frames=("accelerate/commands/",),
    ),
    "torchrun": KnownLauncher(
        started=True,
        commands=("torchrun", "torchrun-*"),
        modules=("torch.distributed.run", "torch.distributed.launch"),
        switches=frozenset({
            "standalone", "m", "module", "no_python", "run_path", "virtual_local_rank", "use_env", "help", "h",
        }),
        per_node=True,
        address="master_addr", port="master_port", endpoint="rdzv_endpoint",
        frames=("torch/distributed/run", "torch/distributed/launcher/"),
        says=("closing signal SIG", r"failed \(exitcode: "),
    ),
    "deepspeed": KnownLauncher(
        commands=("deepspeed", "deepspeed.pt"),
        modules=("deepspeed*",),
        switches=frozenset({
            "help", "h", "no_ssh", "force_multi", "save_pid", "no_local_rank", "no_python", "module", "m",
            "elastic_training", "use_env",
        }),
        address="master_addr", port="master_port",
        frames=("deepspeed/launcher/",),
    ),
    "mgpu": KnownLauncher(
        commands=("mgpu launch",),
        switches=frozenset({
            "slurm", "yes", "y", "dry_run", "n", "print_command", "module", "m", "exec", "detach", "triage",
            "no_triage", "preflight", "no_preflight",
        }),
        config=("-c", "--config"),
    ),
    "python": KnownLauncher(started=True, starts_ranks=False, lone_rank="itself", flattens=False),  # no launcher at all
    "command": KnownLauncher(lone_rank="itself", flattens=False),  # any other, which may start ranks or be one itself
}
# Training programs that start torchrun, accelerate or mp.spawn for their ranks, in a job script: launcher "command".
FRAMEWORKS: Final = (
    "swift sft", "swift pt", "swift rlhf", "megatron sft", "megatron pt", "megatron rlhf", "llamafactory-cli train",
    "lmf train", "axolotl train",
)
# The options of accelerate launch that replace distributed_type.
TYPE_OPTIONS: Final[Mapping[str, str]] = {
    "multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM",
}
# fmt: on
OTHERS: Final = tuple(known for name, known in KNOWN.items() if name != "mgpu" and known.commands)
PROGRAMS: Final = tuple(known.commands[0].partition(" ")[0] for known in OTHERS)
STARTED: Final[tuple[Launcher, ...]] = tuple(name for name, known in KNOWN.items() if known.started)
