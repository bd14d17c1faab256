"""Reach the workers on the nodes of a Slurm job through one step.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mgpu import hostlist
from mgpu.errors import CANNOT_RUN, UNKNOWN, MgpuError, reason
from mgpu.fleet import framing
from mgpu.fleet.allocation import Allocation
from mgpu.fleet.workers import KEPT_LINES, Workers
from mgpu.process import child_process, interpreter

_STARTS = 4  # attempts to start the step, each without the nodes on which the previous one failed
_END_S = 8.0  # for a step to stop: each worker stops its smoke test, which stops its ranks
_BY_ITSELF_S = 1.0  # for idle workers to exit when stdin is closed
_TAKEN_S = 30.0  # for srun to accept a command, since some nodes may be stuck
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


class SrunWorkers(Workers):
    """A worker on every node. A context manager: all workers are stopped at its end."""

    def __init__(self, allocation: Allocation, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(allocation.nodes)
        self.allocation = allocation
        self._environ = environ
        self._starts = 0
        self._process: child_process.Program | None = None
        self._heard: queue.Queue[tuple[str, int, str]] = queue.Queue()
        self._tasks: dict[int, _Task] = {}
        self._given_up = False  # Slurm has ended the step itself
        self._own: list[str] = []  # srun's messages that are not about a node
        self._sent: list[str] = []  # all commands, to repeat them if the step is started again

    def start(self) -> None:
        """Start the step. Raises MgpuError (126) if srun cannot be started."""
        self._start(self.allocation.nodes)

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

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to all workers."""
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
        with contextlib.suppress(OSError):  # the step has ended, which `hear` will report
            number = self._process.stdin.fileno()
            while data:
                if not select.select([], [number], [], max(0.0, end - time.monotonic()))[1]:
                    raise MgpuError(f"srun accepted no input for {_TAKEN_S:.0f} s: a node may be stuck", UNKNOWN)
                data = data[os.write(number, data) :]

    def hear(self, wait_s: float) -> list[tuple[str, dict[str, Any]]]:
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
            task.stderr = [*task.stderr, labelled[2]][-KEPT_LINES:]
            return []
        message = task.reader.take(labelled[2])
        if not isinstance(message, dict):
            return []
        if not task.greeted:
            task.greeted = True
            task.node = str(message.get("node") or task.node)
            self._greeted(task.node, message)
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


def _expand_hosts(text: str) -> tuple[str, ...]:
    try:
        return hostlist.expand(text)
    except ValueError:
        return (text,)
