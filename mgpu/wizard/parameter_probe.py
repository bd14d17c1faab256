"""What does a training script train, and how? Run it up to its first optimizer, inspect that, and stop the script.

Only if the user requests it (--params-from), because until then the script really runs, downloads included.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mgpu import errors, file_reading
from mgpu.command_line import shell
from mgpu.errors import MgpuError
from mgpu.process import child_process, scratch
from mgpu.structured_text import json_of
from mgpu.wizard.answers import Answers, Origin

DEADLINE_S: Final = 600.0  # loading a large model from a slow disk takes minutes
_CHILD: Final = Path(__file__).with_name("parameter_probe_child.py")
_TAIL_BYTES = 20_000
_TOO_MANY = 1 << 63  # parameters
_MOST_REPORT = 64 << 10  # bytes; a few numbers
_FIRST_PROGRESS_S = 5.0
# These are removed so the script runs as one process under any launcher, except if the user sets WORLD_SIZE=1.
# fmt: off
_OF_A_LAUNCHER: Final = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "NODE_RANK",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
)
# fmt: on
_ONE_RANK: Final = "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"
# Memory depends on the state an optimizer keeps per parameter; Adam's variants keep the same two values.
_OPTIMIZERS: Final = (
    (r".*8bit", "adam8bit"),
    (r".*Adafactor", "adafactor"),
    (r"(Fused|Distributed|DeepSpeedCPU|CPU|Paged|Hybrid)*(Adam|AdamW|Adamax|NAdam|RAdam|AdamWScheduleFree)", "adamw"),
    (r"(Fused)?SGD", "sgd"),
)


@dataclass(frozen=True)
class Measured:
    """The facts at the moment the script had created its first optimizer."""

    script: str
    params: int
    trainable: int
    dtype: str  # dtype of most parameters: float32
    name: str  # the optimizer's class
    optimizer: str | None  # the matching answer; None: none matches
    lr: float | None
    several_rates: bool = False

    @property
    def text(self) -> str:
        """The facts as a message."""
        trained = "all trained" if self.trainable == self.params else f"{self.trainable:,} of them trained"
        rate = "" if self.lr is None else f", lr {self.lr:g}{' (the first of several)' if self.several_rates else ''}"
        unknown = "" if self.optimizer else f" (the memory that {self.name} needs is unknown)"
        return (
            f"{self.script}: {self.params:,} parameters, {trained}, mostly {self.dtype}; {self.name}{rate}{unknown}. "
            "Stopped at its first optimizer."
        )


def fill(answers: Answers, measured: Measured) -> Answers:
    """Return the answers with the measured values. The user's decisions stay, except for the size."""
    values: dict[str, Any] = {"params": measured.params, "model": None}
    if measured.trainable < measured.params and "trainable" not in answers.origins:
        values["trainable"] = measured.trainable
    if measured.optimizer and "optimizer" not in answers.origins:
        values["optimizer"] = measured.optimizer
    if measured.lr is not None and "lr" not in answers.origins:
        values["lr"] = measured.lr
    origins: dict[str, Origin] = {name: origin for name, origin in answers.origins.items() if name != "model"}
    origins |= {name: "probe" for name in values if name != "model"}
    return replace(answers, **values, source=f"from {measured.script}", origins=origins)


