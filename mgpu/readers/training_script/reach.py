"""Which functions does a script run, as far as its top level and its imported modules show?

Too many rather than too few: a function counts as reached if it is only passed as a value, if a library can call it
(a method of a class with a base class of a library, a function that a decorator registers), or if a method of its name
is called on an unknown object.
"""

from __future__ import annotations

from mgpu.readers.training_script.scopes import Function
from mgpu.readers.training_script.walk import Walk

TOP_LEVEL = -1
# Base classes of which only special methods and those in _CALLED are called.
_CALL_FEW = ("torch.nn.", "torch.utils.data.")
_CALLED = frozenset({"forward", "reset_parameters", "extra_repr"})
_PLAIN_BASES = frozenset({"object", "abc.ABC", "ABC", "typing.Protocol", "enum.Enum"})


def reached_functions(walk: Walk) -> set[int]:
    """Return the numbers of the functions that are reached."""
    reached = _closure(walk, {TOP_LEVEL})
    own = [function for function in walk.functions if not function.source.file]
    if not any(function.number in reached for function in own):  # nothing is called: `main` is started from elsewhere
        reached = _closure(walk, {TOP_LEVEL, *(f.number for f in own if f.name == "main")})
    return reached - {TOP_LEVEL}


def _closure(walk: Walk, reached: set[int]) -> set[int]:
    """Return `reached` with everything that it leads to."""
    external = {name for name in walk.bases if has_library_base(walk, name)}
    while True:
        used = set().union(*(walk.used.get(number, ()) for number in reached))
        classes = _reached_classes(walk, used)
        more = {
            function.number
            for function in walk.functions
            if function.number not in reached and _is_reached(function, reached, classes, used, external)
        }
        if not more:
            return reached
        reached = reached | more


def _is_reached(function: Function, reached: set[int], classes: set[str], used: set[str], external: set[str]) -> bool:
    if any(spot[3] in reached for spot in function.sites):
        return True
    name, owner = function.node.name, function.owner
    if not owner:
        return function.decorated
    dunder = name in _CALLED or (name.startswith("__") and name.endswith("__"))
    return owner in classes and (dunder or function.decorated or owner in external or name in used)


def _reached_classes(walk: Walk, used: set[str]) -> set[str]:
    """Return the classes that reached code refers to, with their base classes."""
    found = {name for name in walk.bases if name in used} | walk.registered
    open_ = list(found)
    while open_:
        for base in walk.bases.get(open_.pop(), ()):
            if base in walk.bases and base not in found:
                found.add(base)
                open_.append(base)
    return found


def has_library_base(walk: Walk, name: str) -> bool:
    """Whether a class is derived from one of a library that may call methods of any name."""
    outside = [base for base in walk.all_bases(name) if base not in walk.bases and base not in _PLAIN_BASES]
    return not all(base.startswith(_CALL_FEW) for base in outside)
