"""Which script or module is launched, and which launcher fits it?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgpu import errors, file_reading
from mgpu.command_line import from_words, shell
from mgpu.errors import MgpuError
from mgpu.known_launchers import PROGRAMS, Launcher
from mgpu.launchers.argv import needs_accelerate
from mgpu.launchers.gpu_selection import Selection
from mgpu.launchers.own_ranks import starts_its_own_ranks
from mgpu.launchers.table import WAYS
from mgpu.secrets_masking import masked_argv
from mgpu.snapshot import Config, Script
from mgpu.text import visible

# Why a script needs torchrun, for the summary.
_BY_ITSELF = {
    "ddp": "sets up torch.distributed itself",
    "lightning": "trains with Lightning, which sets up its ranks itself",
    "deepspeed": "calls DeepSpeed itself",
}
_STRATEGIES = {"FSDP": "FSDP", "DEEPSPEED": "DeepSpeed", "MEGATRON_LM": "Megatron-LM"}
_SECTIONS = {"dynamo_config": "torch.compile", "fp8_config": "fp8", "parallelism_config": "parallelism_config"}


@dataclass(frozen=True)
class Choice:
    """The launcher, and why it was chosen instead of accelerate."""

    launcher: Launcher
    why: str = ""
    lost_settings: tuple[str, ...] = ()  # settings of the config that this script will not receive
    own_ranks: bool = False  # the script starts its ranks itself

    def forbidden(self, few: Selection) -> str | None:
        """Return why the launcher must not start this config; None if it may."""
        find = WAYS[self.launcher].forbidden
        return find(few.config, (few.snapshot.packages or {}).get("accelerate", "")) if find else None


def resolve_target(words: Sequence[str], *, module: bool = False) -> list[str]:
    """Return what to run: a script and its arguments, or -m and a module. Raises MgpuError (2, 126, 127)."""
    target = list(words)
    if target[:1] == ["--"]:
        target = target[1:]
    if not target or not target[0]:
        raise MgpuError("missing script. Usage: mgpu launch [OPTIONS] SCRIPT [ARGS...]", errors.USAGE)
    if module:
        return ["-m", *target]
    if not Path(target[0]).is_file():
        code = errors.USAGE if target[0].startswith("-") or target[0] in _PROGRAMS else errors.NOT_FOUND
        raise MgpuError(_none_such(target), code)
    if why := _shell_script(target[0]):
        raise MgpuError(why, errors.CANNOT_RUN)
    if not os.access(target[0], os.R_OK):  # Python would exit with 2, as for wrong arguments
        raise MgpuError(f"no permission to read the script {target[0]}", errors.CANNOT_RUN)
    return target


_PROGRAMS = frozenset(PROGRAMS)
_SUFFIXES = frozenset({".py", ".sbatch", ".slurm", ".sh"})  # with --slurm a job script


def _shell_script(name: str) -> str | None:
    """Return why a shell script is not started: Python would fail on it in every rank."""
    from mgpu.readers.job_script.programs import shell_of
    from mgpu.readers.training_script import python_source

    try:
        first = file_reading.read_start(name, most=100).partition(b"\n")[0]
        shebang = first.startswith(b"#!") and shell_of(first.decode("utf-8", "replace"))
        raw = python_source.read_bytes(Path(name)) if shebang else ""
    except OSError:
        return None
    if isinstance(raw, bytes) and python_source.is_python_despite_shebang(Path(name), raw):
        return None
    if not shebang and (Path(name).suffix not in (".sh", ".sbatch", ".slurm") or b"python" in first):
        return None
    return (
        f"{name} is a shell script, and mgpu launch starts Python. Launch the Python script that it runs, "
        "or submit it as a Slurm job with --slurm"
    )


def _none_such(target: Sequence[str]) -> str:
    import difflib

    name = target[0]
    if name.startswith("-"):
        return f"unknown option {name} (options of mgpu launch go before the script)"
    if name in _PROGRAMS:
        script = next((word for word in target[1:] if word.endswith(".py")), None)
        own = shell("mgpu launch {:path}", script) if script else ""
        why = f"{name} is a launcher, and mgpu launch starts one itself. Leave it out"
        return (f"{why}: {own}" if own else why) + _as_it_is(target)
    if Path(name).is_dir():
        return f"{name} is a folder, not a script"
    folder = Path(name).parent
    try:
        scripts = sorted(p.name for p in folder.iterdir() if p.suffix in _SUFFIXES)
    except OSError:
        scripts = []
    by_stem = {Path(script).stem: script for script in reversed(scripts)}  # the suffix makes no two names alike
    near = [by_stem[stem] for stem in difflib.get_close_matches(Path(name).stem, by_stem, n=1)]
    if not near and shutil.which(name):
        return f"no script {name}{_as_it_is(target)}"
    return f"no script {name}.{f' Did you mean {visible(folder / near[0])}?' if near else ''}"


def _as_it_is(target: Sequence[str]) -> str:
    """Return how to run the words as a command; the rest of a sentence."""
    line = from_words(["mgpu", "launch", "--", *masked_argv(target)])
    return f".\nTo run the command unchanged, watched by mgpu, put -- before it:  {line}" if line else ""


def read(target: Sequence[str]) -> Script | None:
    """Return the facts from the source of a script or module; None if it is not found or not valid Python."""
    from mgpu.launchers.module_file import find_module_file
    from mgpu.probes.libraries import find_shadowed
    from mgpu.readers.training_script import read as training_script_read

    path, given = (find_module_file(target[1]), target[2:]) if target[0] == "-m" else (Path(target[0]), target[1:])
    if path is None:
        return None
    try:
        arguments = masked_argv(given)
        script = training_script_read.read(path, arguments, most_bytes=training_script_read.MOST_BYTES_AT_LAUNCH)
        script = replace(script, command_known=True)
        if target[0] != "-m":
            return script
        return replace(script, shadowed=find_shadowed(os.getcwd()))  # -m puts this folder first, not the module's
    except (MgpuError, OSError, RecursionError, MemoryError):
        return None


def choose(config: Config, script: Script | None, wanted: str = "auto", *, gpus: str = "") -> Choice:
    """Return the launcher for this script and config; `wanted` and `gpus` are --launcher and --gpus.

    Raises MgpuError (2) if --launcher cannot start that many ranks.
    """
    several = (config.num_processes or 1) > 1
    name = Path(script.path).name if script else "the script"
    speaks = script.speaks if script else None
    own = starts_its_own_ranks(script) if config.num_machines == 1 else ""
    if own and wanted in ("auto", "python"):
        return Choice("python", f"{name} starts its ranks itself ({own})", _unheard(config, speaks, "python"), True)
    for launcher, way in WAYS.items():
        if wanted != launcher:
            continue
        if way.one_process and several:
            why = f"starts one process, but {config.path} is for {config.num_processes}. Add --gpus 1"
            raise MgpuError(f"--launcher {launcher} {why}", errors.USAGE)
        return Choice(launcher, f"--launcher {launcher}", _unheard(config, speaks, launcher))
    if speaks in _BY_ITSELF:
        return Choice("torchrun", f"{name} {_BY_ITSELF[speaks]}", _unheard(config, speaks, "torchrun"))
    if gpus and not several and not needs_accelerate(config):
        return Choice("python", "one process needs no launcher")
    return Choice("accelerate")


def _unheard(config: Config, speaks: str | None, launcher: Launcher) -> tuple[str, ...]:
    """Return the settings that the script will not receive with this launcher.

    They reach a script with an Accelerator (or a Trainer, which has one) through variables of accelerate's launcher.
    """
    passes = WAYS[launcher].passes
    if passes == "config" and speaks not in _BY_ITSELF:
        return ()
    learns_precision = passes == "precision" and speaks in ("accelerate", "trainer", None)
    lost = [_STRATEGIES[config.distributed_type]] if config.distributed_type in _STRATEGIES else []
    if config.precision != "no" and not learns_precision:
        lost.append(f"mixed_precision {config.precision}")
    return (*lost, *(name for key, name in _SECTIONS.items() if config.values.get(key)))
