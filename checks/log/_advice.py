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


# Commands of Linux and of a cluster, by the circumstance that shows another system.
_OF_LINUX = re.compile(
    r"(?:sudo |sbatch |srun |sacct|squeue|scontrol|sinfo|free(?: |$)|ulimit|sysctl|findmnt|fuser|ss -|ip |ldconfig|"
    r"getent |journalctl|namei|cat /(?:sys|proc)|apt-get|dmesg|quota|numactl)"
)
# How the text of a fix begins that is of no use without its commands.
_NOTHING_WITHOUT = re.compile(r"(?:Check|Compare|Find|Look|Request|See|Try)\b")
_NOT_THERE = {
    "on_windows": _OF_LINUX,
    "on_mac": re.compile(rf"{_OF_LINUX.pattern}|nvidia-smi|docker run --gpus|mgpu doctor --only (?:gpu|driver)"),
}


def for_program(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem without advice that is not for this log's system or its program.

    Commands of Linux are left out on Windows and macOS. If the log has a whole traceback, but nothing of Hugging Face's
    libraries, their commands and calls are left out, and for a program with one process also the advice to shard it.
    """
    log: Log | None = facts.get("log")
    if log is None:
        return problem
    return _of_own_code(_for_system(problem, log), log)


def _for_system(problem: Problem, log: Log) -> Problem:
    absent = next((absent for name, absent in _NOT_THERE.items() if any(one.name == name for one in log.shows)), None)
    if absent is None:
        return problem
    kept = [replace(fix, commands=tuple(one for one in fix.commands if not absent.match(one))) for fix in problem.fixes]
    pairs = zip(problem.fixes, kept, strict=True)
    left = [new for old, new in pairs if new.commands or not old.commands or not _NOTHING_WITHOUT.match(old.text)]
    return replace(problem, fix=tuple(left or kept))


def _of_own_code(problem: Problem, log: Log) -> Problem:
    if not _is_own(log):
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
