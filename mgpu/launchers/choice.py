"""Which script or module is to be run, and which launcher fits it?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.known_launchers import Launcher
from mgpu.launchers.argv import needs_accelerate
from mgpu.launchers.gpu_selection import Fewer
from mgpu.launchers.table import WAYS
from mgpu.snapshot import Config, Script
from mgpu.text import visible

# What a script does that speaks for itself, in the words of the summary.
_BY_ITSELF = {
    "ddp": "sets up torch.distributed itself",
    "lightning": "trains with Lightning, which finds its ranks itself",
    "deepspeed": "calls DeepSpeed itself",
}
_STRATEGIES = {"FSDP": "FSDP", "DEEPSPEED": "DeepSpeed", "MEGATRON_LM": "Megatron-LM"}
_SECTIONS = {"dynamo_config": "torch.compile", "fp8_config": "fp8", "parallelism_config": "parallelism_config"}


@dataclass(frozen=True)
class Choice:
    """The launcher, and why it is not accelerate's, when it is not."""

    launcher: Launcher
    why: str = ""
    unheard: tuple[str, ...] = ()  # what the config says and this script will not learn

    def forbidden(self, few: Fewer) -> str | None:
        """Why the launcher must not start this config."""
        find = WAYS[self.launcher].forbidden
        return find(few.config, (few.snapshot.packages or {}).get("accelerate", "")) if find else None


def named(words: Sequence[str], *, module: bool = False) -> list[str]:
    """What the launcher is to run: a script and its arguments, or -m and a module."""
    target = list(words)
    if target[:1] == ["--"]:
        target = target[1:]
    if not target or not target[0]:
        raise MgpuError("which script?  mgpu launch [OPTIONS] SCRIPT [ARGS...]", errors.USAGE)
    if module:
        return ["-m", *target]
    if not Path(target[0]).is_file():
        raise MgpuError(_none_such(target[0]), errors.NOT_FOUND)
    if not os.access(target[0], os.R_OK):  # Python would end with 2, as for wrong arguments
        raise MgpuError(f"the script {target[0]} may not be read by you", errors.CANNOT_RUN)
    return target


_SUFFIXES = frozenset({".py", ".sbatch", ".slurm", ".sh"})  # with --slurm a job script


def _none_such(name: str) -> str:
    import difflib

    if name.startswith("-"):
        return f"launch has no option {name} (options of mgpu come before the script)"
    if Path(name).is_dir():
        return f"{name} is a folder, not a script"
    folder = Path(name).parent
    try:
        scripts = sorted(p.name for p in folder.iterdir() if p.suffix in _SUFFIXES)
    except OSError:
        scripts = []
    near = difflib.get_close_matches(Path(name).name, scripts, n=1)
    return f"no script {name}.{f' Did you mean {visible(folder / near[0])}?' if near else ''}"


def read(target: Sequence[str]) -> Script | None:
    """The script's syntax tree as a fact; None for a module, and for what is no Python that can be read."""
    if target[0] == "-m":
        return None
    from mgpu import secrets_masking
    from mgpu.readers.training_script import read as training_script_read

    try:
        arguments = secrets_masking.masked_argv(target[1:])
        return training_script_read.read(
            Path(target[0]), arguments, most_bytes=training_script_read.MOST_BYTES_AT_LAUNCH
        )
    except (MgpuError, OSError, RecursionError, MemoryError):
        return None


def choose(config: Config, script: Script | None, wanted: str = "auto", *, gpus: str = "") -> Choice:
    """The launcher for this script with this config; `wanted` and `gpus` are --launcher and --gpus.

    Raises MgpuError (2) for one that cannot start so many ranks.
    """
    several = (config.num_processes or 1) > 1
    name = Path(script.path).name if script else "the script"
    speaks = script.speaks if script else None
    for launcher, way in WAYS.items():
        if wanted != launcher:
            continue
        if way.one_process and several:
            words = f"starts one process; {config.path} is for {config.num_processes}: add --gpus 1"
            raise MgpuError(f"--launcher {launcher} {words}", errors.USAGE)
        return Choice(launcher, f"--launcher {launcher}", _unheard(config, speaks, launcher))
    if speaks in _BY_ITSELF:
        return Choice("torchrun", f"{name} {_BY_ITSELF[speaks]}", _unheard(config, speaks, "torchrun"))
    if gpus and not several and not needs_accelerate(config):
        return Choice("python", "one process needs no launcher")
    return Choice("accelerate")


def _unheard(config: Config, speaks: str | None, launcher: Launcher) -> tuple[str, ...]:
    """What only a script with an Accelerator (or a Trainer, which has one) learns from the config, through variables
    that only accelerate's launcher sets."""
    tells = WAYS[launcher].tells
    if tells == "config" and speaks not in _BY_ITSELF:
        return ()
    learns_precision = tells == "precision" and speaks in ("accelerate", "trainer", None)
    lost = [_STRATEGIES[config.distributed_type]] if config.distributed_type in _STRATEGIES else []
    if config.precision != "no" and not learns_precision:
        lost.append(f"mixed_precision {config.precision}")
    return (*lost, *(words for key, words in _SECTIONS.items() if config.values.get(key)))
