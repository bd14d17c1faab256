"""Does the script start its ranks itself? Then a launcher must not: each of its copies would start all ranks."""

from __future__ import annotations

import re

from mgpu.several_ranks import TORCH_SPAWNS, has_option_of_several
from mgpu.snapshot import Script, ScriptCall

_SPAWN = re.compile(rf"{TORCH_SPAWNS}|accelerate\.(?:notebook|debug)_launcher")
_OF_SLURM = re.compile(r"not \(.*SLURM_")
_PROCESS = re.compile(r"(?:torch\.)?multiprocessing\.Process")
_INIT = "torch.distributed.init_process_group"
_LAUNCHED = re.compile(r"environ|getenv|RANK|WORLD_SIZE|torchrun|launcher|is_torchelastic", re.IGNORECASE)


def starts_its_own_ranks(script: Script | None) -> str:
    """Return the call with which a script starts its ranks ("spawn"); "" if it does not, or not under a launcher."""
    if script is None:
        return ""
    if script.spawns:  # in every run; also a launcher that the script starts as a subprocess
        return script.spawns[0].name.rpartition(".")[2]
    starting = (
        call
        for call in script.calls
        if call.reached
        and (_SPAWN.fullmatch(call.name) or (_PROCESS.fullmatch(call.name) and _starts_ranks(script, call)))
    )
    return next((call.name.rpartition(".")[2] for call in starting if _is_reached(script, call)), "")


def may_start_its_own_ranks(script: Script) -> bool:
    """Whether an option, or a start without Slurm, makes the script start its ranks itself: with a launcher, twice."""
    spawning = [call for call in script.calls if call.reached and re.fullmatch(TORCH_SPAWNS, call.name)]
    return any(
        set(call.guards) <= {"distributed"} or any(_OF_SLURM.search(text) for text in call.conditions)
        for call in spawning
    )


def _starts_ranks(script: Script, process: ScriptCall) -> bool:
    """Whether processes that are started in a loop join a process group with a rank that the script gives them."""
    groups = [call for call in script.calls if call.name == _INIT]
    return bool(process.loops) and any("rank" in call.keywords for call in groups)


def _is_reached(script: Script, call: ScriptCall) -> bool:
    """Whether the call is certainly made in a process of a launcher."""
    if any(_LAUNCHED.search(text) for text in call.conditions) or {"main", "local_main", "single"} & set(call.guards):
        return False
    if not call.guards:
        return not call.conditions
    # `if args.distributed`: only with the option, unless the condition is the number of GPUs.
    every = [name for option in script.options for name in option.names]
    named = {condition.rpartition(".")[2] for condition in call.guarded_by}
    asked = [name for name in every if name.lstrip("-").replace("-", "_") in named]
    options = asked or [name for name in every if has_option_of_several(name)]
    given = {word.partition("=")[0] for word in script.arguments}
    return not call.conditions and (not options or bool(given & set(options)))
