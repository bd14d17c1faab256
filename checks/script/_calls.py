"""Which calls and assignments does a script have, and how is a finding about it built?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.check import DOCUMENTED, WHY, Evidence, Fix, Place, Problem
from mgpu.snapshot import InScript, Script, ScriptCall, ScriptSet

DDP = "torch.nn.parallel.DistributedDataParallel"
INIT = "torch.distributed.init_process_group"
LIGHTNING = r"(?:pytorch_lightning|lightning)\.(?:[\w.]+\.)?(?:Trainer|Fabric)"
OF_TRAINER = re.compile(r"(?:transformers|trl)\.(?:\w+\.)*\w*Trainer")
ACCELERATOR = r"accelerate\.Accelerator\(\)"
DATA_LOADER = r"torch\.utils\.data\.(?:dataloader\.)?DataLoader"
OPTIMIZERS = r"torch\.optim\.(?!lr_scheduler)(?:\w+\.)?[A-Z]\w+"
TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
DDP_DOC = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
DISTRIBUTED = "https://docs.pytorch.org/docs/stable/distributed.html"
# Frameworks that choose the device and start the process group for the script.
FRAMEWORKS = frozenset({"accelerate", "trainer", "lightning", "deepspeed"})


def last_part(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


def calls(script: Script, pattern: str) -> list[ScriptCall]:
    """Return the calls whose whole name matches."""
    matches = re.compile(pattern).fullmatch
    return [call for call in script.calls if matches(call.name)]


def reached_calls(script: Script, pattern: str) -> list[ScriptCall]:
    """Return the calls whose whole name matches, in code that the script's start leads to."""
    return [call for call in calls(script, pattern) if call.reached]


def trains(script: Script) -> bool:
    """Whether the script visibly trains: it has a backward pass or calls a Trainer's train or fit."""
    return bool(trainer_calls(script)) or any(call.reached and call.name.endswith(".backward") for call in script.calls)


def trainer_calls(script: Script) -> list[ScriptCall]:
    """Return the calls of a Trainer's train or fit, also of the script's own classes derived from one."""
    own = [re.escape(one.name) for one in script.classes if any(map(OF_TRAINER.fullmatch, one.bases))]
    return reached_calls(
        script, rf"(?:.+\.)?(?:\w*Trainer|{'|'.join(own) or '(?!)'})(?:\.from_argparse_args)?\(\)\.(?:train|fit)"
    )


def sets(script: Script, pattern: str) -> list[ScriptSet]:
    """Return the assignments whose whole target matches."""
    matches = re.compile(pattern).fullmatch
    return [one for one in script.sets if matches(one.target)]


def argument(call: ScriptCall, place: int, name: str) -> str | None:
    """Return an argument of a call by position or name; None if it is not given, or hidden in * or **."""
    if name in call.keywords:
        return call.keywords[name]
    before = call.arguments[: place + 1]
    return before[place] if len(before) > place and not any(value.startswith("*") for value in before) else None


def unpacks(call: ScriptCall) -> bool:
    """Whether a call has arguments that are not visible: *args, **options."""
    return "**" in call.keywords or any(value.startswith("*") for value in call.arguments)


def text_of(value: str | None) -> str | None:
    """Return the content of a string literal; None for anything else."""
    if value and len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]:
        return value[1:-1]
    return None


def switches(script: Script) -> dict[str, str]:
    """Return the options that are off unless they are given: the name of the variable -> the option."""
    return {
        plain_option(name): name
        for option in script.options
        for name in option.names
        if option.action == "'store_true'" and option.default in (None, "False") and name.startswith("--")
    }


def plain_option(option: str) -> str:
    """Return the name of the variable that holds an option's value."""
    return option.lstrip("-").replace("-", "_")


def place_of(script: Script, spot: InScript) -> Place:
    """Return the position of a call or assignment, in the script or in a module in its folder."""
    folder, slash, _ = script.path.rpartition("/")
    file = spot.file
    while file.startswith("../") and folder.rpartition("/")[2] not in ("", "..", "."):
        folder, slash, _ = folder.rpartition("/")
        file = file.removeprefix("../")
    return Place(f"{folder}{slash}{file}" if file else script.path, spot.line, spot.column)


def finding(
    script: Script,
    spot: InScript,
    title: str,
    fix: Fix | tuple[Fix, ...] = DOCUMENTED,
    others: Sequence[InScript] = (),
    *,
    why: str = WHY,
    **evidence: str | int | None,
) -> Problem:
    """Build a problem at a position in a script; `others` are further positions with the same problem."""
    known: Evidence = {name: value for name, value in evidence.items() if value is not None}
    if others:
        lines = [
            str(one.line) if one.file == spot.file else f"{place_of(script, one).file}:{one.line}" for one in others
        ]
        more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
        known = {**known, "also in line": f"{', '.join(lines[:5])}{more}"}
        why = f"{why} Also in line {known['also in line']}."
    place = place_of(script, spot)
    where = f"{place.file} line {spot.line}" if spot.file else f"line {spot.line}"
    return Problem(f"{where}: {title}", why, fix, known, place=place)
