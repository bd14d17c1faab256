"""Show what will run, on which GPUs, and what mgpu adds to it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu import durations, engine, quantities, secrets_masking
from mgpu.command_line import shell
from mgpu.engine import before_start
from mgpu.launch import gate, line_rows
from mgpu.launchers import argv as launching
from mgpu.launchers.choice import Choice
from mgpu.launchers.foreign_line import Line
from mgpu.launchers.gpu_selection import Selection
from mgpu.launchers.script_hash import hash_of
from mgpu.launchers.table import WAYS
from mgpu.planning import measured
from mgpu.process import command as process_command
from mgpu.report import describe
from mgpu.report import screen as report_screen
from mgpu.snapshot import Config, Snapshot, gpu_in_use
from mgpu.text import counted, visible

_LABEL = 11  # columns
_RECORDER = "in each rank, for hangs: PYTHONPATH, MGPU_RECORDER (--no-recorder: without)"
_STRATEGIES = {"MULTI_GPU": "DDP", "NO": "one process"}


@dataclass(frozen=True)
class Details:
    """What the summary shows besides the command."""

    fewer: Selection
    choice: Choice
    verified: Sequence[engine.Outcome] = ()  # why the config is not verified; empty: it is
    needs_no_test: bool = False  # one process: there are no ranks to verify
    warnings: Sequence[str] = ()  # ids of checks
    script: Sequence[engine.Outcome] = ()
    folder: Path | None = None
    recorder: bool = False
    nan_check: int = 0
    line: Line | None = None  # the user's own launch line
    arguments: Sequence[str] = ()  # of the script


def doctor_command(config: Config) -> str:
    """Return the command that checks this config on this machine."""
    return (shell("mgpu doctor -c {:path}", config.path) if config.path else "") or "mgpu doctor"


def show(details: Details, command: process_command.Command, *, dry_run: bool = False) -> None:
    """Show the summary on stderr, since stdout belongs to the training run."""
    screen = report_screen.Screen.of(sys.stdout if dry_run else sys.stderr)
    added = "  ".join(
        f"{name}={shlex.quote(value)}" for name, value in secrets_masking.masked_env(command.env_added).items()
    )
    doctor = doctor_command(details.fewer.config)
    rows = [
        ("Config", _config(details)),
        ("GPUs", _gpus(details.fewer, own_ranks=details.choice.own_ranks)),
        ("Mode", _mode(details, command)),
        ("Batch", _batch(details.fewer)),
        ("Launcher", _launcher(details, command)),
        ("Note", line_rows.notes_text(details.line) if details.line else ""),
        ("Script", _script(details)),
        ("Memory", "\n".join(f"does not fit: {text}" for text in before_start.memory_texts(details.fewer.snapshot))),
        ("Warnings", f"{', '.join(details.warnings)}   (details: {doctor})" if details.warnings else ""),
        ("Env", line_rows.marks_text() if details.line else added or "nothing added"),
        ("Recorder", _recorder(details) if details.recorder else ""),
        ("Logs", f"{details.folder}/" if details.folder else ""),
    ]
    lines: list[report_screen.Line] = []
    for label, text in rows:
        for place, line in enumerate(_wrap_lines(text, screen)):
            lines.append([(f"{label if not place else '':<{_LABEL}}", "bold"), (line, "")])
    lines.append([(f"{'Command':<{_LABEL}}", "bold"), (command.masked(), "")])
    screen.show(lines)


def _recorder(details: Details) -> str:
    """Return what the recorder adds, and what --nan-check costs."""
    every = details.nan_check
    steps = "each step" if every == 1 else f"every {every} steps"
    return _RECORDER + (f"\n--nan-check: {steps}, the loss and the gradient norm wait for the GPU" if every else "")


def _wrap_lines(text: str, screen: report_screen.Screen) -> list[str]:
    """Wrap line by line, keeping each line's indentation."""
    wrapped: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        wrapped += report_screen.wrapped(line.lstrip(), screen.width - _LABEL, indent, indent)
    return wrapped


def _config(details: Details) -> str:
    path = details.fewer.config.path
    if details.line and not path:
        return line_rows.config_text(details.line)
    if details.needs_no_test:
        return f"{path}   one process: there are no ranks to verify"
    if not details.verified:
        return f"{path}   verified {verified_ago(details.fewer.snapshot)} on this machine{_rehearsed(details)}"
    head, *more = gate.differences(details.verified)
    return "\n".join([f"{path}   NOT verified: {head}", *(f"  {line}" for line in more)])


def _rehearsed(details: Details) -> str:
    """Return whether the smoke test also ran this script, unchanged since; with these arguments, its speed."""
    snapshot = details.fewer.snapshot
    stamp = snapshot.stamp
    if stamp is None or not (stamp.rehearsed or stamp.failed) or snapshot.script is None:
        return ""
    sha256 = hash_of(Path(snapshot.script.path))
    if (failed := next((one for one in stamp.failed if one.script_sha256 == sha256), None)) is not None:
        other = failed.arguments_sha256 != measured.arguments_hash(details.arguments)
        how = ", with other arguments" if other else ""
        return f"\nFAILED to rehearse this script {durations.age_text(failed.at)}{how}: {failed.check}"
    if sha256 not in stamp.rehearsed:
        return ""
    command = (sha256, measured.arguments_hash(details.arguments))
    same = [one for one in stamp.measurements if (one.script_sha256, one.arguments_sha256) == command]
    found = max(same, key=lambda one: one.ranks, default=None)
    rate = measured.rate_text(found) if found else ""
    if found is None or not rate or not found.taken:
        return ", and this script rehearsed"
    return f"\nrehearsed {durations.age_text(found.taken)}: {rate}"


