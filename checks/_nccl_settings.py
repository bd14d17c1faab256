"""Which NCCL variables are set, to which values and where, and how are they unset?

The only module that parses NCCL's config files, with NCCL's own rule (src/misc/param.cc, setEnvFile): the name is
everything before the first `=`, the value everything after it, spaces included. Variables already set are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mgpu.check import Evidence, Fix, Problem, Value
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
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


def environment_settings(env: Mapping[str, str]) -> dict[str, Setting]:
    """Return the variables of the environment as settings."""
    return {name: Setting(name, value) for name, value in env.items()}


def file_settings(nccl: Nccl) -> dict[str, Setting]:
    """Return the settings from NCCL's config files. The first line that sets a variable wins."""
    found: dict[str, Setting] = {}
    for path, lines in nccl.config_files.items():
        for line in lines:
            name, _, value = line.partition("=")
            found.setdefault(name, Setting(name, value, path))
    return found


def settings(env: Mapping[str, str], nccl: Nccl) -> dict[str, Setting]:
    """Return every NCCL variable in effect. The environment takes precedence over the files."""
    every = file_settings(nccl) | environment_settings(env)
    return {name: setting for name, setting in every.items() if name.startswith("NCCL_")}


def effective_value(name: str, env: Mapping[str, str], nccl: Nccl) -> str | None:
    """Return the effective value, or None if the variable is unset or empty, which NCCL treats as unset."""
    setting = settings(env, nccl).get(name)
    return setting.value if setting and setting.value else None


def unset_commands(found: Iterable[Setting]) -> tuple[str, ...]:
    """Return the commands that remove the settings where they are set."""
    found = list(found)
    names = [setting.name for setting in found if setting.origin == HERE]
    files = sorted({setting.origin for setting in found} - {HERE})
    commands = (shell("unset {:name}", names),) if names else ()
    return commands + tuple(shell("# remove the line from {:path}", path) for path in files)


def origin_evidence(found: Iterable[Setting]) -> dict[str, Value]:
    """Return evidence: each variable with its value and where it is set."""
    return {setting.name: f"{setting.value} ({setting.origin})" for setting in found}


def setting_problem(
    bad: Sequence[Setting], title: str, cause: str = "", *, fix: Fix | None = None, more: Evidence | None = None
) -> Problem:
    """Return a problem with these settings as its subjects. The default fix is to unset them."""
    evidence = origin_evidence(bad) | dict(more or {})
    return Problem(
        title, cause, fix or Fix(commands=unset_commands(bad)), evidence, tuple(setting.name for setting in bad)
    )


def loaded_version(nccl: Nccl) -> Version:
    """Return the NCCL version that a process would load, or () if unknown."""
    return version_numbers(nccl.libraries[0].version) if nccl.libraries else ()


def node_count(plan: Plan, slurm: Slurm) -> int:
    """Return the number of nodes of the run, from the plan or from Slurm."""
    return max(plan.nodes, slurm.nodes or 1)
