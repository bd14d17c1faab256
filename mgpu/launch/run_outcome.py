"""Collect how a launched run ended, as the fact `run`.

That is: exit codes of the ranks, their error files, what the kernel and Slurm did during the run, and what each rank
was doing when mgpu was asked to stop.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import file_reading
from mgpu.launch import rank_facts
from mgpu.process import child_process, exit_code, processes
from mgpu.snapshot import EndedRank, FailedRank, GpuWork, Run
from mgpu.structured_text import json_of

if TYPE_CHECKING:
    from mgpu.process.supervisor import Ended

_EVERY_S = 0.5
_IDLE_FOR_S = 0.4  # a working process uses some CPU time within this interval
_ERROR_BYTES = 1 << 20  # torchelastic's file has every rank's traceback twice; truncated, it is not valid JSON
_SLURM_S = 5.0  # timeout of a query to Slurm's controller
_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 writes 2^63 minus a page for "no limit"
# The kernel logs a killed process within moments; a log line from before the start does not belong to this run.
_BEFORE_S = 1.0


class Aftermath:
    """Observes the machine before a run and the ranks during it, and builds the fact `run` at its end."""

    def __init__(self, *, expected: int | None = None, folder: Path | None = None, run_id: str = "") -> None:
        from mgpu.process.leftover_files import killed_for_memory

        self._killed_for_memory = killed_for_memory
        self._expected, self._folder, self._run_id = expected, folder, run_id
        self.files_before: frozenset[Path] | None = None  # at the first tick, before the launcher creates its own
        self._killed_before = killed_for_memory()
        self._started = time.monotonic()
        self._looked = 0.0
        self._limit = _Limit()
        self._lowest: int | None = None
        self._ranks: dict[int, processes.Rank] = {}
        self._errors: dict[int, str] = {}
        self._used: dict[int, list[tuple[float, int]]] = {}  # by rank: time and CPU ticks of the last two samples
        self._states: dict[int, tuple[str | None, bool | None]] = {}
        self._gone: dict[int, float] = {}
        self._memory = rank_facts.PeakMemory()
        self._stopped_at: float | None = None  # when mgpu was asked to stop the run

    def tick(self, ranks: Mapping[int, processes.Rank]) -> None:
        """Take a sample of the ranks and the free memory, at most twice a second; cheap."""
        now = time.monotonic()
        if now - self._looked < _EVERY_S:
            return
        self._looked = now
        if self.files_before is None:
            from mgpu.process.leftover_files import files

            self.files_before = files()
        self._ranks = dict(ranks)
        free = self._limit.available()
        if free is not None:
            self._lowest = free if self._lowest is None else min(self._lowest, free)
        for rank, process in self._ranks.items():
            self._read_error(rank, process)
            self._memory.look(rank, process.pid)
            used = _processor_time(process.pid)
            if used is not None:
                self._used[rank] = [*self._used.get(rank, [])[-1:], (now, used)]
            elif rank not in self._gone and self._stopped_at is None:
                self._gone[rank] = now - self._started
        if self._stopped_at is not None:
            self._wake()

    def _wake(self) -> None:
        """Continue ranks stopped by SIGSTOP: they cannot handle SIGTERM, and the launcher would wait 30 s for them."""
        stopped = [rank.pid for rank in self._ranks.values() if processes.state_of(rank.pid) == "stopped"]
        processes.signal_all(stopped, signal.SIGCONT)

    def before_signal(self, ranks: Mapping[int, processes.Rank]) -> None:
        """Record the state of the ranks when mgpu is asked to stop the run, before they are signaled."""
        if self._states:
            return
        self._stopped_at = now = time.monotonic()
        self._ranks.update(ranks)
        for rank, process in self._ranks.items():
            used = _processor_time(process.pid)
            before = [one for one in self._used.get(rank, []) if now - one[0] >= _IDLE_FOR_S]
            idle = used == before[-1][1] if before and used is not None else None
            self._states[rank] = (processes.state_of(process.pid), idle)

    def run(
        self,
        ended: Ended,
        *,
        code: int,
        seconds: float,
        timed_out: bool = False,
        gpus: Sequence[GpuWork] | None = None,
        gpus_after_s: float | None = None,
    ) -> Run:
        """Return the fact. Slow sources are read only if the run failed."""
        printed = ended.printed
        self._keep_ends(ended.ends)
        ranks = self._ended_ranks(printed, ended.returncode, code)
        killed_now = self._killed_for_memory()
        rose = None if killed_now is None or self._killed_before is None else max(0, killed_now - self._killed_before)
        xids, killed = (None, None) if code == 0 else _kernel(time.monotonic() - self._started + _BEFORE_S)
        gpu_of = {work.rank: work.index for work in gpus or () if work.rank is not None}
        return Run(
            code,
            ended.returncode,
            round(seconds, 3),
            signal.Signals(ended.signalled).name if ended.signalled else None,
            timed_out,
            tuple(replace(rank, gpu=gpu_of.get(rank.rank)) for rank in ranks),
            self._expected,
            rose,
            self._limit.bytes,
            self._limit.total,
            self._lowest,
            xids,
            killed,
            tuple(gpus) if gpus is not None else None,
            gpus_after_s,
            slurm=_slurm() if code else None,
            left_over=len(ended.left_over),
            still_running=_names(self._run_id) if code == 0 and self._run_id else (),
            log=str(self._folder) if self._folder else None,
            log_full=ended.log_full,
        )

    def _keep_ends(self, ends: Mapping[int, float]) -> None:
        """Take the exact times, in place of those of the samples; without those after a stop."""
        for rank, process in self._ranks.items():
            at = ends.get(process.pid)
            if at is not None and (self._stopped_at is None or at < self._stopped_at):
                self._gone[rank] = at - self._started

    def _ended_ranks(self, printed: bytes, returncode: int, code: int) -> list[EndedRank]:
        """Return every rank that was seen here or that the launcher's table names."""
        table = parse_table(printed)
        codes = exit_code.rank_exit_codes(printed)
        for rank, seen in self._ranks.items():
            self._read_error(rank, seen)
        alone = len(self._ranks) <= 1 and not table
        found = []
        for rank in sorted({*self._ranks, *table, *codes}):
            process, fallen = self._ranks.get(rank), table.get(rank)
            ended = 0 if returncode == 0 else codes.get(rank)
            if ended is None and alone:  # a single process exits as its launcher does
                ended = returncode if code < 128 or returncode < 0 else 128 - code
            state, idle = self._states.get(rank, (None, None))
            pid = process.pid if process else None
            peaks = self._memory.of(self._folder, rank, pid)
            raised, raised_at = rank_facts.raised(self._folder, rank, pid)
            found.append(
                EndedRank(
                    rank,
                    ended,
                    bool(ended) and ((fallen is not None and fallen.first) or alone),
                    fallen.local_rank if fallen else process.local_rank if process else None,
                    fallen.host if fallen else None,
                    pid or (fallen.pid if fallen else None),
                    at=fallen.at if fallen else None,
                    error=self._errors.get(rank) or (fallen.error if fallen else None) or raised,
                    state=state,
                    idle=idle,
                    gone_s=round(self._gone[rank], 3) if rank in self._gone else None,
                    peak_bytes=peaks.host or None,
                    peak_allocated_bytes=peaks.allocated,
                    peak_reserved_bytes=peaks.reserved,
                    raised_at=raised_at,
                    values=rank_facts.values(self._folder, rank, pid),
                )
            )
        return _by_children(found[0], self._folder) if alone and len(found) == 1 else found

    def _read_error(self, rank: int, process: processes.Rank) -> None:
        """Read torchelastic's error file, which its agent removes at the end."""
        if process.error_file is None or rank in self._errors:
            return
        # The file belongs to the training script, which may write anything there.
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            raw = file_reading.read_part(process.error_file, most=_ERROR_BYTES, start=0)
            message = json_of(raw.decode("utf-8", "replace"))["message"]
            text = message if isinstance(message, str) else str(message.get("message", ""))
            if text:
                self._errors[rank] = text.strip().splitlines()[0][:400]


