"""Random numbers: all ranks must draw the same split of the data."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.porting import Porting
from mgpu.port.source_tree import calls, keywords

SEED = 42
_REASON = (
    "The script sets no seed, so each rank would draw its own split or take its own branch. Any fixed number is right."
)
_SEEDS = re.compile(
    r"(?:torch\.(?:random\.)?manual_seed|(?:accelerate\.utils\.|transformers\.)?set_seed|.*seed_everything|.*seed_all)"
)
_OF = {
    "torch": re.compile(r"torch\.(?:manual_seed|random\.manual_seed)"),
    "numpy": re.compile(r"numpy\.random\.seed"),
    "random": re.compile(r"random\.seed"),
}
_SPLITS = (
    ("torch", re.compile(r"torch\.utils\.data\.(?:dataset\.)?random_split|torch\.randperm")),
    ("numpy", re.compile(r"sklearn\.model_selection\.\w+|numpy\.random\.(?:permutation|shuffle|choice)")),
    ("random", re.compile(r"random\.(?:shuffle|sample|choices?|random|randint)")),
)


def plan(porting: Porting) -> str:
    """Return the statement that sets a seed, if one is needed."""
    names = [(porting.tree.name(call.func), call) for call in calls(porting.tree.module)]
    if any(re.search(r"seed_everything|set_seed|seed_all|fix_seed|set_random", name) for name, _ in names):
        return ""
    for library, pattern in _SPLITS:
        drawn = [call for name, call in names if pattern.fullmatch(name) and _is_open(call)]
        if drawn and not any(_OF[library].fullmatch(name) for name, _ in names):
            return f"torch.manual_seed({SEED})" if library == "torch" else _set(library)
    return ""


def _set(library: str) -> str:
    return f"numpy.random.seed({SEED})" if library == "numpy" else f"random.seed({SEED})"


def _is_open(call: cst.Call) -> bool:
    """Whether a draw depends on the global random state."""
    return not keywords(call) & {"random_state", "generator"}


def reason() -> str:
    """Why a seed is set."""
    return _REASON
