"""Send commands to all nodes of a Slurm job at once, and handle nodes that do not answer.

One step with one worker per node (worker.py) runs during the whole pre-flight. Commands go over srun's stdin, which
Slurm forwards to every task, and answers come over srun's stdout. So no shared folder is needed, and the workers run in
the environment of the ranks. If Slurm cannot start the step because of some nodes, it is started again without them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mgpu import hostlist
from mgpu.errors import CANNOT_RUN, UNKNOWN, MgpuError, reason
from mgpu.fleet import framing
from mgpu.fleet.allocation import Allocation
from mgpu.process import child_process, interpreter
from mgpu.snapshot import OTHER_MGPU
from mgpu.version import __version__

# Once half of the nodes have answered within T, the others get 3 T, but at least _PATIENCE_S.
_PATIENCE = 3.0
_PATIENCE_S = 15.0
_STARTS = 4  # attempts to start the step, each without the nodes on which the previous one failed
_END_S = 8.0  # for a step to stop: each worker stops its smoke test, which stops its ranks
_BY_ITSELF_S = 1.0  # for idle workers to exit when stdin is closed
_TAKEN_S = 30.0  # for srun to accept a command, since some nodes may be stuck
_KEPT_LINES = 40  # lines of a worker's stderr
# Packages installed on the node come before the head's mgpu.
_BOOT = "sys.path.append(sys.argv.pop(1)); from mgpu.fleet.worker import main; main()"
# fmt: off
# Variables in which a job's options are passed to its steps. They do not fit this step, which has one task per node
# with all of the job's resources there.
_NOT_OURS = (
    "SLURM_HOSTFILE", "SLURM_DISTRIBUTION", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND",
    "SLURM_TRES_PER_TASK", "SLURM_LABELIO", "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE",
    "SLURM_UNBUFFEREDIO", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_CORE",
    "SLURM_EXCLUSIVE", "SLURM_EXACT", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_WAIT", "SLURM_NODELIST",
)
# fmt: on
_LABEL = re.compile(r"^ *(\d+): ?(.*)$")
# srun's messages about a node: "srun: error: node3: task 2: Exited with exit code 1", "srun: error: Task launch for
# StepId=7.0 failed on node node3: Communication connection failure", "srun: error: Node failure on node3"
# (source=https://github.com/aws/aws-parallelcluster/issues/4179 of 21.08, /issues/1122 of 18.08; measured: 22.05).
_OF_A_NODE = (
    re.compile(r"^srun: error: Task launch for .*? failed on node (?P<nodes>[^\s:]+): (?P<why>.*)$"),
    re.compile(r"^srun: error: (?P<why>Node failure) on (?P<nodes>[^\s:]+)"),
    re.compile(r"^srun: error: (?P<nodes>[^\s:]+): tasks? [\d,\-\[\]]+: (?P<why>.*)$"),
)
# Messages about tasks after such a line are about tasks that Slurm killed with the step.
_GIVEN_UP = re.compile(r"^srun: (?:error: )?(?:Task launch for|Application launch failed|Job step aborted)")
# slurmstepd's message after scancel, a time limit or a preemption. With --no-kill, a node failure cancels no step.
_CANCELLED = re.compile(r"\*\*\* (?:STEP|JOB) .*\bCANCELLED AT (?!.*NODE FAILURE)")


@dataclass
class _Task:
    """One node's worker and its messages so far."""

    node: str
    reader: framing.Reader = field(default_factory=framing.Reader)
    stderr: list[str] = field(default_factory=list)
    greeted: bool = False


