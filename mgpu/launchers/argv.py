"""Which command and environment start the run? Built here as data, shown to the user, then executed unchanged."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from mgpu.errors import CANNOT_RUN, NOT_FOUND, MgpuError, reason
from mgpu.known_launchers import KNOWN, Launcher
from mgpu.planning.requirements import GPU_TYPES
from mgpu.process import interpreter, open_files
from mgpu.process.command import Command
from mgpu.readers.job_script.programs import launcher_of
from mgpu.snapshot import Config, Driver, Python

# Rendezvous backends of torchrun besides the launcher's own `static`. The launcher reads rdzv_backend and
# enable_cpu_affinity from its command line only and ignores them in a file (checks/config, config_key_never_applied).
_BACKENDS = ("c10d", "etcd", "etcd-v2")
_ACCELERATE, _TORCHRUN = KNOWN["accelerate"].modules[0], KNOWN["torchrun"].modules[0]
_PORT = 29500  # the launchers' default for several nodes if the config sets none
# FSDP1's sharding strategy. accelerate's wizard writes it under the name that only FSDP2 reads, so the launcher uses
# FULL_SHARD (accelerate 1.15: commands/config/cluster.py, utils/launch.py prepare_multi_gpu_env).
_SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
# Read by the ranks (accelerate 1.15, utils/dataclasses.py DeepSpeedPlugin), set by no launcher.
_NVME = {
    "offload_optimizer_nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
    "offload_param_nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
}
# Sections that a single process reads only from variables set by accelerate's launcher.
_OF_THE_LAUNCHER = ("dynamo_config", "fp8_config", "parallelism_config")


def exec_command(command: Command) -> NoReturn:
    """Replace this process with the launcher. Raises MgpuError (126, 127) if it cannot be started.

    Restores the signals that Python ignores (SIGPIPE, SIGXFSZ), because the launcher would inherit that.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    open_files.raise_limit()
    try:
        os.execvpe(command.argv[0], command.argv, command.environment())
    except FileNotFoundError as error:
        raise MgpuError(f"the launcher was not found: {reason(error)}", NOT_FOUND) from None
    except OSError as error:
        raise MgpuError(f"the launcher cannot be started: {reason(error)}", CANNOT_RUN) from None


def on_cpu(config: Config, driver: Driver) -> bool:
    """Whether the ranks run on the CPU: a config for GPUs on a machine without any NVIDIA GPU.

    If torch finds no GPU, accelerate would start N independent single-process runs; ACCELERATE_USE_CPU makes them one
    run over gloo (measured: accelerate 1.15, torch 2.13). Not if there is a GPU: then a torch that finds none is a
    fault.
    """
    return config.distributed_type in GPU_TYPES and not driver.any_gpu


def flags_of(config: Config) -> list[str]:
    """Return the flags for settings that the launcher reads from its command line only."""
    flags: list[str] = []
    if config.values.get("enable_cpu_affinity") is True and "--enable_cpu_affinity" not in config.launch_flags:
        flags.append("--enable_cpu_affinity")
    if config.values.get("rdzv_backend") in _BACKENDS:
        flags += ["--rdzv_backend", str(config.values["rdzv_backend"])]
    if config.distributed_type == "DEEPSPEED" and config.num_machines > 1:
        # Every node is started separately. With any other value accelerate starts the nodes itself, and writes its
        # whole environment, including tokens, to a world-readable ./.deepspeed_env (commands/launch.py).
        flags += ["--deepspeed_multinode_launcher", "standard"]
    if sharding := _sharding(config):
        flags += ["--fsdp_sharding_strategy", sharding]
    flags += config.launch_flags
    return flags


# The first accelerate whose launcher prefers a command-line value over a section of the file (1.5.2 does, 1.4 and older
# do not; measured with 1.0.1).
_COMMAND_LINE_WINS = (1, 5)


def writes_environment(config: Config, accelerate: str) -> str | None:
    """Return why accelerate would write its environment to ./.deepspeed_env; None if it would not."""
    launcher = _section(config, "deepspeed_config").get("deepspeed_multinode_launcher")
    several = config.distributed_type == "DEEPSPEED" and config.num_machines > 1
    if not several or launcher in (None, "standard"):
        return None
    if tuple(int(part) for part in re.findall(r"\d+", accelerate)[:2]) >= _COMMAND_LINE_WINS:
        return None
    return (
        f"{config.path}: deepspeed_multinode_launcher is {launcher}, and accelerate {accelerate} would write its whole "
        "environment, including tokens, to a world-readable ./.deepspeed_env.\n"
        "Set  deepspeed_multinode_launcher: standard  in the config"
    )


def _section(config: Config, name: str) -> Mapping[str, Any]:
    found = config.values.get(name)
    return found if isinstance(found, dict) else {}


def _sharding(config: Config) -> str:
    """Return FSDP1's strategy if it is under the key that only FSDP2 reads; else ""."""
    fsdp = {key.removeprefix("fsdp_"): value for key, value in _section(config, "fsdp_config").items()}
    if config.distributed_type != "FSDP" or str(fsdp.get("version", 1)) != "1" or "sharding_strategy" in fsdp:
        return ""
    wanted = fsdp.get("reshard_after_forward")
    return wanted if wanted in _SHARDING else ""


def _variables(config: Config, driver: Driver) -> dict[str, str]:
    """Return variables that the ranks read and accelerate's launcher does not set."""
    added = {"ACCELERATE_USE_CPU": "true"} if on_cpu(config, driver) else {}
    section = _section(config, "deepspeed_config") if config.distributed_type == "DEEPSPEED" else {}
    if not section.get("deepspeed_config_file"):  # which contains these paths itself
        added |= {name: section[key] for key, name in _NVME.items() if isinstance(section.get(key), str)}
    return added


