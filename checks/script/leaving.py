"""Does one rank leave, while the others go on and wait for it?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.snapshot import InScript, Script, ScriptCall, ScriptJump
from mgpu.text import counted

from ._calls import DISTRIBUTED, calls, finding, reached_calls
from ._rank_paths import by_hand, mentions_rank, own_loop

_CONNECTS = (
    r"torch\.distributed\.init_process_group|deepspeed\.init_distributed|deepspeed\.initialize"
    r"|accelerate\.(?:Accelerator|PartialState|AcceleratorState)"
)
_ISLICE = "https://docs.python.org/3/library/itertools.html#itertools.islice"
_AGREES = re.compile(r"all_reduce|all_gather|broadcast|(?:reduce|gather)\w*$")
_STOPPED = "except StopIteration"
_ALONE = frozenset({"main", "local_main", "not_main"})


@check(
    Severity.WARNING,
    source=DISTRIBUTED,
    given=own_loop,
    tags=("leads_to_hang", "leads_to_rendezvous_error"),
)
def script_rank_leaves_before_group(script: Script) -> Answer:
    """One rank can end before the process group is started.

    Why: init_process_group waits until every rank has called it. If rank 0 alone returns first, for example because its
    output folder exists, the others wait until their timeout.

    Fix: Raise an error instead, so that the launcher stops the other ranks.
    More: Or check the condition on every rank.
    """
    connecting = reached_calls(script, _CONNECTS)
    if not connecting or script.spawns:
        return Ok("nothing visible connects the ranks, or the script starts them itself")
    spots = _leading_to(script, connecting)
    wrong = [
        jump
        for jump in script.jumps
        if jump.kind == "return" and jump.reached and not jump.loops and "single" not in jump.guards
        if _ALONE.intersection(jump.guards) and _is_before_all(jump, spots)
    ]
    if not wrong:
        return Ok("no rank ends alone before the process group is started")
    who = "a rank other than 0" if "not_main" in wrong[0].guards else "rank 0 alone"
    return finding(
        script,
        wrong[0],
        f"{who} can return here, and the others wait for it in init_process_group",
        Fix("Raise an error instead, so that the launcher stops the other ranks.", ("raise SystemExit(1)",)),
        wrong[1:],
    )


def _leading_to(script: Script, connecting: list[ScriptCall]) -> list[InScript]:
    """Return the calls that connect the ranks, and those that lead to them."""
    found: list[InScript] = list(connecting)
    seen: set[tuple[str, str]] = set()
    for spot in found:  # grows during the loop
        place = (spot.file, spot.function)
        if not spot.function or place in seen:
            continue
        seen.add(place)
        found += [
            site for one in script.functions if (one.file, one.name) == place for site in one.callers if site.reached
        ]
    return found


def _is_before_all(jump: ScriptJump, spots: list[InScript]) -> bool:
    """Whether a function that connects the ranks is left before it does so, by ranks that else would connect."""
    here = [spot for spot in spots if (spot.file, spot.function) == (jump.file, jump.function)]
    same = any(_ALONE.intersection(spot.guards, jump.guards) for spot in here)  # only these ranks connect
    return bool(here) and not same and all(spot.line > jump.line for spot in here)


@check(Severity.WARNING, source=_ISLICE, given=by_hand, tags=("leads_to_hang",))
def script_rank_leaves_with_its_shard(script: Script) -> Answer:
    """A rank leaves the training loop when its own share of the data has ended.

    Why: Shares taken with islice(data, rank, None, world_size) differ in length if the number of samples is not a
    multiple of world_size, and batches of different length differ more. The rank with the shortest share leaves, and
    the others wait for it in their next exchange.

    Fix: Let all ranks stop at the same step: reduce a flag over them before you leave.
    """
    shares = [call for call in reached_calls(script, r"itertools\.islice") if mentions_rank(*_start(call))]
    drawn = [call for call in reached_calls(script, "next") if call.loops and len(call.written) == 1]
    if not shares or not drawn:
        return Ok("no data is divided with islice, and drawn with next")
    if any("join" in context.lower() for call in script.calls for context in call.within):
        return Ok("ranks that have ended take part in the exchanges of the others")
    flags = {
        (one.file, one.function, one.target) for one in script.sets if _STOPPED in one.within and one.value == "True"
    }
    flags = {flag for flag in flags if not _is_agreed(script, flag)}
    leaving = [
        jump
        for jump in script.jumps
        if jump.kind in ("break", "return") and jump.reached and jump.loops and not _ALONE.intersection(jump.guards)
        if any(call.function == jump.function and jump.loops[-1] in call.loops for call in drawn)
        if (_STOPPED in jump.within and not _is_exchanged(script, jump))
        or any((jump.file, jump.function, one) in flags for one in jump.conditions)
    ]
    if not leaving:
        return Ok(f"{counted(len(drawn), 'call')} of next, and no rank leaves alone")
    return finding(
        script,
        leaving[0],
        "a rank leaves the loop when its own share of the data ends",
        commands("dist.all_reduce(ended, op=dist.ReduceOp.MAX)"),
        leaving[1:],
    )


def _start(call: ScriptCall) -> tuple[str, ...]:
    """Return the start of an islice, as resolved and as written."""
    return (*call.arguments[1:2], *call.written[1:2]) if len(call.arguments) > 2 else ()


def _is_agreed(script: Script, flag: tuple[str, str, str]) -> bool:
    """Whether the ranks exchange a flag."""
    return any(
        _AGREES.search(call.name) and re.search(rf"\b{re.escape(flag[2])}\b", " ".join(call.written))
        for call in calls(script, r".*")
        if (call.file, call.function) == flag[:2]
    ) or any(
        one.target != flag[2] and re.search(rf"\b{re.escape(flag[2])}\b", one.value)
        for one in script.sets
        if (one.file, one.function) == flag[:2]
    )


def _is_exchanged(script: Script, jump: ScriptJump) -> bool:
    """Whether the ranks agree on something in this loop, before it is left."""
    return any(
        _AGREES.search(call.name) and jump.loops[-1] in call.loops and call.line < jump.line for call in script.calls
    )
