"""Which program does a log show? The commands of fixes start its script, and are for the libraries that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mgpu.command_line import shell
from mgpu.engine.outcome import Outcome, with_commands
from mgpu.message_names import name_script
from mgpu.snapshot import Log

_STARTED = re.compile(r"(?P<name>[\w.-]+\.py) in <module>")  # an installed program's frame has its package's folder
_HUGGING_FACE = "hugging_face"  # circumstance of checks/log/circumstances.py
# Calls and commands of accelerate, transformers and trl.
_THEIRS = re.compile(
    r"accelerate launch |(?:Training|Seq2SeqTraining)Arguments\(|(?:SFT|GRPO|DPO)Config\(|Accelerator\("
)
_SHARDING = "Shard "  # how the text of such a fix begins. One that only names FSDP or DeepSpeed can be about them.


def fitting(outcomes: Iterable[Outcome], log: Log) -> tuple[Outcome, ...]:
    """Return the outcomes with commands for the script that the log's first traceback begins in.

    If the log has this whole traceback, but nothing of Hugging Face's libraries, their commands and calls are left out,
    and for a program with one process also the advice to shard it.
    """
    first = next((one for one in log.raised if one.frames and not one.of_launcher), None)
    found = _STARTED.fullmatch(first.frames[0]) if first else None
    if found is None:
        return tuple(outcomes)
    if all(one.name != _HUGGING_FACE for one in log.shows):
        alone = not log.fallen and not any(log.ranks)
        outcomes = [_of_own_program(outcome, alone=alone) for outcome in outcomes]
    target = shell("{:path}", found["name"])
    if not target:
        return tuple(outcomes)
    return tuple(with_commands(outcome, lambda command: name_script(command, target)) for outcome in outcomes)


def _of_own_program(outcome: Outcome, *, alone: bool) -> Outcome:
    problem = outcome.problem
    if problem is None:
        return outcome
    own = [replace(fix, commands=tuple(one for one in fix.commands if not _THEIRS.match(one))) for fix in problem.fixes]
    of_one = [fix for fix in own if not fix.text.startswith(_SHARDING)] if alone else own
    return replace(outcome, answer=replace(problem, fix=tuple(of_one or own)))
