"""Which programs may start the ranks in the user's own launch line, and what do their options mean? One record each.

`mgpu launch -- COMMAND...` runs such a line unchanged. How each is recognized, and how its processes and its exit code
are read, is in known_launchers.py; accelerate's own precedence of options over its file is in accelerate_line.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mgpu.known_launchers import KNOWN

_IN_THE_LINE = "Name the launcher in the command, or omit -- and launch only the script"
_NO_CONFIG = "the command reads no accelerate config. To start a script with one: mgpu launch --config FILE SCRIPT"


@dataclass(frozen=True)
class Options:
    """The options of a launcher, as its parser (argparse) reads them. Names without dashes, with _ for -."""

    switches: frozenset[str] = frozenset()  # without a value
    values: frozenset[str] = frozenset()  # with one; only needed where an option may be abbreviated
    short: Mapping[str, str] = field(default_factory=dict)  # one letter -> the long name
    abbreviates: bool = False  # --nproc 2 for --nproc-per-node 2
    variables: str = ""  # the beginning of the variables that hold the defaults of the options


@dataclass(frozen=True)
class Meaning:
    """The options, or the environment variables, that hold a fact."""

    ranks: str = ""  # on each node
    nodes: str = ""
    node_rank: str = ""
    address: str = ""
    port: str = ""
    endpoint: str = ""  # HOST:PORT


@dataclass(frozen=True)
class Keys:
    """The keys of a framework's YAML that say how it trains."""

    batch: str
    batch_default: int
    accumulate: str
    output: str
    precision: tuple[tuple[str, str], ...]  # the first of these keys that is true, and what it means
    deepspeed: str = "deepspeed"  # a DeepSpeed file, or its contents
    fsdp: tuple[str, ...] = ("fsdp", "fsdp_config")
    suffixes: tuple[str, ...] = (".yaml", ".yml")  # of the files that its loader reads as YAML
    refuses_duplicates: bool = False  # its loader rejects a key that is there twice
    interpolates: bool = False  # its loader replaces ${...}


@dataclass(frozen=True)
class Framework:
    """A program with a YAML file that starts torchrun or accelerate for its ranks."""

    commands: tuple[str, ...]  # its console scripts
    modules: tuple[str, ...]  # the same after `python -m`
    trains: tuple[str, ...]  # its subcommands that start ranks
    keys: Keys
    runs: tuple[str, ...] = ()  # what it starts in each rank: a module or the end of a path, followed by the YAML
    may_run: tuple[str, ...] = ()  # the same, but other projects have files of this name too
    forces: tuple[str, ...] = ()  # variables that make it start ranks, also a single one
    prevents: tuple[str, ...] = ()  # variables with which it starts none


@dataclass(frozen=True)
class Program:
    """One program. `change`: an option of mgpu launch -> what to change in the line instead."""

    name: str
    change: Mapping[str, str]
    options: Options = Options()
    meaning: Meaning = Meaning()
    variables: Meaning = Meaning()  # environment variables that it reads
    framework: Framework | None = None
    source: str = ""


def _changes(
    gpus: str, port: str, node: str, module: str, config: str = _NO_CONFIG, launcher: str = _IN_THE_LINE
) -> Mapping[str, str]:
    texts = (gpus, port, node, module, config, launcher)
    return dict(zip(("--gpus", "--port", "--node-rank", "-m", "--config", "--launcher"), texts, strict=True))


