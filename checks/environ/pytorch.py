"""Do PyTorch's variables do what they are set for?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Plan, Pytorch, Visible
from mgpu.text import listed

from .._gpus import usable_count
from .._nccl_settings import environment_settings, origin_evidence, setting_problem, unset_commands
from .._variables import nearest_name
from ._pytorch import (
    FALSE,
    READ_BY_GLOO,
    TORCH_ALIASES,
    TORCH_BOOLEANS,
    TORCH_DEBUG_LEVELS,
    TORCH_NAMES,
    TORCH_NUMBERS,
    TORCH_PREFIXES,
    TORCH_RENAMED,
    TRUE,
)

_TORCH = "https://pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_NO_NCCL = Skip("NCCL is not used here: PyTorch does not read it")


def _uses_nccl(visible: Visible, plan: Plan) -> bool:
    """Whether the ranks use NCCL, according to the visible GPUs and the plan."""
    return plan.cpu_ranks is None and (usable_count(visible) > 1 or plan.nodes > 1)


@check(Severity.WARNING, source=_TORCH)
def nccl_errors_not_raised(env: Mapping[str, str]) -> Answer:
    """PyTorch's handling of NCCL errors is disabled.

    Why: with TORCH_NCCL_ASYNC_ERROR_HANDLING=0 (or its old name NCCL_ASYNC_ERROR_HANDLING), PyTorch does not abort
    a collective that lost a rank: the run hangs forever. With monitoring off, the thread that aborts it can itself
    hang in CUDA or NCCL without being stopped.

    Fix: unset it.
    """
    bad = {
        name: env[name]
        for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
        if re.match(r"\s*[+-]?0+(?![0-9])", env.get(name, ""), re.ASCII)
    }
    unwatched = "TORCH_NCCL_ENABLE_MONITORING"
    if env.get(unwatched, "").lower() in FALSE:
        bad[unwatched] = env[unwatched]
    if not bad:
        return Ok("NCCL errors stop the run")
    return Problem(
        ", ".join(f"{name}={value}" for name, value in bad.items()),
        "When a rank dies, the others wait for it forever instead of failing."
        if set(bad) - {unwatched}
        else "If the thread that aborts a failed run hangs in CUDA or NCCL, the run hangs forever.",
        Fix(commands=tuple(shell("unset {:name}", name) for name in bad)),
        bad,
        tuple(bad),
    )


@check(Severity.ERROR, source=_TORCH)
def torch_boolean_unreadable(env: Mapping[str, str], visible: Visible, plan: Plan) -> Answer:
    """A torch.distributed switch has a value that PyTorch cannot read.

    Why: PyTorch raises an error on this value in init_process_group.
    More: These switches accept yes/no words and 0/1; anything else raises "Invalid value for environment variable"
    in every rank. The NCCL switches are read only if several GPUs communicate.

    Fix: use 1 or 0, or unset it.
    """
    bad = {
        name: env[name] for name in TORCH_BOOLEANS if name in env and env[name].lower() not in TRUE | FALSE | {"***"}
    }
    if not bad:
        return Ok("all torch.distributed switches are valid")
    bad = {name: value for name, value in bad.items() if name in READ_BY_GLOO or _uses_nccl(visible, plan)}
    if not bad:
        return _NO_NCCL
    return Problem(
        ", ".join(f"{name}={value!r}" for name, value in bad.items()),
        fix=Fix(commands=tuple(shell("unset {:name}", name) for name in bad)),
        evidence=bad,
        subjects=tuple(bad),
    )


@check(Severity.ERROR, source=_TORCH)
def torch_number_unreadable(env: Mapping[str, str], visible: Visible, plan: Plan) -> Answer:
    """A torch.distributed variable that must be a number is not one.

    Why: PyTorch needs an integer, and raises an error or hangs in init_process_group.
    More: A timeout of "ten" stops every rank with "Invalid value for environment variable", or makes it hang if a
    PyTorch thread reads the value.

    Fix: write a number, or unset it.
    """
    bad = {
        name: env[name]
        for name in TORCH_NUMBERS
        if name in env and not re.match(r"\s*[+-]?[0-9]", env[name], re.ASCII) and env[name] != "***"
    }
    if not bad:
        return Ok("all torch.distributed numbers are valid")
    bad = {name: value for name, value in bad.items() if name in READ_BY_GLOO or _uses_nccl(visible, plan)}
    if not bad:
        return _NO_NCCL
    return Problem(
        ", ".join(f"{name}={value!r}" for name, value in bad.items()),
        fix=Fix(commands=tuple(shell("unset {:name}", name) for name in bad)),
        evidence=bad,
        subjects=tuple(bad),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html#torch-distributed-debug")
def torch_debug_level_unknown(env: Mapping[str, str]) -> Answer:
    """TORCH_DISTRIBUTED_DEBUG is not OFF, INFO or DETAIL.

    Why: PyTorch raises "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL".
    More: `import torch.distributed` itself raises ValueError on any other value, including an empty one and 1.

    Fix: unset it.
    """
    value = env.get("TORCH_DISTRIBUTED_DEBUG")
    if value is None or value.upper() in TORCH_DEBUG_LEVELS:
        return Ok(f"TORCH_DISTRIBUTED_DEBUG is {value or 'not set'}")
    return Problem(
        f"TORCH_DISTRIBUTED_DEBUG={value!r}",
        fix=Fix(commands=("unset TORCH_DISTRIBUTED_DEBUG",)),
        evidence={"TORCH_DISTRIBUTED_DEBUG": value},
        subjects=("TORCH_DISTRIBUTED_DEBUG",),
    )


@check(Severity.WARNING, source=_TORCH)
def torch_variable_misspelt(env: Mapping[str, str]) -> Answer:
    """A variable name looks like a misspelled PyTorch or gloo variable.

    Why: neither PyTorch nor gloo reads it.
    More: The timeout, flight recorder or interface it was meant to set keeps its default.

    Fix: correct the name, or remove it.
    """
    asked = [name for name in env if name.startswith(TORCH_PREFIXES) and name not in TORCH_NAMES]
    near = {name: known for name in asked if (known := nearest_name(name, TORCH_NAMES)) is not None}
    if not near:
        return Ok("no misspelled PyTorch or gloo variable")
    bad = [environment_settings(env)[name] for name in near]
    return setting_problem(
        bad,
        "; ".join(f"{name} instead of {known}" for name, known in near.items()),
        fix=Fix(f"Use {listed(dict.fromkeys(near.values()))}, or remove it.", unset_commands(bad)),
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/pull/114077")
def torch_names_contradict(env: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """A PyTorch variable is set under both its old and its new name, to different values.

    Why: PyTorch 2.2 renamed its NCCL_ variables to TORCH_NCCL_. Since then the new name takes precedence, while
    older versions read only the old one: one of the two values has no effect.

    Fix: keep the new name.
    """
    version = version_numbers(pytorch.version)
    both = {
        old: new
        for old, new in TORCH_ALIASES.items()
        if old in env and new in env and env[old].lower() != env[new].lower()
    }
    if not both:
        return Ok("no PyTorch variable is set under two names")
    wins = "old" if version and version < TORCH_RENAMED else "new"
    found = environment_settings(env)
    return Problem(
        "; ".join(f"{found[old]}, but {found[new]}" for old, new in both.items()),
        f"PyTorch {pytorch.version or 'of unknown version'} uses the {wins} name.",
        Fix(commands=unset_commands(found[old] for old in both)),
        origin_evidence(found[name] for pair in both.items() for name in pair),
        tuple(both),
    )


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/pull/114077")
def torch_name_outdated(env: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """A PyTorch variable is set under the name that another PyTorch version uses.

    Why: names such as NCCL_ASYNC_ERROR_HANDLING are deprecated since PyTorch 2.2: every rank prints a warning, and
    they will be removed. PyTorch before 2.2 does not read the new names at all.

    Fix: use the name that this version reads.
    """
    if not (version := version_numbers(pytorch.version)):
        return Skip("the PyTorch version is unknown")
    other = TORCH_ALIASES if version >= TORCH_RENAMED else {new: old for old, new in TORCH_ALIASES.items()}
    outdated = {name: right for name, right in other.items() if name in env and right not in env}
    if not outdated:
        return Ok(f"all names are those of PyTorch {pytorch.version}")
    found = environment_settings(env)
    return Problem(
        "; ".join(f"{name} is {right} in PyTorch {pytorch.version}" for name, right in outdated.items()),
        "The old name still works, with a warning." if version >= TORCH_RENAMED else "This PyTorch does not read it.",
        Fix(commands=unset_commands(found[name] for name in outdated)),
        origin_evidence(found[name] for name in outdated),
        tuple(outdated),
    )
