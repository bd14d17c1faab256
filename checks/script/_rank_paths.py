"""Which ranks execute a line of a script, and which values differ between ranks?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from mgpu.check import Given, Skip
from mgpu.several_ranks import TORCH_SPAWNS, is_name_of_several
from mgpu.snapshot import InScript, Script, ScriptCall

from ._calls import last_part

Spot = TypeVar("Spot", bound=InScript)
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
_ERROR = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception)|sys\.exit|exit")
_INTERRUPTED = "except KeyboardInterrupt"  # often nothing of the training is left there, and no launcher waits for it
# Base classes of which only special methods and those in _OF_MODULES are called.
_CALL_FEW = ("torch.nn.", "torch.utils.data.")
_OF_MODULES = frozenset({"forward", "reset_parameters", "extra_repr"})
_PLAIN_BASES = frozenset({"object", "abc.ABC", "ABC", "typing.Protocol", "enum.Enum"})
SPAWNS = re.compile(TORCH_SPAWNS)
_FIRST = re.compile(r"(?:main_process_first|first|main)\w*(?:\(\))?$")


def requires_kind(*kinds: str) -> Given:
    """Return a precondition: the script could be read, and uses one of these kinds of distributed training."""

    def precondition(script: Script) -> Skip | None:
        if script.error:
            return Skip(f"the script was not read: {script.error}")
        if script.speaks in kinds:
            return None
        if script.speaks is None:
            return unknown_kind(script)
        return Skip(f"does not apply to scripts that use {script.speaks}")

    return precondition


def unknown_kind(script: Script) -> Skip:
    """Return the answer about a script whose way of distributed training is not known."""
    if script.unclear is None:
        return Skip("nothing in this script trains")
    return Skip(f"how its ranks train together is not known: {script.unclear}")


own_loop = requires_kind(*LOOPS_OF_ITS_OWN)
own_loop_or_trainer = requires_kind(*LOOPS_OF_ITS_OWN, "trainer")
by_hand = requires_kind(*BY_HAND)
with_accelerate = requires_kind("accelerate")


def mentions_rank(*texts: str) -> bool:
    """Whether a text mentions the rank."""
    return any(_BY_RANK.search(text) for text in texts)


def has_rank_argument(call: ScriptCall) -> bool:
    """Whether an argument of a call depends on the rank, or is different in every process."""
    return call.unique or mentions_rank(*call.arguments, *call.written, *call.keywords, *call.keywords.values())


def is_reached_by_all(spot: InScript) -> bool:
    """Whether certainly every rank executes this at the same time."""
    alone = _ALONE.intersection(spot.guards) or mentions_rank(*spot.conditions)
    rare = any(_FIRST.search(context) or context == _INTERRUPTED for context in spot.within)
    return not alone and not rare


def visibly_called(script: Script, spots: Iterable[Spot]) -> list[Spot]:
    """Return the spots that the script's start leads to. Other functions of a module may be for other scripts."""
    return [spot for spot in spots if spot.reached]


def reached_by_every_rank(script: Script, spots: Iterable[ScriptCall]) -> list[ScriptCall]:
    """Return the spots that certainly every rank executes, on at least one visible path of calls."""
    once = functions_before_ranks(script)

    def by_all(spot: InScript) -> bool:
        return (spot.file, spot.function) not in once and is_reached_by_all(spot)

    return [
        spot
        for spot in visibly_called(script, spots)
        if by_all(spot) and _is_called_by_all(script, spot, set(), by_all)
    ]


def functions_before_ranks(script: Script) -> set[tuple[str, str]]:
    """Return the files and names of the functions that run once: those that start the ranks, and their callers."""
    found = {(one.file, one.function) for one in _starts_of_ranks(script) if one.function}
    while True:
        sites = (site for one in script.functions if (one.file, one.name) in found for site in one.callers)
        more = {(site.file, site.function) for site in sites if site.function} - found
        if not more:
            return found
        found |= more


def _starts_of_ranks(script: Script) -> list[ScriptCall]:
    """Return the calls that start the ranks, also those of which an option decides."""
    return [*script.spawns, *(call for call in script.calls if call.reached and SPAWNS.fullmatch(call.name))]


def in_every_run(script: Script, spots: Iterable[ScriptCall]) -> list[ScriptCall]:
    """Return the spots that every run executes: at least one visible path of calls to them has no condition."""
    return [
        spot
        for spot in visibly_called(script, spots)
        if _is_unconditional(spot) and _is_called_by_all(script, spot, set(), _is_unconditional)
    ]


def _is_unconditional(spot: InScript) -> bool:
    return not spot.guards and not spot.conditions and "try" not in spot.within


def is_per_sample(script: Script, spot: InScript) -> bool:
    """Whether a spot is in a method of a dataset, which runs for the rank's own samples."""
    owner = spot.function.rpartition(".")[0]
    names = {f"{owner}.__getitem__", f"{owner}.__iter__"} if owner else {"__getitem__"}
    return any(one.name in names and one.file == spot.file for one in script.functions)


def callers(script: Script, spot: InScript) -> Sequence[InScript]:
    """Return the visible calls of the function around a spot, in code that is reached if there are any."""
    if not spot.function:
        return ()
    found = [
        site
        for function in script.functions
        if function.name == spot.function and function.file == spot.file
        for site in function.callers
    ]
    owner, _, method = spot.function.rpartition(".")
    if method == "__call__":  # `stopper(loss)`
        found += [call for call in script.calls if call.name == f"{owner}()" or call.name.endswith(f".{owner}()")]
    return [site for site in found if site.reached] or found


