"""Do the ranks of a run send each other anything, or does each of them work alone?

Sampled from outside, with nothing added to the ranks: the kernel's TCP connections between their processes. Sampling
ends once data was seen, which DDP's first broadcast is. What can be missed is reported as unknown, never as nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from mgpu import engine
from mgpu.engine import selections
from mgpu.errors import reason
from mgpu.process import connections, processes
from mgpu.process.connections import ESTABLISHED, LISTEN, TIME_WAIT, Connection
from mgpu.snapshot import Exchange, Run, Snapshot

_CERTAIN_BYTES = 16 << 20  # also of a run whose parameters are not known
_ENOUGH_BYTES = 64 << 10  # no more samples: the gradients of 16,384 parameters, or NCCL's setup of a communicator
_LATER_S, _LATER_INTERVAL_S = 120.0, 2.0
_SHARE = 0.01  # of a CPU, at most, for the samples of a run with many processes
_REPORT_S = 300.0  # until a run that goes on is reported: datasets are often prepared before the ranks start to train
_LIBRARY = b"/libtorch"  # in the path of libtorch.so and libtorch_cpu.so, as torch is imported
_CUDA = "/dev/nvidia-uvm"  # opened by CUDA, not by NVML
# These carry data between ranks in other ways.
_OTHER_WAYS = (b"/libmpi.so", b"/libucp.so", b"/libccl.so", b"/libhccl", b"/libtpu")


class Supervised(Protocol):
    """The part of the run's supervisor used here."""

    started: float

    @property
    def ranks(self) -> Mapping[int, Any]:
        """The processes, by rank."""

    def say(self, text: str) -> None:
        """Write to the user's terminal and mgpu's log."""


