"""The launcher of a run on several hosts: start the ranks everywhere over ssh, copy their output, stop them together.

It is the program that `mgpu launch --hosts` supervises, so a run on hosts is detached, attached to, listed and stopped
like any other. If it ends, however it ends, each host stops its ranks (far_side.py).

A host reports the end of its part, then its files travel. If the connection breaks in between, the end is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from mgpu import file_reading, files
from mgpu.errors import LAUNCH_REFUSED, MgpuError
from mgpu.fleet import far_run, part_files
from mgpu.fleet.part_files import Received
from mgpu.fleet.ssh_workers import SshWorkers
from mgpu.hosts.named_hosts import Host
from mgpu.launch import node_answers
from mgpu.process import signals
from mgpu.report.document import text
from mgpu.structured_text import json_of
from mgpu.text import visible

ORDERS, RESULTS = "hosts.json", node_answers.HOSTS
_SPARE, _SPARE_BYTES = "spare", 512 << 10  # a file that keeps room for the results: the disk may fill meanwhile
_START_S = 60.0  # for the connections
_OTHERS_S = 15.0  # after the first host has failed: its ranks' partners mostly fail by themselves within seconds
# From a request to stop until the connections are closed, which kills what is left: more than a host needs whose ranks
# do not stop by themselves (Command.stop_s). A host that is down is lost much earlier.
STOP_S = 40.0
_FILES_S = 60.0  # for the files of the hosts to travel, after the last part has ended
_SAME_S = 0.5  # a second signal this soon is the same request
_POLL_S = 0.1
_REQUEST_S = 0.5  # between two looks for a request
_LARGEST = 16 << 20  # bytes of the orders


def main() -> None:
    """Run; the argument is the run's folder. The exit code is that of the host that failed first."""
    folder = Path(sys.argv[1])
    try:
        orders = read_orders(folder)
    except MgpuError as error:
        sys.exit(_refused(error.message))
    sys.exit(_Run(folder, orders).run())


def read_orders(folder: Path) -> dict[str, Any]:
    """Return the orders in a run's folder, with `Host` objects. Raises MgpuError (125) if they are damaged."""
    path = folder / ORDERS
    try:
        orders = json_of(file_reading.read_own(path, most=_LARGEST))
        hosts = [Host(**host) for host in orders["hosts"]]
        known = {"folder", "pass_env", "interfaces", "common", "parts"} <= orders.keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise MgpuError(f"{path}: the orders of this run are damaged", LAUNCH_REFUSED)
    return {**orders, "hosts": hosts}