_HIDE = "select GPUs with CUDA_VISIBLE_DEVICES=0,1 before mgpu"
# fmt: off
_TORCHRUN = Program(
    "torchrun",
    _changes(
        f"Set --nproc-per-node in the command, and {_HIDE}", "Set --master-port in the command",
        "Set --node-rank in the command", "Use torchrun's own -m in the command: torchrun -m MODULE",
    ),
    # torch 2.13, torch/distributed/run.py get_args_parser; a test compares them with the installed one
    Options(
        KNOWN["torchrun"].switches,
        frozenset({
            "nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "max_restarts",
            "monitor_interval", "start_method", "event_log_handler", "role", "log_dir", "redirects", "tee",
            "local_ranks_filter", "duplicate_stdout_filters", "duplicate_stderr_filters", "node_rank", "master_addr",
            "master_port", "local_addr", "logs_specs", "numa_binding", "signals_to_handle", "shutdown_timeout",
        }),
        {"m": "module", "r": "redirects", "t": "tee", "h": "help"},
        abbreviates=True,
        variables="PET_",
    ),
    Meaning("nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "rdzv_endpoint"),
    source="https://docs.pytorch.org/docs/stable/elastic/run.html",
)
_ACCELERATE = Program(
    "accelerate",
    _changes(
        "Set --num_processes in the command, and --gpu_ids 0,1 to select GPUs",
        "Set --main_process_port in the command", "Set --machine_rank in the command",
        "Use accelerate's own -m in the command: accelerate launch -m MODULE",
        "Set --config_file FILE in the command",
    ),
    Options(KNOWN["accelerate"].switches, short={"m": "module", "q": "quiet", "h": "help", "r": "redirects",
                                                 "t": "tee"}),
    Meaning("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port"),
    source="https://huggingface.co/docs/accelerate/package_reference/cli",
)
_DEEPSPEED = Program(
    "deepspeed",
    _changes(
        "Set --num_gpus in the command, or --include localhost:0,1 to select GPUs", "Set --master_port in the command",
        "Set --node_rank with --no_ssh in the command", "Use deepspeed's own --module in the command",
    ),
    # deepspeed 0.19, launcher/runner.py parse_args; a test compares them with the installed one
    Options(
        frozenset({
            "help", "module", "no_python", "no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid",
            "bind_cores_to_rank", "quiet",
        }),
        frozenset({
            "hostfile", "include", "exclude", "num_nodes", "num_gpus", "num_accelerators", "master_port",
            "master_addr", "node_rank", "launcher", "launcher_args", "enable_each_rank_log", "autotuning",
            "bind_core_list", "ssh_port", "venv_script", "log_level",
        }),
        {"H": "hostfile", "i": "include", "e": "exclude", "q": "quiet", "h": "help"},
        abbreviates=True,
    ),
    Meaning("num_gpus", "num_nodes", "node_rank", "master_addr", "master_port"),
    source="https://www.deepspeed.ai/getting-started/#launching-deepspeed-training",
)
_LLAMAFACTORY = Program(
    "llamafactory-cli",
    _changes(
        f"Set NPROC_PER_NODE before mgpu, and {_HIDE}", "Set MASTER_PORT before mgpu", "Set NODE_RANK before mgpu",
        "Use python -m llamafactory.cli in the command",
    ),
    variables=Meaning("NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
    # LLaMA-Factory ff6d4d1 (2026-08): src/llamafactory/launcher.py, hparams/parser.py read_args (OmegaConf)
    framework=Framework(
        commands=("llamafactory-cli", "lmf"),
        modules=("llamafactory.cli",),
        trains=("train",),
        keys=Keys(
            "per_device_train_batch_size", 8, "gradient_accumulation_steps", "output_dir",
            (("pure_bf16", "bf16 weights"), ("bf16", "bf16"), ("fp16", "fp16")),
            refuses_duplicates=True, interpolates=True,
        ),
        runs=("llamafactory/launcher.py", "llamafactory.launcher"),
        may_run=("src/train.py",),
        forces=("FORCE_TORCHRUN", "USE_MCA", "USE_MEGATRON_BRIDGE"),
        prevents=("USE_RAY", "USE_KT"),
    ),
    source="https://github.com/hiyouga/LLaMA-Factory/blob/main/src/llamafactory/launcher.py",
)
_AXOLOTL = Program(
    "axolotl",
    _changes(
        f"Add -- --num_processes N (with --launcher torchrun: -- --nproc_per_node N) to the command, and {_HIDE}",
        "Add -- --main_process_port N (with --launcher torchrun: -- --master_port N) to the command",
        "Add -- --machine_rank K (with --launcher torchrun: -- --node_rank K) to the command",
        "Use python -m axolotl.cli.main in the command",
        launcher="Use axolotl's own --launcher in the command",
    ),
    Options(frozenset({"shard", "no_shard", "debug", "no_debug", "help"})),
    # axolotl 067b021 (2026-07): cli/main.py, cli/utils/train.py, utils/schemas/config.py and training.py
    framework=Framework(
        commands=("axolotl",),
        modules=("axolotl.cli.main", "axolotl"),
        trains=("train", "evaluate", "inference", "merge-sharded-fsdp-weights"),
        keys=Keys(
            "micro_batch_size", 1, "gradient_accumulation_steps", "output_dir",
            (("fp8", "fp8"), ("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"), ("float16", "fp16")),
        ),
        runs=("axolotl.cli.train",),
    ),
    source="https://docs.axolotl.ai/docs/multi-gpu.html",
)
_OF_ONE_PROCESS = _changes(
    "Select GPUs with CUDA_VISIBLE_DEVICES=0,1 before mgpu", "Set MASTER_PORT before mgpu if the program reads it",
    "Set it where the program reads it", "Write python -m MODULE in the command",
)
PYTHON: Final = Program("python", _OF_ONE_PROCESS)
OTHER: Final = Program("", _OF_ONE_PROCESS)
# fmt: on
LAUNCHERS: Final[Mapping[str, Program]] = {one.name: one for one in (_TORCHRUN, _ACCELERATE, _DEEPSPEED)}
FRAMEWORKS: Final = (_LLAMAFACTORY, _AXOLOTL)
