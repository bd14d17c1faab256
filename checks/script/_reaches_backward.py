"""Does the result of a call reach the backward pass?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgpu.snapshot import Script, ScriptCall

from ._rank_paths import backward_calls, dotted_names

_ENDS = re.compile(r"(?:.*\.)?(?:item|detach|tolist|numpy|print|float|len|append|log|update|format|info)")


def reaches_backward(script: Script, call: ScriptCall) -> bool:
    """Whether a backward pass in the same loop gets the result of a call, also through variables and other calls."""
    place = (call.file, call.function)
    later = [one for one in script.calls if (one.file, one.function) == place and one.line >= call.line]
    sets = [one for one in script.sets if (one.file, one.function) == place and one.line >= call.line]
    names, results = set(call.targets), {f"{call.name}()"}
    while True:
        before = len(names) + len(results)
        for one in later:
            if _uses((*one.written, *one.arguments), names, results) and not _ENDS.fullmatch(one.name):
                names.update(one.targets)
                results.add(f"{one.name}()")
        names.update(one.target for one in sets if _uses([one.value], names, results))
        if len(names) + len(results) == before:
            break
    return any(
        _is_of(one.name.removesuffix(".backward"), names, results)
        for one in backward_calls(script)
        if (one.file, one.function) == place and one.loops == call.loops
    )


def _uses(texts: Iterable[str], names: set[str], results: set[str]) -> bool:
    """Whether an expression contains one of these variables or results."""
    given = list(texts)
    if any(text.startswith(result) for text in given for result in results):
        return True
    return bool(names & dotted_names(text for text in given if not _ENDS.fullmatch(text.removesuffix("()"))))


def _is_of(receiver: str, names: set[str], results: set[str]) -> bool:
    return receiver in names or any(receiver.startswith(result) for result in results)