def _by_children(alone: EndedRank, folder: Path | None) -> list[EndedRank]:
    """Return the ranks that a script started itself (mp.spawn), if it failed because one of them did.

    It then ends with 1, and recorded no exception of its own: it never was a rank.
    """
    failed = rank_facts.failed_children(folder)
    if alone.exit_code != 1 or not failed or alone.pid in [pid for _, pid in failed]:
        return [alone]
    found: list[EndedRank] = []
    for rank, pid in failed:
        raised, raised_at = rank_facts.raised(folder, rank, pid)
        peak = rank_facts.PeakMemory().of(folder, rank, pid).host or None
        code = 1  # of multiprocessing, after an exception
        values = rank_facts.values(folder, rank, pid)
        first = not found
        found.append(
            EndedRank(rank, code, first, pid=pid, error=raised, peak_bytes=peak, raised_at=raised_at, values=values)
        )
    return found


def _names(run_id: str) -> tuple[str, ...]:
    """Return the processes of a run that still exist, as "rsync (4711)"."""
    found = []
    for process in processes.processes_of_run(run_id):
        with contextlib.suppress(OSError):
            found.append(f"{Path(f'/proc/{process.pid}/comm').read_text('utf-8', 'replace').strip()} ({process.pid})")
    return tuple(found)