def measure(
    command: Sequence[str],
    *,
    python: str | None = None,
    deadline_s: float = DEADLINE_S,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[str], None] | None = None,
) -> Measured:
    """Run a script (and its arguments) up to its first optimizer. Raises MgpuError with the reason for a failure."""
    script = command[0]
    path = Path(script).expanduser()
    if not path.is_file():
        what = "is a folder, not a script" if path.is_dir() else "no such file"
        raise MgpuError(f"--params-from {script}: {what}", errors.USAGE)
    with scratch.folder() as folder:
        report, output = folder / "report", folder / "output"
        with output.open("wb") as log:
            child = child_process.start(
                [python or sys.executable, str(_CHILD), str(report), str(path), *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(environ),
            )
        try:
            ended = _wait(child, report, deadline_s, script, say)
        finally:
            child_process.end(child)
        if report.exists():
            return _parse_measured(script, _report_of(report, script))
        printed = file_reading.read_part(output, most=_TAIL_BYTES).decode("utf-8", "replace")
    raise MgpuError(_failure_reason(script, child.returncode if ended else None, printed, deadline_s), errors.USAGE)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    if environ.get("WORLD_SIZE") == "1":
        return dict(environ)
    return {name: value for name, value in environ.items() if name not in _OF_A_LAUNCHER}


def _wait(
    child: subprocess.Popen[bytes], report: Path, deadline_s: float, script: str, say: Callable[[str], None] | None
) -> bool:
    """Wait for the report or the end of the script; return whether either came in time."""
    began = time.monotonic()
    show_at = 0.0
    while True:
        spent = time.monotonic() - began
        if say and spent >= show_at:
            say(f"running {script} up to its first optimizer, {spent:.0f} s (Ctrl-C to stop)")
            show_at = max(_FIRST_PROGRESS_S, 2 * spent)
        try:
            child.wait(0.1)
            return True
        except subprocess.TimeoutExpired:
            if report.exists():
                return True
        if spent > deadline_s:
            return False


def _report_of(path: Path, script: str) -> Mapping[str, Any]:
    """Return the child's report. It is untrusted: the script ran in the same process. Raises MgpuError."""
    try:
        found = json_of(file_reading.read_whole(path, most=_MOST_REPORT))
        if not isinstance(found, dict):
            raise TypeError("not a JSON object")
        if "torch" in found or "failed" in found or _is_complete(found):
            return dict(found)
        why = "incomplete"
    except (OSError, ValueError, TypeError) as error:
        why = str(error)
    raise MgpuError(f"--params-from {script}: the report of its first optimizer cannot be read: {why}", errors.USAGE)


def _is_complete(found: Mapping[str, Any]) -> bool:
    params, trainable, dtypes, rates = (found.get(key) for key in ("params", "trainable", "dtypes", "rates"))
    return (
        all(type(number) is int and 0 <= number < _TOO_MANY for number in (params, trainable))
        and isinstance(dtypes, dict)
        and all(type(number) is int for number in dtypes.values())
        and isinstance(rates, list)
        and all(isinstance(rate, int | float) for rate in rates)
        and isinstance(found.get("optimizer"), str)
        and bool(dtypes or not params)
    )


def _parse_measured(script: str, found: Mapping[str, Any]) -> Measured:
    if "torch" in found:
        raise MgpuError(
            f"--params-from {script}: torch cannot be imported ({found['torch']}).\n"
            "Set the interpreter that trains with --python PATH",
            errors.USAGE,
        )
    if "failed" in found:
        raise MgpuError(f"--params-from {script}: cannot inspect its optimizer: {found['failed']}", errors.USAGE)
    if not found["params"]:
        raise MgpuError(f"--params-from {script}: its first optimizer ({found['optimizer']}) is empty", errors.USAGE)
    name = str(found["optimizer"])
    known = next((answer for pattern, answer in _OPTIMIZERS if re.fullmatch(pattern, name)), None)
    rates = [rate for rate in found["rates"] if 0 < rate < float("inf")]
    return Measured(
        Path(script).name,
        found["params"],
        found["trainable"],
        max(found["dtypes"], key=lambda dtype: found["dtypes"][dtype]),
        name,
        known,
        rates[0] if rates else None,
        len(set(rates)) > 1,
    )


def _failure_reason(script: str, code: int | None, output: str, deadline_s: float) -> str:
    """Return why a script did not reach an optimizer, with the last line it printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = f": {lines[-1][:300]}" if lines else ""
    head = f"--params-from {script}:"
    if code is None:
        return f"{head} no torch optimizer within {deadline_s:g} s, so it was stopped. Last output{last or ': none'}"
    if code == 0:
        return (
            f"{head} it finished without creating a torch optimizer (processes it starts are not inspected).\n"
            "Set the number:  --params 8.03B"
        )
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        memory = " (out of memory?)" if name == "SIGKILL" else ""
        return f"{head} killed by {name}{memory} before its first optimizer{last}"
    if code == 2 and any(line.startswith("usage:") for line in lines):
        return (
            f"{head} it requires arguments{last}.\n"
            f"Pass them after --:   {shell('mgpu configure --params-from {:path} -- ARGUMENTS', script)}"
        )
    if lines and re.search(r"\b(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\b", lines[-1]):
        again = shell("mgpu configure --params-from {:path}", script)
        return f"{head} it requires a launcher{last}.\nRun it as one rank:  {_ONE_RANK} {again}"
    return f"{head} it failed (exit code {code}) before its first optimizer{last}"