def _gpus(fewer: Selection, *, own_ranks: bool) -> str:
    snapshot = fewer.snapshot
    assert snapshot.driver is not None
    ranks = fewer.config.ranks_here or 1
    if fewer.config.on_cpu or not snapshot.driver.any_gpu:
        return f"none: {ranks} ranks on the CPU over gloo" if ranks > 1 and not own_ranks else "none: on the CPU"
    used = gpu_in_use.gpus_of(snapshot, ranks)
    if not used:
        return describe.rows(snapshot).get("Visible", "unknown")
    sizes = [(gpu.memory_total_bytes, gpu.memory_used_bytes) for gpu in used]
    free = [total - held for total, held in sizes if total is not None and held is not None]
    each = "" if len(used) == 1 else " each" if len(free) == len(used) else " where reported"
    room = f", {quantities.gib(min(free))} free{each}" if free else ""
    mask = snapshot.visible.value if snapshot.visible else None
    return f"{len(used)} ({','.join(str(gpu.index) for gpu in used)}){room}" + (
        ", from CUDA_VISIBLE_DEVICES" if mask and not fewer.env else ""
    )


def _mode(details: Details, command: process_command.Command) -> str:
    config = details.fewer.config
    if details.line and not (config.path and command.ranks > 1):
        return line_rows.mode_text(details.line)
    if details.choice.own_ranks:
        return "ranks, precision and strategy set by the script"
    fsdp = config.values.get("fsdp_config")
    second = config.distributed_type == "FSDP" and isinstance(fsdp, dict) and str(fsdp.get("fsdp_version")) == "2"
    kind = "FSDP2" if second else _STRATEGIES.get(config.distributed_type or "", config.distributed_type)
    precision = "fp32" if config.precision == "no" else config.precision
    if kind in ("FSDP", "FSDP2") and (config.on_cpu or not _has_gpu(details.fewer.snapshot)):
        kind = f"DDP ({kind} only on GPUs)"
    ranks = f"{counted(command.ranks, 'rank')} here"
    mode = WAYS[command.launcher].mode
    return f"{ranks}; {mode}" if mode else f"{kind}, {precision}, {ranks}"


def _has_gpu(snapshot: Snapshot) -> bool:
    return snapshot.driver is not None and snapshot.driver.any_gpu


def _launcher(details: Details, command: process_command.Command) -> str:
    """Return the launcher if it is not the expected one, and the config settings that it ignores."""
    if not details.choice.why:
        return ""
    lines = [f"{WAYS[command.launcher].title or command.launcher}: {details.choice.why}"]
    if details.choice.lost_settings:
        lost = ", ".join(details.choice.lost_settings)
        lines.append(
            f"ignores {lost} of {details.fewer.config.path}: without an Accelerator, the script must set these itself"
        )
    return "\n".join(lines)


def _script(details: Details) -> str:
    """Return the first finding and the number of findings."""
    problems = [outcome.problem for outcome in details.script if outcome.problem]
    script = details.fewer.snapshot.script
    if not problems or script is None:
        return ""
    first = problems[0]
    at = f"{visible(first.place.file)}:{first.place.line} " if first.place and first.place.line else ""
    count = counted(len(problems), "finding")
    title = re.sub(r"^line \d+: ", "", first.title)  # the line is already in `at`
    again = shell("mgpu doctor --script {:path}", script.path)
    return f"{at}{title}\n({count}{f': {again}' if again else ''})"


def _batch(fewer: Selection) -> str:
    """Return the effective batch size according to the config's comments; empty if they do not state it."""
    config, before = fewer.config, fewer.ranks_before
    ranks, accumulate = config.num_processes, config.accumulate or 1
    if not config.batch_per_gpu or not ranks or fewer.snapshot.driver is None:
        return ""
    from mgpu.planning import plan

    whole = plan.effective_batch(config.batch_per_gpu, ranks, accumulate)
    unit = "rank" if launching.on_cpu(config, fewer.snapshot.driver) else "GPU"
    parts = [str(config.batch_per_gpu), counted(ranks, unit)]
    text = " x ".join([*parts, *([f"accumulate {accumulate}"] if accumulate > 1 else [])])
    if before and before != ranks:
        meant = plan.effective_batch(config.batch_per_gpu, before, accumulate)
        times, rest = divmod(meant, config.batch_per_gpu * ranks)
        keeps = f"; accumulate {times} keeps it" if not rest else ""
        text += f" = effective batch {whole:,} ({meant:,} with {before} {unit}s{keeps})"
    else:
        text += f" = effective batch {whole:,} (as configured)"
    return text + _steps(config, ranks, accumulate)


def _steps(config: Config, ranks: int, accumulate: int) -> str:
    if not config.dataset_size or not config.batch_per_gpu:
        return ""
    from mgpu.planning import plan

    steps = plan.steps(config.dataset_size, config.batch_per_gpu, ranks, accumulate)
    return f"; {config.dataset_size:,} samples = {steps.optimizer_steps:,} steps per epoch"


def verified_ago(snapshot: Snapshot) -> str:
    """Return how long ago the config was verified ("2 h ago")."""
    at = snapshot.stamp.verified_at if snapshot.stamp else None
    return durations.age_text(at) if at else "at an unknown time"


def confirm_start() -> bool:
    """Ask the user whether to start the run."""
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Choice, Question

    question = Question(
        "start",
        "Start?",
        "The launcher starts exactly as shown.",
        default="yes",
        choices=(Choice("yes", "Yes"), Choice("no", "No")),
        saves=False,
    )
    return prompts.ask(question) == "yes"
