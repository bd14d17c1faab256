"""With which learning rate does DeepSpeed train, if its file creates the optimizer or the scheduler?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._deepspeed_keys import Finding, ReadFile
from ._deepspeed_values import autos, setting

# DeepSpeed 0.19's defaults (runtime/lr_schedules.py, ops/): of warmup_max_lr, and of lr.
_SCHEDULER_LR = 0.001
_DEFAULT_LR = {"adam": 0.001, "adamw": 0.001, "lamb": 0.001, "lion": 0.001, "adagrad": 0.01}
# Schedulers that set the learning rate themselves, if one of these parameters is there.
_SETS_LR = {
    "WarmupLR": {"warmup_max_lr"},
    "WarmupDecayLR": {"warmup_max_lr"},
    "OneCycle": {"cycle_max_lr"},
    "LRRangeTest": {"lr_range_test_min_lr"},
}


def lost_learning_rate(file: ReadFile) -> list[Finding]:
    """Return where DeepSpeed trains with a learning rate that the run did not choose.

    Only if that is certain: "auto" values show that accelerate or Trainer has a learning rate for the file, or the file
    itself has another one.
    """
    values = file.values
    kind, name = setting(values, "scheduler.type"), setting(values, "optimizer.type")
    lr = setting(values, "optimizer.params.lr")
    given = setting(values, "scheduler.params")
    params = set(given) if isinstance(given, Mapping) else set()
    chosen = f"optimizer.params.lr {lr}" if isinstance(lr, int | float) else "the learning rate of the run"
    if not (any(autos(values)) or isinstance(lr, int | float)):
        return []
    if kind == "WarmupDecayLR" and "warmup_max_lr" not in params:  # WarmupLR keeps the optimizer's since 0.17.2
        title = f"WarmupDecayLR without warmup_max_lr rises to {_SCHEDULER_LR}, not to {chosen}"
        return [_finding("scheduler", "warmup_max_lr", title, values)] if lr != _SCHEDULER_LR else []
    if lr is not None or not isinstance(name, str) or _SETS_LR.get(str(kind), set()) & params:
        return []
    default = _DEFAULT_LR.get(name.lower())
    own = f"its default {default}" if default else "its default"
    return [_finding("optimizer", "lr", f"{name} without lr trains with {own}, not with {chosen}", values)]


def _finding(section: str, key: str, title: str, values: Mapping[str, Any]) -> Finding:
    value = '"auto"' if any(autos(values)) else "the number"
    return Finding(f"{section}.type", title, f'Add "{key}" with {value} to {section}.params.')
