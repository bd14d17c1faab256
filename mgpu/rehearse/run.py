"""Run the user's script through the real launcher for a few optimizer steps, and return what its ranks did."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mgpu import durations, file_reading
from mgpu.errors import CANNOT_RUN, MgpuError, reason
from mgpu.launchers import choice as launchers_choice
from mgpu.launchers import port
from mgpu.launchers.gpu_selection import Selection
from mgpu.launchers.script_hash import script_hash
from mgpu.launchers.table import WAYS, Start
from mgpu.planning import measured
from mgpu.process import child_process, exit_code, guard, leftover_files, open_files, processes, signals
from mgpu.process.command import Command
from mgpu.recorder.inject import _mgpu_kept_files as kept_files
from mgpu.recorder.inject import _mgpu_rehearsal as in_rank
from mgpu.recorder.inject import _mgpu_rehearsed_checkpoint as checkpoint
from mgpu.recorder.inject import _mgpu_rehearsed_times as times
from mgpu.recorder.inject._mgpu_recorder import FOLDER
from mgpu.rehearse import put_back, rank_record, stall_watch, stopped_at
from mgpu.rehearse.stall_watch import StallWatch
from mgpu.secrets_masking import masked_argv
from mgpu.snapshot import Measurement, Rehearsal, RehearsalEnd, RehearsedRank, Script, Snapshot

RECORDED, LOG = "recorder", "script.log"
_INJECTED = Path(in_rank.__file__).resolve().parent
_POLL_S = 0.05
_GRACE_S = 2.0
_LEAVE_S = in_rank.WAIT_S + 15.0  # from the first rank's last step until the run is stopped
_MOST_FILES = 4096
_LOG_BYTES = 1 << 20

Show = Callable[[int, float], None]  # called with the optimizer steps that all ranks have made, and the seconds


@dataclass(frozen=True)
class Wanted:
    """What is to be rehearsed."""

    target: Sequence[str]  # a script and its arguments, or -m and a module
    script: Script | None  # the facts from its source
    snapshot: Snapshot  # with the config of the ranks
    folder: Path  # of the run
    steps: int
    limit_s: float
    stall_s: float
    cpu: bool = False  # the ranks stay off the GPUs
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()  # for accelerate's launcher, with fewer ranks than in the config
    checkpoint: bool = False  # write one after the last step
    measure: bool = True


def rehearse(wanted: Wanted, show: Show | None = None) -> Rehearsal:
    """Run the script, and return what its ranks did. Raises MgpuError if the launcher cannot be started."""
    command = _command(wanted)
    files_before = leftover_files.files()
    began = time.monotonic()
    with guard.guard_run(command.run_id, last=functools.partial(put_back.put_back, wanted.folder.absolute())):
        launcher = _start(command, wanted)
        watch = StallWatch(wanted.folder, command, launcher.pid, wanted.stall_s)
        ended = _watch(launcher, wanted, began, watch, show)
        at = _lines(ended, watch, wanted)
        _end_run(command.run_id, launcher)
        kept = put_back.put_back(wanted.folder.absolute())
    pids = {rank.pid for rank in read_ranks(wanted.folder) if rank.pid}
    leftover_files.sweep(files_before, pids, frozenset())
    facts = _facts(wanted, command, ended, launcher.poll(), time.monotonic() - began)
    if ended == "stalled" and watch.hang is not None:
        facts = replace(facts, cause=stall_watch.cause_of(watch.hang) or facts.cause)
    if at:
        facts = replace(facts, ranks=tuple(replace(one, stopped_line=at.get(one.pid or 0)) for one in facts.ranks))
    return replace(facts, kept=kept)


def read_ranks(folder: Path) -> tuple[RehearsedRank, ...]:
    """Return what each rank has recorded. Of several processes with one rank, the one with the most steps counts."""
    found: dict[int, RehearsedRank] = {}
    with contextlib.suppress(OSError):
        for path in sorted((folder / RECORDED).iterdir())[:_MOST_FILES]:
            one = rank_record.read(path)
            if one is None:
                continue
            before = found.get(one.rank)
            if before is None or _weight(one) > _weight(before):
                found[one.rank] = one
    return tuple(found[rank] for rank in sorted(found))


def _weight(rank: RehearsedRank) -> tuple[int, bool, int]:
    return rank.steps, rank.world is not None, len(rank.losses) + len(rank.calls) + len(rank.loaders)


def _command(wanted: Wanted) -> Command:
    """Return the launcher's command, as `mgpu launch` builds it, with the variables of the rehearsal."""
    snapshot, config = wanted.snapshot, wanted.snapshot.config
    assert config is not None
    chosen = launchers_choice.choose(config, wanted.script)
    way = WAYS[chosen.launcher]
    selected = Selection(snapshot, wanted.flags, wanted.environment)
    if why := chosen.forbidden(selected):
        raise MgpuError(why, CANNOT_RUN)
    meet = port.launch_port(config, None, needs_port=way.needs_port)
    command = way.command(Start(selected, wanted.target, uuid.uuid4().hex, meet))
    return replace(command, env_added={**command.env_added, **_variables(wanted)})


