"""What will run, on what, with which additions, in words?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from mgpu import describe, engine, plan, report
from mgpu.launch import command as launching
from mgpu.launch import gate
from mgpu.launch.request import Request
from mgpu.smoke import run as smoke
from mgpu.snapshot import Config, Snapshot


def show(
    request: Request,
    snapshot: Snapshot,
    command: launching.Command,
    verified: Sequence[engine.Outcome],
    folder: Path | None,
) -> None:
    """What will run, on what, with which additions: to stderr, since stdout is the training's."""
    config, driver = snapshot.config, snapshot.driver
    assert config is not None and driver is not None
    screen = report.Screen.of(sys.stderr if not request.dry_run else sys.stdout)
    state = f"NOT verified: {gate.why(verified)}" if verified else f"verified {ago(snapshot)} on this machine"
    cpu = launching.on_cpu(config, driver)
    ranks = config.ranks_here or 1
    gpus = f"none: {ranks} ranks on the CPU over gloo" if cpu else describe.rows(snapshot).get("Visible", "none")
    precision = config.precision
    kind = {"MULTI_GPU": "DDP", "NO": "one process"}.get(config.distributed_type or "", config.distributed_type)
    rows = [
        ("Config", f"{config.path}   {state}"),
        ("GPUs", gpus),
        (
            "Mode",
            f"{kind}, {'fp32' if precision == 'no' else precision}, {ranks} rank{'s' if ranks > 1 else ''} here",
        ),
    ]
    if batch := _batch(config, "rank" if cpu else "GPU"):
        rows.append(("Batch", batch))
    if ids := smoke.doubts(snapshot):
        rows.append(("Doubts", f"{', '.join(ids)}   (mgpu doctor says more)"))
    added = "  ".join(f"{name}={shlex.quote(value)}" for name, value in command.env_added.items())
    rows.append(("Env", added or "nothing added"))
    if folder:
        rows.append(("Logs", f"{folder}/"))
    lines: list[report.Line] = []
    for label, text in rows:
        first, *rest = report.wrapped(text, screen.width - 11)
        lines += [[(f"{label:<11}", "bold"), (first, "")], *report.unstyled(" " * 11 + more for more in rest)]
    lines.append([(f"{'Command':<11}", "bold"), (shlex.join(command.argv), "")])
    screen.show(lines)


def _batch(config: Config, unit: str) -> str:
    """What one optimizer step sees, as the comments of the config say; empty when they say nothing."""
    ranks, accumulate = config.num_processes, config.accumulate or 1
    if not config.batch_per_gpu or not ranks:
        return ""
    whole = plan.effective_batch(config.batch_per_gpu, ranks, accumulate)
    parts = [str(config.batch_per_gpu), f"{ranks} {unit}{'s' if ranks > 1 else ''}"]
    text = " x ".join([*parts, *([f"accumulate {accumulate}"] if accumulate > 1 else [])])
    text += f" = effective batch {whole:,} (as configured)"
    if config.dataset_size:
        steps = plan.steps(config.dataset_size, config.batch_per_gpu, ranks, accumulate)
        text += f"; {config.dataset_size:,} samples = {steps.optimizer_steps:,} steps per epoch"
    return text


def ago(snapshot: Snapshot) -> str:
    """How long ago the stamp was made, in words."""
    at = snapshot.stamp.verified_at if snapshot.stamp else None
    return since(at) if at else "at an unknown time"


def since(iso: str) -> str:
    """ "just now", "12 min ago", "3 h ago", "5 days ago" for an ISO time."""
    try:
        then = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    except ValueError:
        return "at an unknown time"
    seconds = max(0, int((datetime.now(timezone.utc) - then).total_seconds()))
    for size, word in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            number = seconds // size
            return f"{number} {word}{'s' if word == 'day' and number > 1 else ''} ago"
    return "just now"


def agreed() -> bool:
    from mgpu.wizard import prompts
    from mgpu.wizard.questions import Choice, Question

    question = Question(
        "start", "Start?", "The launcher is started exactly as shown.", default="yes",
        choices=(Choice("yes", "Yes"), Choice("no", "No")), saves=False,
    )  # fmt: skip
    return prompts.ask(question) == "yes"
