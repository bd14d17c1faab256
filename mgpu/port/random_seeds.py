"""Random numbers: all ranks must draw the same split of the data."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting, free_name, imports_module
from mgpu.port.source_tree import calls, keywords

SEED = 42
_REASON = (
    "The script sets no seed, so each rank would draw its own split or take its own branch. Any fixed number is right."
)
_OF = {
    "torch": re.compile(r"torch\.(?:manual_seed|random\.manual_seed)"),
    "numpy": re.compile(r"numpy\.random\.seed"),
    "random": re.compile(r"random\.seed"),
}
_SPLITS = (
    (
        "torch",
        re.compile(
            r"torch\.utils\.data\.(?:dataset\.)?random_split|torch\.randperm"
            r"|torch\.utils\.data\.(?:sampler\.)?(?:Weighted|Subset)RandomSampler"
        ),
    ),
    ("numpy", re.compile(r"sklearn\.model_selection\.\w+|numpy\.random\.(?:permutation|shuffle|choice)")),
    ("random", re.compile(r"random\.(?:shuffle|sample|choices?|random|randint)")),
)


def plan(porting: Porting) -> list[str]:
    """Return the statements that set a seed, if one is needed."""
    names = [(porting.tree.name(call.func), call) for call in calls(porting.tree.module)]
    if any(re.search(r"seed_everything|set_seed|seed_all|fix_seed|set_random", name) for name, _ in names):
        return []
    for library, pattern in _SPLITS:
        drawn = [call for name, call in names if pattern.fullmatch(name) and _is_open(call)]
        if drawn and not any(_OF[library].fullmatch(name) for name, _ in names):
            return _set(porting, library)
    return []


def _set(porting: Porting, library: str) -> list[str]:
    """Set the seed. The script may import the library only later, and from `random` only a function of that name."""
    used = imports_module(porting.tree, library)
    name = library if used else free_name(porting.tree, library, f"{library}_module")
    seed = {"torch": "manual_seed", "numpy": "random.seed", "random": "seed"}[library]
    importing = f"import {library}" if name == library else f"import {library} as {name}"
    return [*([] if used and library == "torch" else [importing]), f"{name}.{seed}({SEED})"]


def _is_open(call: cst.Call) -> bool:
    """Whether a draw depends on the global random state."""
    return not keywords(call) & {"random_state", "generator"}


def reason() -> str:
    """Why a seed is set."""
    return _REASON
