"""Which advice is for the program that a log shows? Commands of libraries that it does not use are left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mgpu.check import Problem
from mgpu.snapshot import Log

_HUGGING_FACE = "hugging_face"  # a row of circumstances.py
# Calls and commands of accelerate, transformers and trl.
_THEIRS = re.compile(
    r"accelerate launch |accelerator\.unwrap_model\(|"
    r"(?:Training|Seq2SeqTraining)Arguments\(|(?:SFT|GRPO|DPO)Config\(|Accelerator\("
)
_SHARDING = "Shard "  # how the text of such a fix begins. One that only names FSDP or DeepSpeed can be about them.
_WITH_ACCELERATE = ("With accelerate", "Let accelerate")  # likewise
_BACKWARD = re.compile(r"\baccelerator\.backward\((?P<loss>[^()]+)\)")
_DEVICE = re.compile(r"\baccelerator\.device(?:, dtype=weight_dtype)?")  # what other scripts mostly call device


def for_program(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem without advice that is not for this log's program.

    If the log has a whole traceback, but nothing of Hugging Face's libraries, their commands and calls are left out,
    and for a program with one process also the advice to shard it.
    """
    log: Log | None = facts.get("log")
    if log is None or not _is_own(log):
        return problem
    own = [
        replace(fix, commands=tuple(_in_plain_torch(one) for one in fix.commands if not _THEIRS.match(one)))
        for fix in problem.fixes
        if not fix.text.startswith(_WITH_ACCELERATE)
    ]
    alone = not log.fallen and not any(log.ranks)
    of_one = [fix for fix in own if not fix.text.startswith(_SHARDING)] if alone else own
    return replace(problem, fix=tuple(of_one or own))


def _in_plain_torch(command: str) -> str:
    command = command.replace("accelerator.autocast()", "torch.autocast('cuda')")
    return _BACKWARD.sub(r"(\g<loss>).backward()", _DEVICE.sub("device", command))


def _is_own(log: Log) -> bool:
    """Whether the log has the whole first traceback, which begins in a script, and nothing of these libraries."""
    return bool(log.script) and all(one.name != _HUGGING_FACE for one in log.shows)
