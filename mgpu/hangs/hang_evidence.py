"""What does each rank of a running job do right now? Asked of the recorders in the ranks, and of the kernel.

No rank is stopped, resumed or attached to. A rank without a recorder, or one that the kernel does not run, is described
by its process state alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mgpu import file_reading, messages
from mgpu.errors import reason
from mgpu.hangs import ras_query, unanswered
from mgpu.hangs.stack_requests import StackRequests, listens
from mgpu.process import processes, system_calls
from mgpu.process.command import Command
from mgpu.readers import flight_recorder
from mgpu.readers.stack_dump import MOST_FRAMES, frame_at, main_thread
from mgpu.recorder.inject._mgpu_finite import EVERY as NAN_CHECK
from mgpu.recorder.inject._mgpu_recorder import ASK_FLIGHT, ASK_STACKS, BEAT, FOLDER
from mgpu.secrets_masking import masked
from mgpu.snapshot import NOT_LOADED, Collective, HangRank, StackFrame, Worker
from mgpu.snapshot.hang_facts import own_frame
from mgpu.structured_text import json_of
from mgpu.text import clean

INJECTED = Path(__file__).resolve().parent.parent / "recorder" / "inject"
RECORDED = "recorder"  # the folder in the run's folder
ANSWER_S = 0.6  # stacks take milliseconds, the flight recorder some 20
_THREAD_S = 0.25  # until a rank whose thread does not answer gets the signal: its main thread may keep Python's lock
_WRITES_S = 0.02  # after the last line, a stack is whole
_BUSY = 0.1  # of a CPU
_RUNNABLE = 0.75  # of the time in which one thread runs or could run: on a crowded machine it gets less of a CPU
_LITTLE_BYTES = 64 << 10  # heartbeats of torch's store are less
_FEW_WAITS = 5  # the request for stacks interrupts a wait once
_MOST_BYTES = 1 << 20
_MOST_FLIGHT_BYTES = 8 << 20
_MOST_WORKERS = 16  # of a rank that are asked
_LOADER = "torch/utils/data/_utils/worker.py"
_SOCKET = " of socket:"
_OF_SOCKETS = re.compile(r"/(?:socket|ssl)\.py$")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def with_recorder(
    command: Command, folder: Path, base: Mapping[str, str] = os.environ, *, nan_check: int = 0
) -> Command:
    """Return the command with the variables that make Python load the recorder; creates its folder.

    If that is not possible, the run starts without it. `nan_check`: steps between two values on a GPU that are read;
    0: none is.
    """
    recorded = (folder / RECORDED).absolute()  # the script may change its folder
    try:
        recorded.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:  # the disk is full; the run matters more
        messages.notice(f"the ranks run without the recorder: cannot create {recorded} ({reason(error)})")
        return command
    before = command.env_added.get("PYTHONPATH", base.get("PYTHONPATH", ""))
    paths = f"{INJECTED}{os.pathsep}{before}" if before else str(INJECTED)
    added = {"PYTHONPATH": paths, FOLDER: str(recorded), **({NAN_CHECK: str(nan_check)} if nan_check else {})}
    return replace(command, env_added={**command.env_added, **added})


def tidy(folder: Path) -> None:
    """After the run, remove what is of no further use: FIFOs, counters, and the files of ranks that were not asked."""
    recorded = folder / RECORDED
    with contextlib.suppress(OSError):
        for path in recorded.iterdir():
            if path.suffix in (".ask", ".beat", ".tmp") or (path.suffix == ".stacks" and not _size(path)):
                path.unlink()
        recorded.rmdir()


@dataclass(frozen=True)
class Beat:
    """What a rank has counted. Times are those of time.monotonic, which all processes of a machine share."""

    steps: int
    step_at: float
    batches: int
    batch_at: float
    waited_s: float
    waits_since: float  # 0: it does not wait for a batch
    longest_s: float


def beat_of(folder: Path, rank: int, pid: int) -> Beat | None:
    """Return the counters of a rank; None if it has none (yet)."""
    try:
        content = file_reading.read_part(folder / RECORDED / f"{rank}.{pid}.beat", most=struct.calcsize(BEAT), start=0)
        return Beat(*struct.unpack(BEAT, content))
    except (OSError, ValueError, struct.error):
        return None


@dataclass
class _Sample:
    """One look at a process."""

    at: float
    ticks: int | None
    io: int | None
    switches: int | None  # how often its main thread has waited for something, and gone on
    runnable: Mapping[int, float]  # seconds in which each thread ran or waited for a CPU
    frames: tuple[StackFrame, ...] | None = None


@dataclass
class Inquiry:
    """Asks the ranks twice, and compares. Nothing here waits.

    The thread in a rank writes the stacks of all threads, so that the main one is not interrupted: a signal ends a
    `sleep(3)`, `poll` or `select` of C code early (signal(7): they are never restarted). Only a process without that
    thread, or whose thread does not answer, gets a signal (stack_requests.py).
    """

    folder: Path
    ranks: Mapping[int, processes.Rank]
    _ready_at: float = 0.0  # when the answers are read, complete or not
    _signal_at: float = 0.0
    _unsignaled: set[int] = field(default_factory=set)  # processes whose thread was asked
    _signals: StackRequests = field(default_factory=StackRequests)
    _sizes: dict[int, tuple[Path, int]] = field(default_factory=dict)  # pid -> its stack file, and its size before
    _grown: tuple[float, dict[int, int]] = (0.0, {})  # when these files had these sizes
    _samples: dict[int, list[_Sample]] = field(default_factory=dict)
    _flights: dict[int, Path] = field(default_factory=dict)  # rank -> what it writes
    _ras: ras_query.Query | None = None

    def ask(self) -> None:
        """Make all processes of the ranks write their stacks, and the ranks their collectives."""
        now = time.monotonic()
        self._ready_at, self._signal_at, self._unsignaled = now + ANSWER_S, now + _THREAD_S, set()
        for rank, process in self.ranks.items():
            pids = processes.with_descendants(process.pid)[: _MOST_WORKERS + 1]
            for pid in pids:
                sample = _Sample(
                    time.monotonic(), _cpu_ticks(pid), _io_bytes(pid), _switches(pid), processes.runnable_s(pid)
                )
                self._samples.setdefault(pid, []).append(sample)
                stacks = self.folder / RECORDED / f"{rank}.{pid}.stacks"
                with contextlib.suppress(OSError):
                    self._sizes[pid] = (stacks, stacks.stat().st_size)
            if self._ask_recorder(rank, process.pid, ASK_STACKS + ASK_FLIGHT):
                self._unsignaled = {*self._unsignaled, process.pid} & self._sizes.keys()
            for pid in self._sizes.keys() & set(pids) - self._unsignaled:
                self._signals.send(pid)
        if self._ras is None and ras_query.listens(where := self._ras_address(), self._samples):
            self._ras = ras_query.Query(where)

    def _ras_address(self) -> tuple[str, int]:
        first = next(iter(self.ranks.values()), None)
        given = processes.environment(first.pid).get(b"NCCL_RAS_ADDR", b"") if first else b""
        return ras_query.address({"NCCL_RAS_ADDR": given.decode("utf-8", "replace")})

    def _ask_recorder(self, rank: int, pid: int, request: bytes) -> bool:
        """Ask the thread in the rank; return False if there is none."""
        base = self.folder / RECORDED / f"{rank}.{pid}"
        self._flights[rank] = flight = Path(f"{base}.flight")
        try:
            flight.unlink(missing_ok=True)
            pipe = os.open(f"{base}.ask", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no process group yet, or the rank has ended
            return False
        try:
            os.write(pipe, request)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EAGAIN):
                raise
            return False
        finally:
            os.close(pipe)
        return True

    def ask_for_collectives(self) -> None:
        """Make the ranks write their collectives, and no stacks."""
        for rank, process in self.ranks.items():
            self._ask_recorder(rank, process.pid, ASK_FLIGHT)
        self._ready_at = time.monotonic() + ANSWER_S

    def is_waiting(self) -> bool:
        """Whether answers may still come. Signals the processes that have not answered in time."""
        now = time.monotonic()
        if now >= self._signal_at:
            silent = [pid for pid, (path, before) in self._sizes.items() if _size(path) <= before]
            late = self._unsignaled.intersection(silent)
            for pid in late:
                self._signals.send(pid)
            if late or self._signals.insist(silent):
                self._ready_at = now + ANSWER_S
            self._unsignaled = set()
        return now < self._ready_at and not self._is_answered()

    def _is_answered(self) -> bool:
        """Whether every process that can answer has written its stack and its collectives."""
        stacks = all(_size(path) > size or not listens(pid) for pid, (path, size) in self._sizes.items())
        stacks = stacks and self._are_whole()
        asked = (path for path in self._flights.values() if path.with_suffix(".ask").exists())
        return stacks and all(path.exists() for path in asked)

    def _are_whole(self) -> bool:
        """Whether the files have not grown for a while: a stack is written line by line."""
        now, sizes = time.monotonic(), {pid: _size(path) for pid, (path, _) in self._sizes.items()}
        if sizes != self._grown[1]:
            self._grown = (now, sizes)
        return now - self._grown[0] >= _WRITES_S

    def read(self) -> None:
        """Read the stacks that were written after the last `ask`."""
        for pid, (path, size) in self._sizes.items():
            with contextlib.suppress(OSError):
                dump = file_reading.read_part(path, most=_MOST_BYTES, start=size).decode("utf-8", "replace")
                self._samples[pid][-1].frames = main_thread(dump)

    def settle(self) -> None:
        """Read the first answer. Its own bytes do not count as data that a process writes."""
        self.read()
        for pid, samples in self._samples.items():
            samples[0].io = _io_bytes(pid)

    def result(self) -> tuple[tuple[HangRank, ...], dict[str, Any]]:
        """Return what was found about each rank, and about the run: `timeout_s`, `backend`, `ras`."""
        self.read()
        about: dict[str, Any] = {}
        found = []
        silent = unanswered.peers(process.pid for process in self.ranks.values())
        for rank, process in sorted(self.ranks.items()):
            content = self._flight(rank)
            known = flight_recorder.collectives(content)
            about.setdefault("timeout_s", flight_recorder.timeout_s(content))
            about.setdefault("backend", flight_recorder.backend(content))
            facts = self._rank(rank, process.pid, known, content.get("error"))
            found.append(replace(facts, unanswered=silent.get(process.pid, ())))
        if about.get("backend") in (None, "nccl") and self._ras is not None:
            about["ras"] = self._ras.result() or ()
        return tuple(found), about

    def _flight(self, rank: int) -> Mapping[str, Any]:
        path = self._flights.get(rank)
        if path is None:
            return {"error": "it was not asked"}
        try:
            content = json_of(file_reading.read_whole(path, most=_MOST_FLIGHT_BYTES))
        except (OSError, ValueError):
            return {"error": "the rank has no process group, or did not answer"}
        return content if isinstance(content, dict) else {"error": "not an object"}

    def _rank(self, rank: int, pid: int, known: tuple[Collective, ...], unrecorded: Any) -> HangRank:
        now = time.monotonic()
        beat = beat_of(self.folder, rank, pid)
        raised, raised_at = raised_in(self.folder / RECORDED / f"{rank}.{pid}.raised")
        state = processes.state_of(pid)
        samples = self._samples.get(pid, [])
        frames = samples[-1].frames if samples else None
        return HangRank(
            rank,
            pid,
            state if state != "ended" else None,
            self._busy(pid),
            self._moves_data(pid),
            processes.kernel_wait_of(pid),
            system_calls.waits_for(pid),
            frames or (),
            at_exit=_is_at_exit(frames or ()),
            moved=len(samples) > 1 and samples[0].frames != frames if frames else None,
            silent=None if frames is not None else self._why_silent(rank, pid, state),
            steps=beat.steps if beat else None,
            step_s=round(now - beat.step_at, 1) if beat and beat.steps else None,
            batch_wait_s=round(now - beat.waits_since, 1) if beat and beat.waits_since else None,
            raised=raised,
            raised_at=raised_at,
            collectives=known,
            unrecorded=masked(clean(str(unrecorded)))[:200] if unrecorded else None,
            workers=tuple(self._workers(pid)),
            stopped_above=processes.stopped_above(pid) if state == "stopped" else (),
        )

    def _workers(self, parent: int) -> Iterable[Worker]:
        for pid in processes.with_descendants(parent)[1 : _MOST_WORKERS + 1]:
            samples = self._samples.get(pid, [])
            frames = (samples[-1].frames if samples else None) or ()
            loads = any(_LOADER in frame.file for frame in frames)
            state, wait = processes.state_of(pid), processes.kernel_wait_of(pid)
            yield Worker(pid, state, self._busy(pid), self._moves_data(pid), wait, frames, loads)

    def _busy(self, pid: int) -> bool | None:
        """Whether a process used the CPU between the first look and now, or would have if there had been one free."""
        samples, ticks = self._samples.get(pid, []), _cpu_ticks(pid)
        if not samples or samples[0].ticks is None or ticks is None:
            return None
        passed = time.monotonic() - samples[0].at
        if passed <= ANSWER_S:
            return None
        before = samples[0].runnable
        wanted = (found - before[tid] for tid, found in processes.runnable_s(pid).items() if tid in before)
        return (ticks - samples[0].ticks) / _TICKS_PER_S > _BUSY * passed or max(wanted, default=0) > _RUNNABLE * passed

    def _moves_data(self, pid: int) -> bool | None:
        """Whether a process read or wrote more than a few lines between the first look and the second."""
        samples = self._samples.get(pid, [])
        if len(samples) < 2 or samples[0].io is None or samples[1].io is None:
            return None
        return samples[1].io - samples[0].io > _LITTLE_BYTES or self._receives(pid, samples)

    def _receives(self, pid: int, samples: list[_Sample]) -> bool:
        """Whether the main thread receives data from a socket, which /proc/PID/io does not count."""
        before, after = samples[0].switches, samples[1].switches
        if before is None or after is None or after - before <= _FEW_WAITS:
            return False
        frames = samples[1].frames or ()
        return _SOCKET in (system_calls.waits_for(pid) or "") or any(
            _OF_SOCKETS.search(frame.file) for frame in frames[:2]
        )

    def _why_silent(self, rank: int, pid: int, state: str | None) -> str:
        if state in (None, "ended"):
            return "its process has ended"
        if state in ("stopped", "traced"):
            return f"it is {state}"
        if not (self.folder / RECORDED / f"{rank}.{pid}.stacks").exists():
            given = FOLDER.encode() in processes.environment(pid)
            return NOT_LOADED if given and _is_python(pid) else "it has no recorder"
        return "it did not answer"


def _is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    return False


def raised_in(path: Path) -> tuple[str | None, StackFrame | None]:
    """Return the exception that ended a rank's script, and the user's line that it went through last."""
    try:
        lines = file_reading.read_part(path, most=_MOST_BYTES, start=0).decode("utf-8", "replace").splitlines()
    except OSError:
        return None, None
    frames = []
    for line in reversed(lines[1:]):
        file, number, function = [*line.rsplit(":", 2), "", ""][:3]
        if number.isdigit():
            frames.append(frame_at(file, int(number), function))
    return (masked(clean(lines[0]))[:200] if lines else None), own_frame(frames)


def _cpu_ticks(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = processes.stat_fields(pid)
        return int(fields[11]) + int(fields[12])
    return None


def _io_bytes(pid: int) -> int | None:
    """Return the bytes of all reads and writes, also of pipes and caches (proc_pid_io(5): rchar, wchar)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = file_reading.read_part(f"/proc/{pid}/io", most=4096, start=0).decode("ascii", "replace")
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("rchar:", "wchar:")))
    return None


def _switches(pid: int) -> int | None:
    with contextlib.suppress(ValueError):
        return int(processes.status_of(pid, "voluntary_ctxt_switches"))
    return None


def _is_at_exit(frames: tuple[StackFrame, ...]) -> bool:
    """Whether no frame is that of a script: at its end, Python runs exit functions and finalizers."""
    return 0 < len(frames) < MOST_FRAMES and all(frame.function != "<module>" for frame in frames)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
