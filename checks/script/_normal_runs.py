"""Which conditions decide whether a normal run of a script executes a line?"""

from __future__ import annotations

import re

from mgpu.snapshot import InScript, Script, ScriptFunction, ScriptOption

from ._calls import last_part, plain_option, text_of
from ._rank_paths import mentions_rank

# Methods that a library calls on each object of a class in every training run.
_BY_LIBRARY = frozenset(
    {"forward", "__getitem__", "__len__", "training_step", "configure_optimizers", "compute_loss", "train_dataloader"}
)
_FEW_RANKS = frozenset({"some", "single"})
_HANDLED = ("except", "try")  # in code that handles an error, or whose own errors are caught
_OPTION = re.compile(r"[A-Za-z_]\w*\.([A-Za-z_]\w*)")
_COMPARED = re.compile(r"([\w.]+)\s*(==|!=|is not|is)\s*('[^']*'|\"[^\"]*\"|\d+|None|True|False)")
_NEGATED = re.compile(r"not \((.*)\)|not ([\w.]+)")


class NormalRuns:
    """Answers under which conditions a run that ends without an error executes the lines of a script."""

    def __init__(self, script: Script) -> None:
        """Index the functions and options of a script."""
        self.script = script
        self.functions = {(one.file, one.name): one for one in script.functions}
        self.known: dict[tuple[str, str], tuple[str, ...] | None] = {}
        self.options: dict[str, list[ScriptOption]] = {}
        for option in script.options:
            for name in option.names:
                self.options.setdefault(plain_option(name), []).append(option)
        self.changed = {last_part(one.target) for one in script.sets}
        self.changed |= {last_part(target) for call in script.calls for target in call.targets}

    def conditions(self, spot: InScript) -> tuple[str, ...] | None:
        """Return the conditions under which a line is executed: () in every run; None if nothing visible leads to it.

        Conditions that are true without options, and those that one rank at least fulfills, do not count.
        """
        if not spot.reached or _FEW_RANKS.intersection(spot.guards):
            return None
        if any(context.startswith(_HANDLED) for context in spot.within):
            return None
        above = self._of_function(spot.file, spot.function)
        if above is None:
            return None
        own = [one for one in spot.conditions if not self._holds(one)]
        return tuple(dict.fromkeys((*above, *own)))

    def _of_function(self, file: str, name: str) -> tuple[str, ...] | None:
        """Return the conditions under which a function, or the body of a class, is executed."""
        if not name:
            return ()
        place = (file, name)
        if place not in self.known:
            self.known[place] = None  # while it is followed: a function that only itself calls is never called
            self.known[place] = self._of_callers(file, name)
        return self.known[place]

    def _of_callers(self, file: str, name: str) -> tuple[str, ...] | None:
        function = self.functions.get((file, name))
        if function is None:  # the body of a class, which is executed where it is defined
            found = [one for one in self.script.classes if (one.file, one.name) == (file, last_part(name))]
            return self.conditions(found[0]) if found else None
        if not function.reached:
            return None
        sites = self._sites(function)
        if not sites:
            return () if name == "main" and not file else None
        best: tuple[str, ...] | None = None
        for site in sites:
            found_here = self.conditions(site)
            if found_here == ():
                return ()
            best = best if best is not None else found_here
        return best

    def _sites(self, function: ScriptFunction) -> list[InScript]:
        """Return the calls that certainly are of this function, not of a method of the same name."""
        owner, _, method = function.name.rpartition(".")
        if not owner or (last_part(owner) not in {one.name for one in self.script.classes} and method != "__init__"):
            return list(function.callers)
        if method in _BY_LIBRARY and not function.callers:
            return [call for call in self.script.calls if last_part(call.name) == last_part(owner)]
        own = "|".join(sorted({re.escape(one.name) for one in self.script.classes}))
        named = re.compile(rf"(?:.*\.)?(?:(?:{own}|super)\(\)\.{method}|{re.escape(last_part(owner))}\.{method})")
        places = {
            (call.file, call.line, call.column)
            for call in self.script.calls
            if method == "__init__" or named.fullmatch(call.name)
        }
        return [site for site in function.callers if (site.file, site.line, site.column) in places]

    def _holds(self, text: str) -> bool:
        """Whether a condition is true in every run that gets no options, at least on one rank."""
        parts = text.split(" and ")
        return all(self._value(part.strip()) is True or _is_of_rank(part) for part in parts)

    def _value(self, text: str) -> bool | None:
        """Return the value of a condition on an option that is not given; None if it is not known."""
        if found := _NEGATED.fullmatch(text):
            value = self._value(found[1] or found[2])
            return None if value is None else not value
        if found := _OPTION.fullmatch(text):
            default = self._default(found[1])
            return None if default is None else default not in ("None", "False", "0", "''")
        if found := _COMPARED.fullmatch(text):
            default = self._default(last_part(found[1])) if "." in found[1] else None
            if default is None:
                return None
            same = (text_of(default) or default) == (text_of(found[3]) or found[3])
            return same is (found[2] in ("==", "is"))
        return None

    def _default(self, name: str) -> str | None:
        """Return the default of an option, as Python's repr; None if it is not known or the script changes it."""
        options = self.options.get(name, [])
        if len(options) != 1 or name in self.changed:
            return None
        action, default = options[0].action, options[0].default
        if default is None:
            default = {"'store_true'": "False", "'store_false'": "True"}.get(action or "", "None")
        plain = re.fullmatch(r"-?\d+(?:\.\d+)?|None|True|False|'[^']*'", default)
        return default if plain and action != "'count'" else None


def _is_of_rank(text: str) -> bool:
    """Whether a condition only compares the rank, which one rank fulfills."""
    return (
        mentions_rank(text) and " or " not in text and bool(re.fullmatch(r"(?:not )?[\w.()\[\]'\"]+(?: ?== ?0)?", text))
    )
