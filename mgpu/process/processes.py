"""Which processes belong to a run, and how are all of them stopped?

The ranks of a launcher have their own sessions, so no process group contains them. They are found by an environment
variable that all of them inherit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mgpu.known_launchers import KnownLauncher
from mgpu.process.command import MARK

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "ended",
}


@dataclass(frozen=True)
class Process:
    """One running process of a run."""

    pid: int
    parent: int
    state: str
    session: int = 0


class Rank(NamedTuple):
    """One training process that a launcher has started."""

    pid: int
    error_file: str | None = None  # where torchrun expects its exception
    local_rank: int | None = None


def processes_of_run(run_id: str) -> list[Process]:
    """Return every running process with the run's mark. Other users' processes cannot be read and are not ours."""
    mark = f"{MARK}={run_id}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            state, parent, _, session, *_ = stat_fields(int(name))
            process = Process(int(name), int(parent), _STATES.get(state, state), int(session))
        except (OSError, ValueError, IndexError):
            continue  # it has exited, or belongs to another user
        if state != "Z":
            found.append(process)
    return found


def ranks_under(launcher: int) -> dict[int, Rank]:
    """Return the ranks that a launcher has started: in each branch below it, the first process with a RANK variable."""
    found: dict[int, Rank] = {}
    ahead = _children(launcher)
    while ahead:
        pid = ahead.pop()
        pairs = environment(pid)
        number = pairs.get(b"RANK", b"")
        if number.isdigit():
            local = pairs.get(b"LOCAL_RANK", b"")
            error_file = os.fsdecode(pairs.get(b"TORCHELASTIC_ERROR_FILE", b"")) or None
            found[int(number)] = Rank(pid, error_file, int(local) if local.isdigit() else None)
        elif pairs:  # none: it is exiting, perhaps a rank, and its children still have its variables
            ahead += _children(pid)
    return found


def ranks_around(pid: int) -> dict[int, Rank]:
    """Return the ranks below a launcher; for a rank, or one of its workers, that rank and the ones beside it.

    The workers of a rank (of a DataLoader, for example) inherit its RANK and are not ranks. A launcher may have a RANK
    of its own, the node's (Kubeflow), but then its ranks have another RANK or a LOCAL_RANK.
    """
    below = {number: rank for number, rank in ranks_under(pid).items() if _rank_words(rank.pid) != _rank_words(pid)}
    if below or not _rank_words(pid)[0].isdigit():
        return below
    top = pid
    while (parent := parent_of(top)) and _passes_rank_on(parent, top):
        top = parent
    local = _rank_words(top)[1]
    found = {int(_rank_words(top)[0]): Rank(top, local_rank=int(local) if local.isdigit() else None)}
    beside = ranks_under(parent).items() if parent else ()
    return {number: rank for number, rank in beside if _job_words(rank.pid) == _job_words(top)} | found


def _passes_rank_on(parent: int, child: int) -> bool:
    """Whether a process inherits its RANK from its parent, which is therefore the rank.

    Without LOCAL_RANK the variables may be of the whole container, so the parent must also run the same program.
    """
    words = _rank_words(child)
    return words == _rank_words(parent) and (words[1] != b"" or _program(parent) == _program(child) != "")


def _rank_words(pid: int) -> tuple[bytes, bytes]:
    pairs = environment(pid)
    return pairs.get(b"RANK", b""), pairs.get(b"LOCAL_RANK", b"")


def _job_words(pid: int) -> list[bytes | None]:
    pairs = environment(pid)
    return [pairs.get(name) for name in (b"MASTER_ADDR", b"MASTER_PORT", b"WORLD_SIZE")]


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def ranks_of(launcher: int, known: KnownLauncher, *, alone: bool) -> dict[int, Rank]:
    """Return the ranks of a run now. `alone`: it may have a single rank, which has no RANK variable."""
    found = ranks_under(launcher) if known.starts_ranks else {}
    if not found and alone and known.lone_rank:
        found = lone_rank_under(launcher, known.lone_rank == "child")
    return found


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if there is no such process."""
    try:
        return int(stat_fields(pid)[1])
    except (OSError, ValueError, IndexError):
        return None


