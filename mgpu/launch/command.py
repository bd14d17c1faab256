"""Which command, with which environment, will start the run? Data: built here, shown, then run as it stands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mgpu.requirements import GPU_TYPES
from mgpu.snapshot import Config, Driver

# Rendezvous backends of torchrun besides the launcher's own `static`. The launcher takes rdzv_backend, as it does
# enable_cpu_affinity, from its command line only, and ignores them in a file (checks/config, config_key_never_applied).
_BACKENDS = ("c10d", "etcd", "etcd-v2")
MARK = "MGPU_RUN_ID"  # by this variable every process of a run is found again


@dataclass(frozen=True)
class Command:
    """What is executed, and what is put into its environment."""

    argv: tuple[str, ...]
    env_added: Mapping[str, str] = field(default_factory=dict)  # shown to the user; never silent
    run_id: str = ""

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The whole environment of the launcher."""
        mark = {MARK: self.run_id} if self.run_id else {}
        return {**base, **self.env_added, **mark}

    def shown(self) -> str:
        """The line as it pastes into a shell, with what mgpu adds in front."""
        added = [f"{name}={shlex.quote(value)}" for name, value in self.env_added.items()]
        return " ".join([*added, shlex.join(self.argv)])


def on_cpu(config: Config, driver: Driver) -> bool:
    """Whether the ranks run on the CPU: a config for GPUs on a machine that has no NVIDIA GPU at all.

    accelerate would start N trainings that do not know of each other when torch sees no GPU; ACCELERATE_USE_CPU makes
    them one run over gloo (measured: accelerate 1.15, torch 2.13). Never where there is a GPU: there a torch that sees
    none is a fault.
    """
    return config.distributed_type in GPU_TYPES and not driver.any_gpu


def flags_of(config: Config) -> list[str]:
    """What the config means and its file cannot say: for the launcher's command line."""
    flags: list[str] = []
    if config.values.get("enable_cpu_affinity") is True and "--enable_cpu_affinity" not in config.launch_flags:
        flags.append("--enable_cpu_affinity")
    if config.values.get("rdzv_backend") in _BACKENDS:
        flags += ["--rdzv_backend", str(config.values["rdzv_backend"])]
    flags += config.launch_flags
    return flags


def build(
    config: Config,
    driver: Driver,
    target: Sequence[str],
    *,
    python: str,
    port: int | None = None,
    run_id: str = "",
    node: int | None = None,
    meet_s: float | None = None,
) -> Command:
    """The launch of `target` (a script and its arguments, or `-m module …`) with a config file.

    `port`: where the ranks meet, when the config leaves it open. `node`: which of several machines this is.
    `meet_s`: how long the launcher waits for the others (its default is 600 s, and more with each retry).
    """
    flags: list[str] = [] if port is None else ["--main_process_port", str(port)]
    flags += flags_of(config)
    if node is not None and "--machine_rank" not in flags:
        flags += ["--machine_rank", str(node)]
    if meet_s is not None and "--rdzv_conf" not in flags:
        dynamic = config.values.get("rdzv_backend") in _BACKENDS
        flags += ["--rdzv_conf", f"timeout={meet_s:.0f}" + (f",join_timeout={meet_s:.0f}" if dynamic else "")]
    path = os.path.relpath(config.path) if Path(config.path).is_absolute() else config.path
    argv = (python, "-m", "accelerate.commands.launch", "--config_file", path, *flags, *target)
    added = {"ACCELERATE_USE_CPU": "true"} if on_cpu(config, driver) else {}
    return Command(argv, added, run_id)