class Workers:
    """A worker on every node. A context manager: all workers are stopped at its end."""

    def __init__(self, allocation: Allocation, environ: Mapping[str, str] = os.environ) -> None:
        self.allocation = allocation
        self.lost: dict[str, str] = {}  # node -> why it is no longer used
        self.greetings: dict[str, dict[str, Any]] = {}  # node -> its worker's first message
        self._environ = environ
        self._number = 0
        self._starts = 0
        self._process: child_process.Program | None = None
        self._heard: queue.Queue[tuple[str, int, str]] = queue.Queue()
        self._tasks: dict[int, _Task] = {}
        self._given_up = False  # Slurm has ended the step itself
        self._own: list[str] = []  # srun's messages that are not about a node
        self._sent: list[str] = []  # all commands, to repeat them if the step is started again

    def __enter__(self) -> Workers:
        self._start(self.allocation.nodes)
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def nodes(self) -> list[str]:
        """The nodes that still answer."""
        return [node for node in self.allocation.nodes if node not in self.lost]

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
        self._send({"number": number, "of": None if of is None else list(of), **command})
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
            for node, message in self._hear(min(left, 0.5)):
                if message.get("number") == number and node in wanted and node not in {*answers, *self.lost}:
                    answers[node] = {**message, "heard": time.time()}
                    times.append(time.monotonic() - began)

    def stderr_of(self, node: str) -> str:
        """Return what a node's worker, or Slurm on that node, wrote to stderr."""
        return "\n".join(line for task in self._tasks.values() if task.node == node for line in task.stderr)

    def close(self) -> None:
        """Stop the step: by closing stdin, then with SIGTERM, which srun forwards, then with SIGKILL."""
        process = self._process
        if process is None:
            return
        self._process = None
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        for number, wait_s in ((None, _BY_ITSELF_S), (signal.SIGTERM, _END_S), (signal.SIGKILL, _END_S)):
            if number is not None:
                process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
                break
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    # ---- the step

    def _start(self, nodes: Sequence[str]) -> None:
        self._starts += 1
        self._tasks = {place: _Task(node) for place, node in enumerate(nodes)}
        self._own, self._given_up = [], False
        try:
            self._process = child_process.start(
                srun(self.allocation, nodes),
                env=interpreter.on_nodes(environment(self._environ)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                at_our_end=signal.SIGTERM,  # srun then ends its step
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        except OSError as error:
            raise MgpuError(f"cannot start srun: {reason(error)}", CANNOT_RUN) from None
        threads = []
        for name, stream in (("out", self._process.stdout), ("err", self._process.stderr)):
            assert stream is not None
            threads.append(threading.Thread(target=self._read, args=(name, stream, self._starts), daemon=True))
            threads[-1].start()
        threading.Thread(target=self._await, args=(self._process, threads, self._starts), daemon=True).start()
        for text in self._sent:
            self._write(text)

    def _read(self, name: str, stream: IO[bytes], start: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in stream:
                self._heard.put((name, start, line.decode("utf-8", "replace").rstrip("\n")))

    def _await(self, process: subprocess.Popen[bytes], threads: Sequence[threading.Thread], start: int) -> None:
        """Report the end of the step after its last output was read."""
        process.wait()
        for thread in threads:
            thread.join(2)
        self._heard.put(("over", start, str(process.returncode)))

    def _send(self, message: Mapping[str, Any]) -> None:
        text = framing.encode_message(message)
        self._sent.append(text)
        self._write(text)

    def _write(self, text: str) -> None:
        """Write to srun's stdin. Raises MgpuError (3) if srun accepts no more.

        srun buffers 1 MiB for a node that does not read (STDIO_MAX_FREE_BUF,
        source=https://github.com/SchedMD/slurm/blob/master/src/api/step_io.c).
        """
        assert self._process is not None and self._process.stdin is not None
        data, end = memoryview(text.encode() + b"\n"), time.monotonic() + _TAKEN_S
        with contextlib.suppress(OSError):  # the step has ended, which `_hear` will report
            number = self._process.stdin.fileno()
            while data:
                if not select.select([], [number], [], max(0.0, end - time.monotonic()))[1]:
                    raise MgpuError(f"srun accepted no input for {_TAKEN_S:.0f} s: a node may be stuck", UNKNOWN)
                data = data[os.write(number, data) :]

    def _hear(self, wait_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Return new messages of nodes, and store all other output."""
        found = []
        with contextlib.suppress(queue.Empty):
            name, start, line = self._heard.get(timeout=wait_s)
            while True:
                if start == self._starts:
                    found += self._take(name, line)
                name, start, line = self._heard.get_nowait()
        return found

    def _take(self, name: str, line: str) -> list[tuple[str, dict[str, Any]]]:
        if name == "over":
            self._handle_step_end(int(line))
            return []
        if name == "err" and _CANCELLED.search(line):
            self._given_up = True
            self._own.append(line.partition("*** ")[2].removesuffix(" ***"))
            return []
        labelled = _LABEL.match(line)
        task = self._tasks.get(int(labelled[1])) if labelled else None
        if labelled is None or task is None:
            if name == "err":
                self.heard_from_srun(line)
            return []
        if name == "err":
            task.stderr = [*task.stderr, labelled[2]][-_KEPT_LINES:]
            return []
        message = task.reader.take(labelled[2])
        if not isinstance(message, dict):
            return []
        if not task.greeted:
            task.greeted = True
            task.node = str(message.get("node") or task.node)
            self.greetings[task.node] = message
            if message.get("mgpu") != __version__:  # its answers may have another meaning
                theirs = message.get("mgpu") or "another version"
                self.lost.setdefault(task.node, f"{OTHER_MGPU}{theirs}, here it is {__version__}")
            return []
        return [(task.node, message)]

    def heard_from_srun(self, line: str) -> None:
        """Process a message of srun, about nodes (which are then lost) or about the step."""
        given_up = self._given_up
        self._given_up = given_up or bool(_GIVEN_UP.match(line))
        for pattern in _OF_A_NODE:
            if found := pattern.match(line):
                for node in () if given_up and pattern is _OF_A_NODE[-1] else _expand_hosts(found["nodes"]):
                    if node in self.allocation.nodes:
                        self._lose(node, found["why"].strip())
                return
        self._own.append(line)

    def _lose(self, node: str, why: str) -> None:
        """Record a node whose worker ended, with its last line of stderr, which explains more than its exit code."""
        last = self.stderr_of(node).strip().splitlines()
        self.lost.setdefault(node, f"{last[-1]} ({why})" if last else why)

    def _handle_step_end(self, code: int) -> None:
        """Handle the end of the step: start it again without the nodes on which Slurm could not start it.

        Raises MgpuError (3) if it was cancelled or cannot be started at all, which is not the fault of a node.
        """
        left = self.nodes
        # Commands are repeated: only the first one, which may run twice.
        if left and self.lost and self._given_up and self._number <= 1 and self._starts < _STARTS:
            self._start(left)
            return
        if not left:
            return
        lines = [line.removeprefix("srun: ").removeprefix("error: ") for line in self._own[-3:]]
        why = "; ".join(dict.fromkeys(lines)) or f"exit code {code}"
        raise MgpuError(f"the step with the workers ended, not because of its nodes: {why}", UNKNOWN)

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


def srun(allocation: Allocation, nodes: Sequence[str]) -> list[str]:
    """Return the srun command for the step with one worker per node."""
    return [
        *step(allocation, nodes, "mgpu-preflight", "--input=all", "--label"),
        sys.executable,
        "-c",
        interpreter.text_on_nodes(_BOOT),
        str(Path(__file__).resolve().parents[2]),
    ]


def step(allocation: Allocation, nodes: Sequence[str], name: str, *options: str) -> list[str]:
    """Return srun and its options for a step with one process per node.

    A step has all of its job's GPUs on a node and shares them with running steps (--overlap). It must request them only
    if the job has them per task (measured with Slurm 22.05).
    """
    number = str(len(nodes))
    cpus = allocation.cpus_per_node
    return [
        "srun",
        "--overlap",
        "--nodes",
        number,
        "--ntasks",
        number,
        "--ntasks-per-node",
        "1",
        "--nodelist",
        hostlist.fold(nodes),
        *(["--cpus-per-task", str(cpus)] if cpus else []),
        *(["--gpus-per-node", allocation.gpus] if allocation.gpus else []),
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",
        "--export=ALL",
        "--mpi=none",
        f"--job-name={name}",
        *options,
    ]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for srun without the job's options, which do not fit such a step."""
    return {name: value for name, value in environ.items() if name not in _NOT_OURS}


def deadline(times: Sequence[float], asked: int, limit_s: float, patience_s: float | None) -> float:
    """Return the deadline for the last answer, in seconds after the command."""
    if patience_s is None or len(times) * 2 < asked or asked < 2:
        return limit_s
    return min(limit_s, max(patience_s, _PATIENCE * _half(times, asked)))


def _half(times: Sequence[float], asked: int) -> float:
    """Return the time at which half of the nodes had answered, in seconds."""
    return sorted(times)[(asked + 1) // 2 - 1]


def _expand_hosts(text: str) -> tuple[str, ...]:
    try:
        return hostlist.expand(text)
    except ValueError:
        return (text,)