def stopped_above(pid: int) -> tuple[int, ...]:
    """Return the ancestors of a process that are stopped, the outermost first."""
    found: list[int] = []
    while (parent := parent_of(pid)) and parent > 1:
        found += [parent] if state_of(parent) == "stopped" else []
        pid = parent
    return tuple(reversed(found))


def lone_rank_under(launcher: int, starts_it: bool) -> dict[int, Rank]:
    """Return the rank of a single-process run: the launcher itself, or its child if `starts_it`."""
    if not starts_it:
        return {0: Rank(launcher)}
    children = _children(launcher)
    return {0: Rank(min(children))} if children else {}


def with_descendants(pid: int) -> list[int]:
    """Return a process and the processes below it."""
    found = [pid]
    for one in found:
        found += _children(one)
    return found


def environment(pid: int) -> dict[bytes, bytes]:
    """Return the environment that a process was started with; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return dict(pair.partition(b"=")[::2] for pair in file.read().split(b"\0"))
    except OSError:
        return {}


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except (OSError, ValueError):
        return []


def state_of(pid: int) -> str | None:
    """Return the state: "running", "sleeping", "stopped"; "ended" for a zombie, None if there is no such process."""
    try:
        return _STATES.get(stat_fields(pid)[0])
    except (OSError, ValueError, IndexError):
        return None


def kernel_wait_of(pid: int) -> str | None:
    """Return the kernel function in which a process waits, if the kernel reports it."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="utf-8", errors="replace") as file:
            return file.read().strip().strip("0") or None
    except OSError:
        return None


def stat_fields(pid: int) -> list[str]:
    """Return the fields of proc_pid_stat(5) from the third on: state, parent, ... Raises OSError."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def status_of(pid: int, name: str) -> str:
    """Return one value of /proc/PID/status: "00000001" of "SigCgt"; "" if there is none."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(f"{name}:")), "")
    except OSError:
        return ""


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def signal_thread(pid: int, thread: int, number: int) -> None:
    """Send a signal to one thread of a process, if it still exists, and to no other thread."""
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)  # glibc 2.30 and later
    if tgkill is None or tgkill(pid, thread, int(number)) != 0:
        signal_all([pid], number)


def threads_of(pid: int) -> list[int]:
    """Return the threads of a process, the main one first."""
    try:
        return sorted((int(name) for name in os.listdir(f"/proc/{pid}/task")), key=lambda tid: (tid != pid, tid))
    except OSError:
        return []


def runnable_s(pid: int) -> dict[int, float]:
    """Return for each thread how long it ran or waited for a CPU; empty if the kernel does not count it (schedstat)."""
    found = {}
    for thread in threads_of(pid):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii", errors="replace") as file:
                ran, waited, *_ = map(int, file.read().split())
            found[thread] = (ran + waited) / 1e9
    return found


def thread_s(pid: int, thread: int) -> float:
    """Return the CPU time of a thread; 0.0 if there is no such thread."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def thread_name(pid: int, thread: int) -> str:
    """Return the name of a thread, as the kernel has it; "" if there is no such thread."""
    try:
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def end_run(run_id: str, grace_s: float, sessions: Collection[int] | None = None) -> tuple[list[int], list[int]]:
    """Stop every process of a run: TERM (and CONT, for stopped ones), after `grace_s` KILL.

    `sessions`: only the processes in these. Returns the pids that were running when called, and those that remain
    even after KILL.
    """

    def running() -> list[Process]:
        return [one for one in processes_of_run(run_id) if sessions is None or one.session in sessions]

    there = [process.pid for process in running()]
    if not there:
        return [], []
    signal_all(there, signal.SIGTERM)
    signal_all(there, signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    while (left := running()) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + 3.0
    while left and time.monotonic() < deadline:
        signal_all((process.pid for process in left), signal.SIGKILL)
        time.sleep(0.05)
        left = running()
    return there, [process.pid for process in left]
