"""Which NCCL variables are set, to what, and where? And how are they taken away?

The only place that reads the lines of NCCL's files, by its own rule (src/misc/param.cc, setEnvFile): the name is
everything before the first `=`, the value everything behind it, blanks included; what is set already is not set again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Nccl, Plan, Slurm

from ._grammars import Version

NCCL_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
HERE = "the environment"


@dataclass(frozen=True)
class Setting:
    """A variable, its value, and where it is set."""

    name: str
    value: str
    origin: str = HERE

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def of_environment(env: Mapping[str, str]) -> dict[str, Setting]:
    """The variables of the environment."""
    return {name: Setting(name, value) for name, value in env.items()}


def of_files(nccl: Nccl) -> dict[str, Setting]:
    """What NCCL's files set; the first line that names a variable wins."""
    found: dict[str, Setting] = {}
    for path, lines in nccl.config_files.items():
        for line in lines:
            name, _, value = line.partition("=")
            found.setdefault(name, Setting(name, value, path))
    return found


def settings(env: Mapping[str, str], nccl: Nccl) -> dict[str, Setting]:
    """Every NCCL variable in effect: the environment wins over the files."""
    every = of_files(nccl) | of_environment(env)
    return {name: setting for name, setting in every.items() if name.startswith("NCCL_")}


def value_of(name: str, env: Mapping[str, str], nccl: Nccl) -> str | None:
    """The value in effect; None where the variable is not set, or empty, which NCCL takes for not set."""
    setting = settings(env, nccl).get(name)
    return setting.value if setting and setting.value else None


def unset(found: Iterable[Setting]) -> tuple[str, ...]:
    """What takes settings away, where each of them stands."""
    found = list(found)
    names = [setting.name for setting in found if setting.origin == HERE]
    files = sorted({setting.origin for setting in found} - {HERE})
    commands = (shell("unset {:name}", names),) if names else ()
    return commands + tuple(shell("# remove the line from {:path}", path) for path in files)


def origins(found: Iterable[Setting]) -> dict[str, str]:
    """For the evidence: each variable, its value and where it is set."""
    return {setting.name: f"{setting.value} ({setting.origin})" for setting in found}


def loaded(nccl: Nccl) -> Version:
    """The version of the NCCL a process would load; () where it is not known."""
    return numbers(nccl.libraries[0].version) if nccl.libraries else ()


def nodes_of(plan: Plan, slurm: Slurm) -> int:
    """How many machines the run spans, as far as anybody said."""
    return max(plan.nodes, slurm.nodes or 1)
