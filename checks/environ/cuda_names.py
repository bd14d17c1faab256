"""Does CUDA read the variables that are set for it?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.text import counted, listed

from .._variables import CUDA_GUIDE, misspelt_cuda_name


@check(Severity.WARNING, source=CUDA_GUIDE)
def cuda_variable_misspelt(env: Mapping[str, str]) -> Answer:
    """A variable name looks like a misspelled CUDA variable.

    Why: CUDA silently ignores unknown names, so the setting has no effect.
    More: With a misspelled CUDA_VISIBLE_DEVICES, the run uses all GPUs, including those of other users.

    Fix: Correct the name.
    """
    named = [name for name in env if "CUDA" in name]
    near = {name: meant for name in named if (meant := misspelt_cuda_name(name))}
    if not near:
        return Ok(f"no misspelled name among {counted(len(named), 'CUDA variable')}")
    return Problem(
        "; ".join(f"{name} instead of {meant}" for name, meant in near.items()),
        fix=Fix(f"Set {listed(dict.fromkeys(near.values()))} instead.", tuple(shell("unset {:id}", n) for n in near)),
        evidence={name: env[name] for name in near},
    )