class _Run:
    """One run on all its hosts."""

    def __init__(self, folder: Path, orders: Mapping[str, Any]) -> None:
        self.folder, self.orders = folder, orders
        self.workers = SshWorkers(orders["hosts"], folder=orders["folder"])
        self.ends: dict[str, dict[str, Any]] = {}  # how each part ended, in the order of their ends
        self.done: set[str] = set()  # hosts that send nothing more
        self.ended_at = float("inf")  # when the last part ended
        self.temporary: set[str] = set()  # hosts whose logs are in a folder that they remove
        self.asked: list[int] = []  # signals that are not passed on yet
        self.signalled: int | None = None  # the first one
        self._noted_at = 0.0
        self.stopping_since: float | None = None
        self.files = Received(folder / RESULTS, self.workers.all_nodes)
        self._requested, self._looked_at = 0, 0.0
        self.rest: dict[tuple[str, str], str] = {}  # the last line of each stream, without an end yet

    def run(self) -> int:
        """Run to the end; return the exit code."""
        handlers = dict.fromkeys((signal.SIGINT, *signals.STOPPING), self._note)
        _reserve(self.folder / RESULTS / _SPARE)
        with signals.installed_handlers(handlers), self.workers:
            try:
                if why := self._connect():
                    return _refused(why) if self.signalled is None else 128 + self.signalled
                self._start()
                self._follow()
            except MgpuError as error:
                return _refused(error.message)
        self._store()
        if self.signalled is not None:
            return 128 + self.signalled
        return next((end["code"] for end in self.ends.values() if end["code"]), 0)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Note a request to stop. A terminal's Ctrl-C may arrive twice: from it and from the supervisor."""
        now = time.monotonic()
        if self.signalled is None or now - self._noted_at > _SAME_S:
            self.signalled, self._noted_at = self.signalled or number, now
            self.asked.append(number)

    def _connect(self) -> str:
        """Connect to all hosts; return why one of them cannot be used."""
        end = time.monotonic() + _START_S
        workers = self.workers
        while len(workers.greetings) + len(workers.lost) < len(workers.all_nodes):
            workers.hear(_POLL_S)
            if self.asked:
                return "interrupted while connecting"
            if time.monotonic() > end:
                late = [node for node in workers.all_nodes if node not in workers.greetings]
                return f"{', '.join(late)}: no connection within {_START_S:.0f} s"
        for node, access in workers.access.items():
            if access.folder_error:
                return f"{node}: {self.orders['folder']}: {access.folder_error}"
            if access.python != access.python_wanted and not access.problem:
                return f"{node}: no {access.python_wanted}"
        return "; ".join(f"{node}: {why}" for node, why in workers.lost.items())

    def _start(self) -> None:
        passed = {name: os.environ[name] for name in self.orders["pass_env"] if name in os.environ}
        parts = {
            node: {**self.orders["common"], **own, "environment": passed} for node, own in self.orders["parts"].items()
        }
        self.workers.send({"do": "launch", "number": 1, "hosts": parts, "interfaces": self.orders["interfaces"]})

    def _follow(self) -> None:
        """Copy the output until every host has ended and sent its files."""
        workers, failed_at = self.workers, None
        while len(self.done) < len(workers.all_nodes):
            for node, message in workers.hear(_POLL_S):
                self._take(node, message)
            for node in workers.lost.keys() - self.done:
                self._lose(node, workers.lost[node])
            self._pass_request()
            if failed_at is None and any(end["code"] for end in self.ends.values()):
                failed_at = time.monotonic()
            if any(end.get("lost") for end in self.ends.values()):  # the others can only wait for it
                failed_at = float("-inf")
            self._stop_if_asked(failed_at)
            if self._is_late():
                break
        for node in sorted(set(workers.all_nodes) - self.done):
            self._lose(node, f"the connection ended: no answer within {STOP_S:.0f} s of the request to stop")

    def _take(self, node: str, message: Mapping[str, Any]) -> None:
        """Handle a message of a host."""
        event = message.get("event")
        if event == "output":
            self._copy(node, str(message["stream"]), str(message["text"]))
        elif event == far_run.NOTICE:
            self.temporary.add(node)
            self._say(node, str(message.get("text")))
        elif event == part_files.EVENT:
            if why := self.files.take(node, message):
                print(f"mgpu: {visible(why)}", file=sys.stderr, flush=True)
        elif event == far_run.END:
            self._end(node, message)
        elif "code" in message or "error" in message:
            if node not in self.ends:
                self._end(node, message)
            self.done.add(node)

    def _lose(self, node: str, why: str) -> None:
        """Handle the end of a connection, or of the patience with a host."""
        if node not in self.ends:
            self._end(node, {"code": 1, "document": None, "said": "", "lost": why})
        self.done.add(node)
        if node in self.workers.greetings and node in self.temporary:
            self._say(node, "its logs are lost: they were in a temporary folder there")
        elif node in self.workers.greetings:
            self._say(node, f"its logs could not be collected; on {node} they are in {self.orders['common']['logs']}/")

    def _is_late(self) -> bool:
        """Whether the connections are to be closed now, which stops what is left."""
        now = time.monotonic()
        if len(self.ends) < len(self.workers.all_nodes) or self.signalled is not None:
            return self.stopping_since is not None and now - self.stopping_since > STOP_S
        self.ended_at = min(self.ended_at, now)
        return now - self.ended_at > _FILES_S

    def _stop_if_asked(self, failed_at: float | None) -> None:
        """Pass on a request to stop, or stop the others some time after the first failure."""
        late = failed_at is not None and time.monotonic() - failed_at > _OTHERS_S
        if not self.asked and not (late and self.stopping_since is None):
            return
        number = self.asked.pop(0) if self.asked else signal.SIGTERM
        self.stopping_since = self.stopping_since or time.monotonic()
        self.workers.send({"do": "stop", "signal": int(number)})

    def _pass_request(self) -> None:
        """Ask all hosts what their ranks do, if another process here wants to know (node_answers.py)."""
        now = time.monotonic()
        if now - self._looked_at < _REQUEST_S:
            return
        self._looked_at = now
        if (number := node_answers.requested(self.folder / RESULTS)) > self._requested:
            self._requested = number
            self.workers.send({"do": "why", "request": number})

    def _end(self, node: str, message: Mapping[str, Any]) -> None:
        """Store how a host's part ended, and show what mgpu said there if the program never started."""
        end = {"code": LAUNCH_REFUSED, "document": None, "said": message.get("error", ""), **message}
        self.ends[node] = end
        for stream in ("out", "err"):
            if self.rest.get((node, stream)):
                self._copy(node, stream, "\n")
        said = end.get("lost") or end["said"]
        for line in said.strip().splitlines() if said and end["code"] else ():
            self._say(node, line)

    def _say(self, node: str, text: str) -> None:
        """Show a message about a host. It came from ssh or from another machine."""
        self._copy(node, "err", f"mgpu: {visible(text)}\n")

    def _copy(self, node: str, stream: str, new: str) -> None:
        """Write the whole lines of a host's output, each with its name."""
        *lines, rest = (self.rest.get((node, stream), "") + new).split("\n")
        self.rest[node, stream] = rest
        target = sys.stdout if stream == "out" else sys.stderr
        for line in lines:
            data = f"[{node}] {line}\n".encode("utf-8", "surrogateescape")
            target.buffer.write(data)
        target.flush()

    def _store(self) -> None:
        """Write what each host said of the end, for the verdict."""
        place = self.folder / RESULTS
        with contextlib.suppress(OSError):
            (place / _SPARE).unlink(missing_ok=True)
        for number, (node, end) in enumerate(self.ends.items()):
            kept = {"host": node, "order": number, "code": end["code"], "lost": end.get("lost"), "said": end["said"]}
            try:
                files.write(place / f"{number}.json", text({**kept, "document": end["document"]}), mode=0o600)
            except MgpuError as error:  # the exit code is still right
                print(f"mgpu: the verdict of {node} is lost: {visible(error.message)}", file=sys.stderr, flush=True)


def _reserve(path: Path) -> None:
    """Fill a file, so that its place can be used when the disk has become full."""
    with contextlib.suppress(OSError), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _SPARE_BYTES)


def _refused(why: str) -> int:
    print(f"mgpu: not started: {visible(why)}", file=sys.stderr, flush=True)
    return LAUNCH_REFUSED


def orders_text(orders: Mapping[str, Any]) -> str:
    """Return the orders as they are stored: no value of the environment is among them."""
    return json.dumps(orders, indent=1)
