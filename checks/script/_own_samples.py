"""Does a DataLoader read samples that only this rank has?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mgpu.snapshot import Script, ScriptCall

from ._calls import last_part
from ._rank_paths import dotted_names, mentions_rank

_FILLS = r"(?:append|appendleft|extend|insert|add|push|put|store|update|collect)"
# Names of what a rank produces itself while it trains.
_PRODUCED = re.compile(r"rollout|replay|experience|trajector|(?:^|_)buffer|generated", re.IGNORECASE)
_DEEPEST = 4  # assignments between the source of the samples and the DataLoader


def has_own_samples(script: Script, loader: ScriptCall) -> bool:
    """Whether the samples are a part of the data chosen by the rank, or were produced by this rank in the same loop."""
    names = dotted_names([*loader.written[:1], loader.keywords.get("dataset", "")])
    for _ in range(_DEEPEST):
        texts = list(_sources(script, loader, names))
        if mentions_rank(*texts) or any(_divides(script, name) for name in names):
            return True
        names |= dotted_names(texts)
    if loader.loops and any(_PRODUCED.search(last_part(name)) for name in names):
        return True
    ends = "|".join(re.escape(last_part(name)) for name in sorted(names)) or "(?!)"
    filled = re.compile(rf"(?:.*\.)?(?:{ends})\.{_FILLS}")
    return any(set(call.loops) & set(loader.loops) and filled.fullmatch(call.name) for call in script.calls)


def _sources(script: Script, loader: ScriptCall, names: set[str]) -> Iterator[str]:
    """Yield what is assigned to these variables: in the same function, or to attributes of objects in the same file."""

    def is_same(file: str, function: str, targets: set[str]) -> bool:
        known = targets & names
        return file == loader.file and bool(known) and (function == loader.function or any("." in one for one in known))

    for call in script.calls:
        if is_same(call.file, call.function, set(call.targets)):
            yield from (call.name, *call.written)
    for one in script.sets:
        if is_same(one.file, one.function, {one.target}):
            yield one.value


def _divides(script: Script, name: str) -> bool:
    """Whether a class or function of the script chooses its samples by the rank."""
    own = {one.name for one in script.classes} | {one.name for one in script.functions}
    if (last := last_part(name)) not in own:
        return False
    places = {one.name for one in script.functions if one.name == last or one.name.startswith(f"{last}.")}
    written = (text for call in script.calls if call.function in places for text in call.written)
    return mentions_rank(*written, *(one.value for one in script.sets if one.function in places))
