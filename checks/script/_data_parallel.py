"""Does DataParallel use all GPUs from the script's process?"""

from __future__ import annotations

import re

from mgpu.snapshot import Script, ScriptCall

from ._calls import DDP, calls, reached_calls, switches


def data_parallel_call(script: Script) -> ScriptCall | None:
    """Return the first call that wraps a model in DataParallel in a run that a launcher starts."""
    other_way = bool(calls(script, re.escape(DDP))) or script.speaks in ("accelerate", "trainer", "deepspeed")
    off = set() if script.command_known else set(switches(script))  # no command line is known that has them
    for call in data_parallel_calls(script) if script.speaks else ():
        if any("n_gpu" in condition for condition in call.conditions):  # transformers: 1 in a run of several ranks
            continue
        if any(condition.rpartition(".")[2] in off for condition in (*call.conditions, *call.guarded_by)):
            continue
        if {"single", "some"} & set(call.guards) or (other_way and (call.conditions or call.guards)):
            continue
        return call
    return None


def data_parallel_calls(script: Script) -> list[ScriptCall]:
    """Return the calls that wrap a model in DataParallel."""
    return reached_calls(script, r"torch\.nn\.DataParallel|torch\.nn\.parallel\.data_parallel")