def build(
    config: Config,
    driver: Driver,
    target: Sequence[str],
    *,
    python: Python,
    port: int | None = None,
    run_id: str = "",
    node: int | None = None,
    meet_s: float | None = None,
    more: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Command:
    """Return the command to launch `target` (a script and its arguments, or `-m module …`) with a config file.

    `port`: the rendezvous port, if the config does not set one. `node`: the number of this node.
    `meet_s`: how long the launcher waits for the other nodes (its default is 600 s, and more with each retry).
    `more`: flags of the launcher for this launch only. `env`: variables for this launch only.
    """
    flags: list[str] = [] if port is None else ["--main_process_port", str(port)]
    flags += flags_of(config)
    if node is not None and "--machine_rank" not in flags:
        flags += ["--machine_rank", str(node)]
    if meet_s is not None and "--rdzv_conf" not in flags:
        dynamic = config.values.get("rdzv_backend") in _BACKENDS
        flags += ["--rdzv_conf", f"timeout={meet_s:.0f}" + (f",join_timeout={meet_s:.0f}" if dynamic else "")]
    path = os.path.relpath(config.path) if Path(config.path).is_absolute() else config.path
    argv = [*_start(python, _ACCELERATE), "--config_file", path, *flags, *more, *_double_dashes(target)]
    added = {**_variables(config, driver), **(env or {})}
    return _make_command(argv, added, run_id, "accelerate", config.ranks_here or 1, target)


def torchrun(
    config: Config,
    target: Sequence[str],
    *,
    python: Python,
    port: int | None = None,
    run_id: str = "",
    node: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Command:
    """Return the torchrun command for the same ranks, for a script that does not use accelerate."""
    ranks = config.ranks_here or 1
    meet = port or config.port
    flags = ["--nproc-per-node", str(ranks)]
    if config.num_machines > 1:
        flags += ["--nnodes", str(config.num_machines), "--node-rank", str(node or 0)]
        address, meet = str(config.values.get("main_process_ip")), meet or _PORT
        backend = config.values.get("rdzv_backend")
        if backend in _BACKENDS:
            flags += ["--rdzv-backend", str(backend), "--rdzv-endpoint", f"{address}:{meet}", "--rdzv-id", "mgpu"]
        else:
            flags += ["--master-addr", address, "--master-port", str(meet)]
    elif meet:
        flags += ["--master-port", str(meet)]
    argv = [*_start(python, _TORCHRUN), *flags, *_double_dashes(target)]
    return _make_command(argv, {**_plain(config), **(env or {})}, run_id, "torchrun", ranks, target)


def single_process(
    config: Config,
    driver: Driver,
    target: Sequence[str],
    *,
    python: Python,
    run_id: str = "",
    env: Mapping[str, str] | None = None,
) -> Command:
    """Return the command for one process without a launcher, with the variables accelerate's launcher would set."""
    added = {"ACCELERATE_MIXED_PRECISION": config.precision} if config.precision != "no" else {}
    if config.on_cpu or on_cpu(config, driver):
        added["ACCELERATE_USE_CPU"] = "true"
    return _make_command(
        (python.executable, *target), {**_plain(config), **added, **(env or {})}, run_id, "python", 1, target
    )


def needs_accelerate(config: Config) -> bool:
    """Whether a single process needs accelerate's launcher to apply the config."""
    sharded = config.distributed_type not in ("MULTI_GPU", "MULTI_CPU", "NO")
    return sharded or config.precision == "fp8" or any(config.values.get(name) for name in _OF_THE_LAUNCHER)


def _plain(config: Config) -> dict[str, str]:
    """Return the settings that apply to any launcher as variables: GPUs, threads per rank."""
    added: dict[str, str] = {}
    ids = str(config.values.get("gpu_ids") or "all")
    if ids != "all":
        added["CUDA_VISIBLE_DEVICES"] = ids
    flags = config.launch_flags
    if "--num_cpu_threads_per_process" in flags:
        added["OMP_NUM_THREADS"] = flags[flags.index("--num_cpu_threads_per_process") + 1]
    return added


def _start(python: Python, module: str) -> list[str]:
    """Return the arguments that start a launcher without the current folder on its sys.path, like its console script.

    The ranks have the same sys.path as with the console script: they do not inherit the flag.
    """
    return interpreter.module(python.executable, python.version, module)


def by_accelerate(argv: Sequence[str]) -> bool:
    """Whether a command line starts accelerate's launcher, in any of its forms."""
    launcher = launcher_of(argv) if argv else None
    return launcher is not None and launcher[0] == "accelerate"


def _double_dashes(target: Sequence[str]) -> list[str]:
    """Double a script's first argument `--`: the launchers' parser (argparse) removes one there, and only there."""
    first = 2 if target[0] == "-m" else 1
    before, after = target[:first], target[first:]
    return [*before, *(["--"] if after[:1] in (["--"], ("--",)) else ()), *after]


def _make_command(
    argv: Sequence[str], env: Mapping[str, str], run_id: str, launcher: Launcher, ranks: int, target: Sequence[str]
) -> Command:
    name, *arguments = target[1:] if target[:1] == ["-m"] or target[:1] == ("-m",) else target
    return Command(tuple(argv), dict(env), run_id, launcher, ranks, name, tuple(arguments))
