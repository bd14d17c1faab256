"""Send commands to all machines at once, and handle machines that do not answer.

One worker (worker.py) per machine runs all the time. How it is started and reached is a matter of the subclass: one
step of Slurm (srun_workers.py), or one ssh connection per host (ssh_workers.py).
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from mgpu.snapshot import OTHER_MGPU
from mgpu.version import __version__

# Once half of the nodes have answered within T, the others get 3 T, but at least _PATIENCE_S.
_PATIENCE = 3.0
_PATIENCE_S = 15.0
KEPT_LINES = 40  # lines of a worker's stderr


class Workers(abc.ABC):
    """A worker on every node. A context manager: all workers are stopped at its end."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.all_nodes = tuple(nodes)
        self.lost: dict[str, str] = {}  # node -> why it is no longer used
        self.greetings: dict[str, dict[str, Any]] = {}  # node -> its worker's first message
        self._number = 0

    @abc.abstractmethod
    def start(self) -> None:
        """Start the workers. Raises MgpuError if none can be started."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop all workers, and what they started."""

    @abc.abstractmethod
    def stderr_of(self, node: str) -> str:
        """Return what a node's worker, or what starts it there, wrote to stderr."""

    @abc.abstractmethod
    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to all workers."""

    @abc.abstractmethod
    def hear(self, wait_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Return new messages of nodes, waiting at most `wait_s` for the first, and store all other output."""

    def __enter__(self) -> Workers:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def nodes(self) -> list[str]:
        """The nodes that still answer."""
        return [node for node in self.all_nodes if node not in self.lost]

    def ask(
        self,
        command: Mapping[str, Any],
        limit_s: float,
        *,
        of: Collection[str] | None = None,
        show: Callable[[int, int, Sequence[str]], None] | None = None,
        patience_s: float | None = _PATIENCE_S,
    ) -> dict[str, dict[str, Any]]:
        """Send one command to the nodes (or those in `of`) and return their answers.

        A node that does not answer within `limit_s` is lost. `patience_s`: so is one that has not answered after this
        time, once half of the nodes have; None: all nodes have the full time. `show` is called repeatedly with the
        number of answers, the number of nodes, and the nodes that have not answered.
        """
        self._number += 1
        number = self._number
        self.send({"number": number, "of": None if of is None else list(of), **command})
        began = time.monotonic()
        wanted = [node for node in self.nodes if of is None or node in of]
        answers: dict[str, dict[str, Any]] = {}
        times: list[float] = []
        shown = began
        while True:
            waiting = [node for node in wanted if node not in answers and node not in self.lost]
            if show and (time.monotonic() - shown > 1 or not waiting):
                shown = time.monotonic()
                show(len(answers), len(wanted), waiting)
            if not waiting:
                return answers
            left = deadline(times, len(wanted), limit_s, patience_s) - (time.monotonic() - began)
            if left <= 0:
                self._give_up(waiting, time.monotonic() - began, times, len(wanted))
                return answers
            for node, message in self.hear(min(left, 0.5)):
                if message.get("number") == number and node in wanted and node not in {*answers, *self.lost}:
                    answers[node] = {**message, "heard": time.time()}
                    times.append(time.monotonic() - began)

    def _greeted(self, node: str, message: dict[str, Any]) -> None:
        """Store a worker's first message."""
        self.greetings[node] = message
        if message.get("mgpu") != __version__:  # its answers may have another meaning
            theirs = message.get("mgpu") or "another version"
            self.lost.setdefault(node, f"{OTHER_MGPU}{theirs}, here it is {__version__}")

    def _lose(self, node: str, why: str) -> None:
        """Record a node whose worker ended, with its last line of stderr, which explains more than its exit code."""
        last = self.stderr_of(node).strip().splitlines()
        self.lost.setdefault(node, f"{last[-1]} ({why})" if last else why)

    def _give_up(self, nodes: Sequence[str], waited_s: float, times: Sequence[float], asked: int) -> None:
        half = (
            f"; half of the {asked} nodes answered in {_half(times, asked):.1f} s"
            if len(times) * 2 >= asked > 1
            else ""
        )
        for node in nodes:
            never = node not in self.greetings
            what = "its worker did not start" if never else "no answer"
            self._lose(node, f"{what} within {waited_s:.0f} s{half}")


def deadline(times: Sequence[float], asked: int, limit_s: float, patience_s: float | None) -> float:
    """Return the deadline for the last answer, in seconds after the command."""
    if patience_s is None or len(times) * 2 < asked or asked < 2:
        return limit_s
    return min(limit_s, max(patience_s, _PATIENCE * _half(times, asked)))


def _half(times: Sequence[float], asked: int) -> float:
    """Return the time at which half of the nodes had answered, in seconds."""
    return sorted(times)[(asked + 1) // 2 - 1]
