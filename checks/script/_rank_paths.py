"""Which ranks come to a place in a script, and what is there that every rank has in its own way?"""

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
# Words by which something is said to depend on the rank: in a path, in a condition, in a seed.
_BY_RANK = re.compile(
    r"rank(?!ing)|process_index|process_id|proc_?id|is_main|main_process|master|ordinal|world_size|num_processes"
    r"|num_replicas|SLURM_PROCID|gpu_?id|\bgpu\b",
    re.IGNORECASE,
)
ONE_RANK = frozenset({"main", "local_main"})
_ALONE = frozenset({"main", "local_main", "not_main", "some", "single"})
# What is given a function and runs it.
_STARTS = re.compile(r"(?:spawn|start_processes|launcher|launch|Process|Fire|run|app)$")
_FIRST = re.compile(r"(?:main_process_first|first|main)\w*(?:\(\))?$")


def speaking(*kinds: str) -> Given:
    """The script was read, and its ranks train together in one of these ways."""

    def asked(script: Script) -> Skip | None:
        if script.error:
            return Skip(f"the script was not read: {script.error}")
        if script.speaks in kinds:
            return None
        if script.speaks is None:
            return Skip("what makes this script's ranks train together is not known")
        return Skip(f"it is a script of another kind: {script.speaks}")

    return asked


own_loop, by_hand, with_accelerate = speaking(*LOOPS_OF_ITS_OWN), speaking(*BY_HAND), speaking("accelerate")


def by_rank(*texts: str) -> bool:
    """Whether a text names the rank."""
    return any(_BY_RANK.search(text) for text in texts)


def told_by_rank(call: ScriptCall) -> bool:
    """Whether an argument of a call depends on the rank."""
    return by_rank(*call.arguments, *call.written, *call.keywords, *call.keywords.values())


def everyone(spot: InScript) -> bool:
    """Whether every rank is certain to come here at the same time."""
    alone = _ALONE.intersection(spot.guards) or by_rank(*spot.conditions)
    return not alone and not any(_FIRST.search(context) for context in spot.within)


def in_use(script: Script, spots: Iterable[ScriptCall]) -> list[ScriptCall]:
    """Those that stand in a function which is called in sight: a module holds many that another script calls, and what
    is handed over as a hook is called by somebody who may ask for the rank first."""
    started = {"", "main", *words(text for call in script.calls if _STARTS.search(call.name) for text in call.written)}
    return [spot for spot in spots if _function(spot) in started or callers(script, spot)]


def by_everyone(script: Script, spots: Iterable[ScriptCall]) -> list[ScriptCall]:
    """Those to which every rank is certain to come, by at least one way of calls in sight."""
    return [spot for spot in in_use(script, spots) if everyone(spot) and _led_to(script, spot, set())]


def _function(spot: InScript) -> str:
    """The name by which the function that a spot stands in is called: a class by its own."""
    *before, last = spot.function.split(".")
    return before[-1] if before and re.fullmatch(r"__\w+__", last) else last


def callers(script: Script, spot: InScript) -> list[ScriptCall]:
    """The calls of the function that a spot stands in: a method by its name, whatever it is called on."""
    name = _function(spot)
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


def _led_to(script: Script, spot: ScriptCall, seen: set[tuple[str, str]]) -> bool:
    """Whether every rank comes to the function that a spot stands in, and to the object whose method it is. `seen`:
    the functions already asked about, none of which led here."""
    if (spot.file, spot.function) in seen:
        return False
    seen.add((spot.file, spot.function))
    owner = spot.function.rpartition(".")[0].rpartition(".")[2]
    makers = [call for call in script.calls if owner and call.name.rpartition(".")[2] == owner]
    if makers and not any(everyone(call) for call in makers):
        return False
    sites = callers(script, spot)
    if not sites:
        return bool(in_use(script, [spot]))
    return any(everyone(site) and _led_to(script, site, seen) for site in sites)


def repeated(script: Script, spot: InScript, depth: int = 3) -> bool:
    """Whether a spot stands in a loop, its function's callers included."""
    return bool(spot.loops) or (depth > 0 and any(repeated(script, site, depth - 1) for site in callers(script, spot)))


def trains(script: Script) -> bool:
    """Whether gradients are computed and an optimizer steps, in functions that are called in sight."""
    steps = [call for call in script.calls if call.name.endswith(".step")]
    return bool(in_use(script, backward(script)) and in_use(script, steps))


def words(texts: Iterable[str]) -> set[str]:
    """The dotted names in some texts."""
    return {word for text in texts for word in re.findall(r"[A-Za-z_][\w.]*", text)}


def backward(script: Script) -> list[ScriptCall]:
    """Where gradients are computed."""
    return [call for call in script.calls if call.name.endswith(".backward")]


def training_loops(script: Script) -> set[int]:
    """The innermost loops in which gradients are computed, as places in Script.loops."""
    return {call.loops[-1] for call in backward(script) if call.loops}