def _variables(wanted: Wanted) -> dict[str, str]:
    recorded = (wanted.folder / RECORDED).absolute()
    recorded.mkdir(mode=0o700, exist_ok=True)
    before = os.environ.get("PYTHONPATH", "")
    added = {
        "PYTHONPATH": f"{_INJECTED}{os.pathsep}{before}" if before else str(_INJECTED),
        FOLDER: str(recorded),
        in_rank.STEPS: str(wanted.steps),
        kept_files.BEGAN: str(time.time()),
    }
    if wanted.measure:
        added[times.UNTIL] = str(time.monotonic() + wanted.limit_s)
    if wanted.checkpoint:
        added[checkpoint.CHECKPOINT] = "1"
    if wanted.cpu:
        added |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": "", in_rank.ON_CPU: "1"}
    return added


def _start(command: Command, wanted: Wanted) -> child_process.Program:
    """Start the launcher in a session of its own. Its output goes to a file: the screen is the smoke test's."""
    open_files.raise_limit()
    with (wanted.folder / LOG).open("wb") as output:
        try:
            return child_process.start(
                command.argv, at_our_end=signal.SIGKILL, env=command.environment(), stdout=output, stderr=output
            )
        except OSError as error:
            raise MgpuError(f"the launcher cannot be started: {reason(error)}", CANNOT_RUN) from None


def _lines(ended: RehearsalEnd | None, watch: StallWatch, wanted: Wanted) -> dict[int, str]:
    """Return the user's line at which each process was when the script was stopped, by process ID."""
    if ended == "stalled" and watch.hang is not None:
        return stall_watch.lines_of(watch.hang)
    return stopped_at.lines(wanted.folder / RECORDED) if ended == "timed_out" else {}


def _watch(launcher: Any, wanted: Wanted, began: float, watch: StallWatch, show: Show | None) -> RehearsalEnd | None:
    """Wait for the end of the script; return why it was stopped, None if the launcher exited by itself."""
    recorded, moved_at, size, shown = wanted.folder / RECORDED, began, -1, 0.0
    try:
        while launcher.poll() is None:
            now = time.monotonic()
            done_at, written = _progress(recorded, wanted.folder / LOG)
            if written != size:
                moved_at, size = now, written
            if done_at is not None and time.time() - done_at > _LEAVE_S:
                return "stopped"
            if now - began > wanted.limit_s:
                return "timed_out"
            if done_at is None and watch.is_stalled(moved_at):  # after its last step, a rank waits for the others
                return "stalled"
            if show is not None and now - shown > 1.0:
                shown = now
                show(min((rank.steps for rank in read_ranks(wanted.folder)), default=0), now - began)
            time.sleep(_POLL_S)
    except (KeyboardInterrupt, signals.Stopped):
        return "interrupted"
    return None


def _progress(recorded: Path, log: Path) -> tuple[float | None, int]:
    """Return when the first rank made its last step, and how much the ranks have written so far."""
    first, written = None, 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(recorded):
            if entry.name.endswith(f".{in_rank.DONE}"):
                at = entry.stat().st_mtime
                first = at if first is None else min(first, at)
            if entry.name.endswith(f".{in_rank.KIND}"):  # not the answers to questions about a rank
                written += entry.stat().st_size
        written += log.stat().st_size
    return first, written


def _end_run(run_id: str, launcher: Any) -> None:
    """Stop what is left of the run."""
    processes.end_run(run_id, _GRACE_S)
    with contextlib.suppress(Exception):
        launcher.wait(_GRACE_S)
    if launcher.poll() is None:
        launcher.kill()
        launcher.wait(_GRACE_S)


def _facts(
    wanted: Wanted, command: Command, ended: RehearsalEnd | None, returncode: int | None, seconds: float
) -> Rehearsal:
    config = wanted.snapshot.config
    ranks = read_ranks(wanted.folder)
    code = None if returncode is None else _exit_code(returncode, wanted.folder / LOG)
    reached = bool(ranks) and all(rank.reached for rank in ranks)
    if ended is None:
        ended = "stopped" if reached else "finished" if not code else "failed"
    script = wanted.target[0] if wanted.target[0] != "-m" else wanted.target[1]
    facts = Rehearsal(
        script=" ".join(masked_argv([script])),
        wanted=wanted.steps,
        expected=(config.num_processes if config else None) or 1,
        ended=ended,
        ranks=ranks,
        cpu=wanted.cpu,
        launcher=command.launcher,
        exit_code=code,
        took_s=round(seconds, 2),
        limit_s=wanted.limit_s,
        log=str(wanted.folder / LOG),
        script_sha256=script_hash(wanted.target),
        folder=os.getcwd(),
        own_folder=str(wanted.folder.absolute()),
    )
    if ended in ("failed", "stalled"):
        from mgpu.rehearse import failure_cause  # imports the readers of logs, which takes 0.1 s

        return replace(facts, cause=failure_cause.find(wanted.folder / LOG, facts))
    return replace(facts, measurement=_measurement(wanted, facts)) if ended in ("stopped", "finished") else facts


def _measurement(wanted: Wanted, facts: Rehearsal) -> Measurement | None:
    config = wanted.snapshot.config
    found = measured.measurement(facts, wanted.target[2 if wanted.target[0] == "-m" else 1 :])
    if found is None or config is None:
        return None
    kind, run = config.distributed_type, str(wanted.folder)
    return replace(found, strategy=kind, precision=config.precision, taken=durations.now(), run=run)


def _exit_code(returncode: int, log: Path) -> int:
    output = b""
    with contextlib.suppress(OSError):
        output = file_reading.read_part(log, most=_LOG_BYTES)
    return exit_code.training_exit_code(returncode, output, None)
