"""The facts about a script that was walked: where everything is, and what is reached from the script's start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgpu.readers.training_script.rank_conditions import Guards, merge_guards
from mgpu.readers.training_script.reach import TOP_LEVEL, reached_functions
from mgpu.readers.training_script.scopes import OUTSIDE, Around, Function, Spot
from mgpu.readers.training_script.used_parameters import uses_all
from mgpu.readers.training_script.walk import Walk
from mgpu.snapshot import (
    InScript,
    ScriptCall,
    ScriptClass,
    ScriptFunction,
    ScriptJump,
    ScriptLoop,
    ScriptOption,
    ScriptSet,
    ScriptText,
)

_MOST_CALLERS = 40  # of one function; a method of a common name on unknown objects can have thousands


class Results:
    """Turns positions in the syntax trees into facts."""

    def __init__(self, walk: Walk) -> None:
        """Find what is reached, and what is around each function."""
        self.walk = walk
        self.arounds: dict[int, Around] = {}
        self.reached = reached_functions(walk)
        self.unused = self._unused_lines()
        loops = sorted(range(len(walk.loops)), key=lambda index: walk.loops[index][0][:3])
        self.order = {index: place for place, index in enumerate(loops)}

    def around(self, number: int, seen: frozenset[int] = frozenset()) -> Around:
        """Return the context of a function: everything that is around all of its calls."""
        if number < 0 or number in seen:
            return OUTSIDE
        if number not in self.arounds:
            self.arounds[number] = self._around(number, seen)
        return self.arounds[number]

    def _around(self, number: int, seen: frozenset[int]) -> Around:
        function = self.walk.functions[number]
        called = self._sites(function)
        sites = [spot for spot in called if self.is_reached(spot)] or called
        every: list[Around] = []
        for _, _, _, caller, site in sites:
            above = self.around(caller, seen | {number})
            every.append((merge_guards(above[0], site[0]), *(above[at] + site[at] for at in range(1, 5))))  # type: ignore[arg-type]
        if not every:
            return (function.guards, (), (), (), ())
        guards, conditions, loops, within, tests = every[0]
        return (
            merge_guards(tuple(g for g in guards if all(g in one[0] for one in every)), function.guards),
            tuple(c for c in conditions if all(c in one[1] for one in every)),
            tuple(loop for loop in loops if all(loop in one[2] for one in every)),
            tuple(w for w in within if all(w in one[3] for one in every)),
            tuple(test for test in tests if all(test in one[4] for one in every)),
        )

    def _sites(self, function: Function) -> list[Spot]:
        """Return the calls of a function; for a method that is never called itself, those of what it overrides."""
        if function.sites or not function.owner:
            return function.sites
        names = (f"{base}.{function.node.name}" for base in self.walk.all_bases(function.owner))
        return [spot for name in names if name in self.walk.by_name for spot in self.walk.by_name[name].sites]

    def _unused_lines(self) -> set[tuple[str, int]]:
        """Return the file and lines of the variables of a top level that nothing that is reached reads."""
        read = set().union(*(self.walk.reads.get(number, ()) for number in (TOP_LEVEL, *self.reached)))
        unread = [(file, lines) for file, lines, names in self.walk.variables if not names & read]
        return {(file, line) for file, lines in unread for line in lines}

    def is_reached(self, spot: Spot) -> bool:
        """Whether the script's start leads to a position."""
        return spot[3] < 0 or spot[3] in self.reached

    def where(self, spot: Spot) -> dict[str, Any]:
        """Return the fields of InScript for a position."""
        file, line, column, number, own = spot
        above = self.around(number)
        conditions = above[1] + own[1]
        alone: Guards = () if self.walk.alone.isdisjoint(conditions) else ("single",)
        return {
            "file": file,
            "line": line,
            "column": column,
            "function": self.walk.functions[number].name if number >= 0 else "",
            "guards": merge_guards(merge_guards(above[0], own[0]), alone),
            "conditions": conditions,
            "loops": tuple(self.order[loop] for loop in dict.fromkeys(above[2] + own[2])),
            "within": above[3] + own[3],
            "guarded_by": above[4] + own[4],
            "unused": number < 0 and (file, line) in self.unused,
            "reached": self.is_reached(spot),
        }

    def facts(self) -> dict[str, Any]:
        """Return everything in the form of the fact, in the order of files and lines."""
        walk = self.walk
        return {
            "calls": self._built(ScriptCall, walk.calls),
            "sets": self._built(ScriptSet, walk.sets),
            "loops": self._built(ScriptLoop, walk.loops),
            "jumps": self._built(ScriptJump, walk.jumps),
            "options": self._built(ScriptOption, walk.options),
            "texts": self._built(ScriptText, walk.texts),
            "functions": tuple(self._function(function) for function in walk.functions),
            "classes": tuple(
                ScriptClass(
                    **self.where(spot),
                    name=name.rpartition(".")[2],
                    bases=tuple(walk.all_bases(name)),
                    uses_all=uses_all(name, walk.needed),
                )
                for name, spot in walk.classes.items()
            ),
            "imports": tuple(sorted(walk.imports)),
            "main_guard": walk.main_guard,
            "cut": walk.cut,
        }

    def _built(self, kind: Callable[..., Any], found: list[tuple[Spot, dict[str, Any]]]) -> tuple[Any, ...]:
        return tuple(kind(**self.where(spot), **what) for spot, what in sorted(found, key=lambda pair: pair[0][:3]))

    def _function(self, function: Function) -> ScriptFunction:
        spots = self._sites(function)
        if not spots and function.owner and not function.node.name.startswith("__"):
            spots = self.walk.maybe.get(function.node.name, [])
        fields = self.where(function.spot) | {"reached": function.number in self.reached}
        callers = tuple(InScript(**self.where(spot)) for spot in spots[:_MOST_CALLERS])
        return ScriptFunction(**fields, name=function.name, callers=callers)