class ExchangeWatch:
    """Samples the connections between the ranks of one run."""

    def __init__(
        self,
        ranks: int,
        nodes: int,
        clock: Callable[[], float] = time.monotonic,
        trained: Callable[[], int] | None = None,
    ) -> None:
        """`ranks`: on this machine. `trained`: returns the bytes of the parameters of each; 0: not known."""
        self._ranks, self._clock, self._trained = ranks, clock, trained
        self._over = ranks < 2
        self.gap: str | None = "the run spans several nodes" if nodes > 1 else None
        self._due = 0.0
        self._with_torch: set[int] = set()
        self._first_s = self._last_s = 0.0
        self._carried: dict[frozenset[connections.Address], int | None] = {}
        self._on_gpus = self._reported = False
        self._before: set[tuple[connections.Address, connections.Address]] | None = None
        self._service_ports: set[int] = set()
        self._of_others: set[frozenset[connections.Address]] = set()
        self._unexplained = False
        self._trained_bytes = 0

    def tick(self, supervisor: Supervised) -> None:
        """Take a sample if one is due. Cheap; called often."""
        if self._over or self.gap or self._clock() < self._due:
            return
        # Read before the sample: it then has what the first step sent.
        trained = self._trained_bytes or (self._trained() if self._trained else 0)
        used = time.thread_time()  # where ranks keep the CPUs busy, the wall time of a sample is many times as long
        try:
            self._sample(supervisor.ranks)
        except OSError as error:
            self.gap = f"the connections of the ranks cannot be read ({reason(error)})"
            return
        self._trained_bytes = trained
        now = self._clock()
        interval = _LATER_INTERVAL_S if now - supervisor.started > _LATER_S else 0.0
        self._due = now + max(interval, (time.thread_time() - used) / _SHARE)
        if self._is_enough(self._total()):
            self._over = True
        elif not self._reported and self._last_s - self._first_s >= _REPORT_S:
            self._report(now - supervisor.started, supervisor)

    def _is_enough(self, carried: int | None) -> bool:
        """Whether the ranks certainly exchange gradients, or it cannot be determined.

        Random states are sent, too: some 5 kB for each epoch. So many bytes are compared with the parameters, which
        are known after the first step.
        """
        if carried is None or carried >= _CERTAIN_BYTES or self._on_gpus:
            return carried is None or carried >= _ENOUGH_BYTES
        return carried >= _ENOUGH_BYTES and (self._trained is None or 0 < self._trained_bytes <= carried)

    def result(self) -> Exchange | None:
        """Return what was observed; None if there is only one rank here."""
        if self._ranks < 2:
            return None
        if not self._over and self.gap is None:
            try:
                self._look_for_closed(connections.tcp_connections())
            except OSError:
                self._unexplained = True
        return self._fact()

    def _fact(self) -> Exchange:
        watched_s = round(self._last_s - self._first_s, 1)
        found = Exchange(watched_s, len(self._carried), self._total(), self._on_gpus, self.gap, self._trained_bytes)
        if found.gap is None and len(self._with_torch) < 2:
            return replace(found, gap="fewer than two ranks imported torch")
        if found.gap is None and self._unexplained and not self._over:
            return replace(found, gap="a connection closed before its processes could be found")
        return found

    def _report(self, seconds: float, supervisor: Supervised) -> None:
        """Report a run that still goes on, once."""
        self._reported = True
        run = Run(0, 0, seconds, expected=self._ranks, going=True, exchange=self._fact())
        for outcome in engine.judge(Snapshot(run=run), selections.RANKS_ALONE):
            if outcome.problem:
                supervisor.say(f"{outcome.problem.title}. {outcome.problem.cause}")

    def _total(self) -> int | None:
        """Return the bytes on all connections between ranks; None if the kernel does not count them."""
        counts = [count for count in self._carried.values() if count is not None]
        return sum(counts) if len(counts) == len(self._carried) else None

    # One sample

    def _sample(self, ranks: Mapping[int, Any]) -> None:
        found = connections.tcp_connections()
        owner: dict[int, int] = {}  # inode -> rank
        for rank, process in ranks.items():
            for pid in processes.with_descendants(process.pid):
                for inode in self._sockets(rank, pid):
                    owner[inode] = rank
        self._take(found, owner)
        self._look_for_closed(found)
        if len(self._with_torch) >= 2:
            self._last_s = self._clock()
            self._first_s = self._first_s or self._last_s

    def _sockets(self, rank: int, pid: int) -> set[int]:
        """Return the inodes of a process's sockets, and note whether it uses torch and CUDA."""
        try:
            files = list(connections.open_files(pid))
            if rank not in self._with_torch:
                self._look_for_torch(rank, pid)
        except (FileNotFoundError, ProcessLookupError):  # it has exited
            return set()
        self._on_gpus = self._on_gpus or any(name.startswith(_CUDA) for name in files)
        return connections.sockets_of(files)

    def _look_for_torch(self, rank: int, pid: int) -> None:
        with open(f"/proc/{pid}/maps", "rb") as file:
            libraries = file.read()
        if _LIBRARY not in libraries:
            return
        self._with_torch.add(rank)
        if any(name in libraries for name in _OTHER_WAYS):
            self.gap = "a rank has loaded a library that can exchange data without TCP"
        elif os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            self.gap = "the ranks have their own network namespace"

    def _take(self, found: list[Connection], owner: Mapping[int, int]) -> None:
        """Add what the connections between two ranks have carried."""
        ends = {(one.local, one.remote): one for one in found if one.state == ESTABLISHED}
        for (local, remote), one in ends.items():
            other = ends.get((remote, local))
            if other and one.inode and other.inode and one.inode not in owner and other.inode not in owner:
                self._of_others.add(frozenset((local, remote)))
            if other is None or one.inode not in owner or owner.get(other.inode, owner[one.inode]) == owner[one.inode]:
                continue
            pair = frozenset((local, remote))
            before = self._carried.get(pair, 0)
            counted = None if one.sent is None or one.received is None else one.sent + one.received
            self._carried[pair] = None if counted is None or before is None else max(before, counted)
        listening = [one for one in found if one.state == LISTEN]
        self._service_ports |= {one.local[1] for one in listening if one.inode not in owner}
        self._service_ports -= {one.local[1] for one in listening if one.inode in owner}

    def _look_for_closed(self, found: list[Connection]) -> None:
        """Note connections within this machine that were closed before a sample could see whose they were.

        The kernel keeps them for a minute. Those to a port on which no rank listened are none between ranks, and
        those that were seen open in other processes are not either.
        """
        here = {one.local[0] for one in found}
        closed = {
            (one.local, one.remote) for one in found if one.state == TIME_WAIT and {one.local[0], one.remote[0]} <= here
        }
        if self._before is None:
            self._before = closed
        for local, remote in closed - self._before:
            known = frozenset((local, remote)) in self._carried.keys() | self._of_others
            if not known and not {local[1], remote[1]} & self._service_ports:
                self._unexplained = True