def _is_called_by_all(
    script: Script, spot: InScript, seen: set[tuple[str, str]], certain: Callable[[InScript], bool]
) -> bool:
    """Whether every rank calls the function around a spot, and creates the object whose method it is.

    `seen`: the functions that were already checked, none of which every rank calls. `certain` judges one call.
    """
    if (spot.file, spot.function) in seen:
        return False
    seen.add((spot.file, spot.function))
    if last_part(spot.function) in _started_by_ranks(script):
        return True
    owner = spot.function.rpartition(".")[0].rpartition(".")[2]
    makers = [call for call in script.calls if owner and call.name.rpartition(".")[2] == owner]
    if makers and not any(certain(call) for call in makers):
        return False
    if not makers and any(one.name == owner for one in script.classes):
        return False  # a registry or a config decides whether the object exists
    sites = callers(script, spot)
    if not sites:
        return spot.reached and last_part(spot.function) != "__call__" and not _is_uncalled_method(script, spot)
    return any(certain(site) and _is_called_by_all(script, site, seen, certain) for site in sites)


def _is_uncalled_method(script: Script, spot: InScript) -> bool:
    """Whether a spot is in a method without visible calls, of a class whose methods no library calls."""
    owner, _, method = spot.function.rpartition(".")
    found = [one for one in script.classes if (one.file, one.name) == (spot.file, last_part(owner))]
    if not owner or not found or method in _OF_MODULES or method.startswith("__"):
        return False
    outside = [base for base in found[0].bases if base not in _PLAIN_BASES and not _is_of_project(script, base)]
    return all(base.startswith(_CALL_FEW) for base in outside)


def _is_of_project(script: Script, base: str) -> bool:
    """Whether a base class is in the script or in a module of its project."""
    folders = base.split(".")[:-1]
    ends = (folders[at:] for at in range(len(folders)) if at == 0 or len(folders) - at > 1)
    paths = {"/".join(end) for end in ends}
    files = {file.removesuffix(".py").removesuffix("/__init__") for file in script.files}
    return any(one.name == last_part(base) for one in script.classes) or not paths.isdisjoint(files)


def _started_by_ranks(script: Script) -> set[str]:
    """Return the names of the functions that the script itself starts in every rank."""
    given = (call.keywords.get("target") or next(iter(call.arguments), "") for call in _starts_of_ranks(script))
    return {last_part(one) for one in given} - {""}


def is_ruled_out(script: Script, spot: InScript) -> bool:
    """Whether the script raises an error for the option around a spot in a run of several ranks.

    `if args.debug and args.ddp: raise ValueError(...)`.
    """
    options = {one for one in spot.conditions if re.fullmatch(r"[\w.]+", one)}
    raised = (call for call in script.calls if call.reached and not call.loops and _ERROR.fullmatch(call.name))
    clauses = (clause for call in raised for one in call.conditions for clause in re.split(r"\bor\b", one))
    return any(
        " and " in clause
        and not re.search(r"\bnot\b", clause)
        and options & (names := dotted_names([clause]))
        and any(is_name_of_several(last_part(name)) for name in names)
        for clause in clauses
    )


def is_repeated(script: Script, spot: InScript, depth: int = 3) -> bool:
    """Whether a spot is in a loop, including the callers of its function."""
    return bool(spot.loops) or (
        depth > 0 and any(is_repeated(script, site, depth - 1) for site in callers(script, spot))
    )


def trains(script: Script) -> bool:
    """Whether gradients are computed and an optimizer steps, in functions that are visibly called."""
    steps = [call for call in script.calls if call.name.endswith(".step")]
    return bool(backward_calls(script) and visibly_called(script, steps))


def dotted_names(texts: Iterable[str]) -> set[str]:
    """Return the dotted names in the texts."""
    return {word for text in texts for word in re.findall(r"[A-Za-z_][\w.]*", text)}


def backward_calls(script: Script) -> list[ScriptCall]:
    """Return the calls that compute gradients."""
    return [call for call in script.calls if call.reached and call.name.endswith(".backward")]


def training_loops(script: Script) -> set[int]:
    """Return the innermost loops in which gradients are computed, as indices of Script.loops."""
    return {call.loops[-1] for call in backward_calls(script) if call.loops}


def is_after_all(script: Script, spot: InScript, others: Sequence[InScript], depth: int = 4) -> bool:
    """Whether a spot certainly runs only after all of the others, at least one: by the lines of its function.

    A function that leads to one of the others counts as one of them; else the same holds for all callers of the spot's
    function.
    """
    here = [one for one in _lifted(script, others, depth) if (one.file, one.function) == (spot.file, spot.function)]
    if here:
        return all(one.line < spot.line and not set(one.loops) & set(spot.loops) for one in here)
    sites = callers(script, spot) if depth else ()
    return bool(sites) and all(is_after_all(script, site, others, depth - 1) for site in sites)


def _lifted(script: Script, spots: Sequence[InScript], depth: int) -> list[InScript]:
    """Return the spots and the calls that lead to them."""
    found = list(spots)
    new = found
    for _ in range(depth):
        sites = [site for spot in new for site in callers(script, spot) if site not in found]
        new = [site for place, site in enumerate(sites) if site not in sites[:place]]  # a call has no hash
        found += new
    return found
