"""Which ranks execute a line of a script, and which values differ between ranks?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgpu.check import Given, Skip
from mgpu.snapshot import InScript, Script, ScriptCall

BY_HAND = ("ddp", "deepspeed")
LOOPS_OF_ITS_OWN = ("accelerate", "ddp", "deepspeed")
WRAPPED = (
    r"torch\.nn\.parallel\.DistributedDataParallel\(\)|torch\.distributed\.fsdp\.(?:\w+\.)?FullyShardedDataParallel\(\)"
)
PREPARED = r"accelerate\.Accelerator\(\)\.prepare(?:_model)?\(\)"
# Names that indicate a dependency on the rank, in a path, a condition or a seed.
_BY_RANK = re.compile(
    r"rank(?!ing)|process_index|process_id|proc_?id|is_main|main_process|master|ordinal|world_size|num_processes"
    r"|num_replicas|SLURM_PROCID|gpu_?id|\bgpu\b",
    re.IGNORECASE,
)
ONE_RANK = frozenset({"main", "local_main"})
_ALONE = frozenset({"main", "local_main", "not_main", "some", "single"})
# Functions that run a function passed to them.
_STARTS = re.compile(r"(?:spawn|start_processes|launcher|launch|Process|Fire|run|app)$")
_FIRST = re.compile(r"(?:main_process_first|first|main)\w*(?:\(\))?$")


def requires_kind(*kinds: str) -> Given:
    """Return a precondition: the script could be read, and uses one of these kinds of distributed training."""

    def precondition(script: Script) -> Skip | None:
        if script.error:
            return Skip(f"the script was not read: {script.error}")
        if script.speaks in kinds:
            return None
        if script.speaks is None:
            return Skip("how the ranks of this script train together is not known")
        return Skip(f"does not apply to scripts that use {script.speaks}")

    return precondition


own_loop, by_hand, with_accelerate = (
    requires_kind(*LOOPS_OF_ITS_OWN),
    requires_kind(*BY_HAND),
    requires_kind("accelerate"),
)


def mentions_rank(*texts: str) -> bool:
    """Whether a text mentions the rank."""
    return any(_BY_RANK.search(text) for text in texts)


def has_rank_argument(call: ScriptCall) -> bool:
    """Whether an argument of a call depends on the rank."""
    return mentions_rank(*call.arguments, *call.written, *call.keywords, *call.keywords.values())


def is_reached_by_all(spot: InScript) -> bool:
    """Whether certainly every rank executes this at the same time."""
    alone = _ALONE.intersection(spot.guards) or mentions_rank(*spot.conditions)
    return not alone and not any(_FIRST.search(context) for context in spot.within)


def visibly_called(script: Script, spots: Iterable[ScriptCall]) -> list[ScriptCall]:
    """Return the spots in functions that the script visibly calls.

    Other functions of a module may be for other scripts, and a hook may be called only on one rank.
    """
    started = {
        "",
        "main",
        *dotted_names(text for call in script.calls if _STARTS.search(call.name) for text in call.written),
    }
    return [spot for spot in spots if _called_name(spot) in started or callers(script, spot)]


def reached_by_every_rank(script: Script, spots: Iterable[ScriptCall]) -> list[ScriptCall]:
    """Return the spots that certainly every rank executes, on at least one visible path of calls."""
    return [
        spot
        for spot in visibly_called(script, spots)
        if is_reached_by_all(spot) and _is_called_by_all(script, spot, set())
    ]


def _called_name(spot: InScript) -> str:
    """Return the name under which the function around a spot is called; for a constructor, the class name."""
    *before, last = spot.function.split(".")
    return before[-1] if before and re.fullmatch(r"__\w+__", last) else last


def callers(script: Script, spot: InScript) -> list[ScriptCall]:
    """Return the calls of the function around a spot; for a method, all calls with its name."""
    name = _called_name(spot)
    if not name:
        return []
    above, _, _ = spot.function.rpartition(".")
    if above and above.rpartition(".")[2][:1].isupper():
        return [call for call in script.calls if call.name.replace("()", "").rpartition(".")[2] == name]
    package = re.sub(r"(?:/__init__)?\.py$", "", spot.file).replace("/", ".")
    whole = f"{package}.{spot.function}" if package else spot.function
    first = f"{package.partition('.')[0]}."
    return [
        call
        for call in script.calls
        if call.name == whole or (package and call.name.startswith(first) and call.name.endswith(f".{name}"))
    ]


def _is_called_by_all(script: Script, spot: ScriptCall, seen: set[tuple[str, str]]) -> bool:
    """Whether every rank calls the function around a spot, and creates the object whose method it is.

    `seen`: the functions that were already checked, none of which every rank calls.
    """
    if (spot.file, spot.function) in seen:
        return False
    seen.add((spot.file, spot.function))
    owner = spot.function.rpartition(".")[0].rpartition(".")[2]
    makers = [call for call in script.calls if owner and call.name.rpartition(".")[2] == owner]
    if makers and not any(is_reached_by_all(call) for call in makers):
        return False
    sites = callers(script, spot)
    if not sites:
        return bool(visibly_called(script, [spot]))
    return any(is_reached_by_all(site) and _is_called_by_all(script, site, seen) for site in sites)


def is_repeated(script: Script, spot: InScript, depth: int = 3) -> bool:
    """Whether a spot is in a loop, including the callers of its function."""
    return bool(spot.loops) or (
        depth > 0 and any(is_repeated(script, site, depth - 1) for site in callers(script, spot))
    )


def trains(script: Script) -> bool:
    """Whether gradients are computed and an optimizer steps, in functions that are visibly called."""
    steps = [call for call in script.calls if call.name.endswith(".step")]
    return bool(visibly_called(script, backward_calls(script)) and visibly_called(script, steps))


def dotted_names(texts: Iterable[str]) -> set[str]:
    """Return the dotted names in the texts."""
    return {word for text in texts for word in re.findall(r"[A-Za-z_][\w.]*", text)}


def backward_calls(script: Script) -> list[ScriptCall]:
    """Return the calls that compute gradients."""
    return [call for call in script.calls if call.name.endswith(".backward")]


def training_loops(script: Script) -> set[int]:
    """Return the innermost loops in which gradients are computed, as indices of Script.loops."""
    return {call.loops[-1] for call in backward_calls(script) if call.loops}