def parse_table(printed: bytes) -> dict[int, FailedRank]:
    """Return the failed ranks in the launcher's table, by rank."""
    from mgpu.readers.log.line import parse_line
    from mgpu.readers.log.torchrun_table import Tables

    tables = Tables()
    start = printed.rfind(b"FAILED")
    for text in (printed[start:] if start >= 0 else b"").decode("utf-8", "replace").splitlines():
        tables.take(parse_line(text))
    return {rank.rank: rank for rank in tables.ranks()}


class _Limit:
    """The memory of the machine, and the limit of the cgroup of this process and the ranks."""

    def __init__(self) -> None:
        self.total = _meminfo("MemTotal")
        self.bytes: int | None = None
        self._current: Path | None = None
        self._stat: Path | None = None
        with contextlib.suppress(OSError):
            lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
            for _, controllers, place in (line.split(":", 2) for line in lines):
                if controllers == "":
                    self._tightest(_CGROUPS, place, "memory.max", "memory.current")
                elif "memory" in controllers.split(","):
                    self._tightest(_CGROUPS / "memory", place, "memory.limit_in_bytes", "memory.usage_in_bytes")

    def _tightest(self, base: Path, place: str, limit: str, current: str) -> None:
        """Store the lowest limit among the cgroup and its parents."""
        folder = base / place.lstrip("/")
        for group in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):
                number = int((group / limit).read_text("utf-8"))
                if number < _UNLIMITED and (self.bytes is None or number < self.bytes):
                    self.bytes, self._current, self._stat = number, group / current, group / "memory.stat"
            if group == base:
                break

    def available(self) -> int | None:
        """Return the bytes that a program could still allocate."""
        free = _meminfo("MemAvailable")
        if self.bytes is None or self._current is None or self._stat is None:
            return free
        with contextlib.suppress(OSError, ValueError):
            used = int(self._current.read_text("utf-8"))
            cached = re.search(r"^(?:total_)?inactive_file (\d+)$", self._stat.read_text("utf-8"), re.MULTILINE)
            left = max(0, self.bytes - used + (int(cached[1]) if cached else 0))
            return left if free is None else min(left, free)
        return free


def _meminfo(name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return None


def _processor_time(pid: int) -> int | None:
    """Return a process's CPU time in kernel ticks; None if it exited."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = processes.stat_fields(pid)
        return None if fields[0] in "ZX" else int(fields[11]) + int(fields[12])
    return None


def _kernel(within_s: float) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return Xids and processes killed by the OOM killer since the start; None if the kernel log is not readable."""
    from mgpu import probes

    try:
        log = probes.gather([probes.KERNEL_LOG]).kernel_log
    except OSError:  # cannot start a process: the process limit, which may also be why the run failed
        log = None
    if log is None:
        return None, None
    ours = [event for event in log.events if event.seconds_ago is not None and event.seconds_ago <= within_s]
    xids = tuple(f"{event.code} on {event.pci or 'a GPU'}: {event.text}" for event in ours if event.kind == "xid")
    return xids, tuple(event.process or event.text for event in ours if event.kind == "oom")


def _slurm(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return Slurm's state of the job this is part of: TIMEOUT, OUT_OF_MEMORY, PREEMPTED ...; None outside of a job."""
    job, program = environ.get("SLURM_JOB_ID"), shutil.which("scontrol")
    if not job or program is None or not job.isdigit():
        return None
    try:
        shown = child_process.run([program, "--oneliner", "show", "job", job], _SLURM_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return slurm_state(shown.stdout.decode("utf-8", "replace"))


def slurm_state(output: str) -> str | None:
    """Return a job's state from `scontrol show job`; TIMEOUT also if its time limit is reached but it still stops."""
    from mgpu.probes import cluster

    fields = dict(re.findall(r"\b(JobState|Reason|RunTime|TimeLimit)=(\S+)", output))
    state = fields.get("JobState")
    if state in ("RUNNING", "COMPLETING"):
        with contextlib.suppress(ValueError):
            ran, limit = cluster.parse_time(fields.get("RunTime", "")), cluster.parse_time(fields.get("TimeLimit", ""))
            if ran is not None and limit is not None and ran >= limit:
                return "TIMEOUT"
    return state
