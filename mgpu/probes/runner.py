"""How is anything foreign asked without hanging or dying with it?

Each probe is a child process that runs one file of `probes/` (or `config/loader.py`) and writes JSON lines to a pipe of
its own: `{"fact": value, …}`, `{"gap": {fact: [kind, reason]}}`, `{"asking": "what it is about to do"}`. A probe that
aborts, hangs or prints costs its own facts only; what it was asking becomes the reason. All run side by side. Cheap
probes share a child (`Probe.then`), one after the other: a start of Python costs more than what they read.

Imports little, so that the doctor's children are on their way before mgpu has loaded its checks.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from mgpu.process import child_process, interpreter

# Results go to a copy of stdout, and stdout itself to stderr: foreign libraries print.
_BOOT = """\
import json, os, sys
os.set_blocking(int(sys.argv[2]), False)
try: os.read(int(sys.argv[2]), 1); os._exit(1)  # mgpu ended before its tie to this process was held
except BlockingIOError: pass
out = os.fdopen(os.dup(1), "w", encoding="utf-8"); os.dup2(2, 1)
def run(path, arguments):
    space = {"__name__": "mgpu_probe", "__file__": path}
    with open(path, encoding="utf-8") as file: exec(compile(file.read(), path, "exec"), space)
    for found in space["probe"](**arguments):
        out.write(json.dumps(found) + "\\n"); out.flush()
for place, (path, arguments) in enumerate(json.loads(sys.argv[1])):
    out.write('{"asking": null}\\n')
    try: run(path, arguments)
    except Exception as error:
        out.write(json.dumps({"raised": [place, f"{type(error).__name__}: {error}"]}) + "\\n"); out.flush()
out.close()
os._exit(0)
"""
_HUNG_DRIVER_GRACE_S = 2.0  # once NVML hangs, torch.cuda would hang on the same driver: it gets this much longer
_REAP_S = 1.0  # a killed child in uninterruptible sleep is given up after this
_KEEP_STDERR = 4096


@dataclass(frozen=True)
class Probe:
    """One file of `probes/`, the facts it brings, and how long it may take."""

    name: str
    facts: tuple[str, ...]
    deadline_s: float
    in_training_python: bool = False  # run by the interpreter of the training, not by mgpu's own
    bare: bool = False  # needs the standard library only: Python starts faster without site-packages
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # variables on top of mgpu's own
    file: Path | None = None
    then: tuple[Probe, ...] = ()  # asked after it, in the same child

    @property
    def path(self) -> Path:
        """The file the child runs."""
        return self.file or Path(__file__).with_name(f"{self.name}.py")

    @property
    def all(self) -> tuple[Probe, ...]:
        """The probes of its child, in order."""
        return (self, *self.then)

    @property
    def brings(self) -> tuple[str, ...]:
        """The facts its child brings."""
        return tuple(fact for probe in self.all for fact in probe.facts)


# NVML: nvmlInit alone takes 0.5-3 s on 8 GPUs without persistence mode. torch: an import from a
# cold network file system takes tens of seconds.
NVML = Probe("nvml", ("driver", "gpus", "links", "nvml_wait"), 10.0)
LIBRARIES = Probe("libraries", ("libraries",), 10.0)
PACKAGES = Probe(
    "packages", ("python", "packages", "pytorch", "nccl"), 10.0, in_training_python=True, then=(LIBRARIES,)
)
KERNEL = Probe("kernel", ("kernel",), 5.0)
PCI = Probe("pci", ("pci",), 5.0)
INFINIBAND = Probe("infiniband", ("infiniband",), 5.0)
LEFTOVERS = Probe("leftovers", ("leftovers",), 5.0)
SYSTEM = Probe(
    "system", ("host", "container", "slurm", "system"), 5.0, bare=True, then=(KERNEL, PCI, INFINIBAND, LEFTOVERS)
)
STORAGE = Probe("storage", ("storage",), 5.0, bare=True)  # a child of its own: statfs on a dead NFS server hangs
NETWORK = Probe("network", ("network",), 6.0, bare=True)
KERNEL_LOG = Probe("kernel_log", ("kernel_log",), 5.0, bare=True)
PYTORCH = Probe("pytorch", ("torch_runtime",), 60.0, in_training_python=True)

QUICK = (NVML, PACKAGES, SYSTEM, STORAGE, NETWORK)
DEFAULT = (*QUICK, KERNEL_LOG, PYTORCH)
OF_CONFIGS = (NVML, PACKAGES, replace(SYSTEM, then=()))  # what the checks of a config read of a machine

# What every launch looks at. The rest does not change from launch to launch: the smoke test saw it. Few children, since
# each costs a start of Python; what loads foreign libraries is last in its own.
_HERE = replace(
    SYSTEM, deadline_s=10.0, in_training_python=True, bare=False, then=(NETWORK, replace(PACKAGES, then=()))
)
OF_LAUNCH = (NVML, _HERE, STORAGE)


def of_launch(folders: Sequence[str]) -> tuple[Probe, ...]:
    """The same, with the folders that a script was told to write to."""
    if not folders:
        return OF_LAUNCH
    return (*OF_LAUNCH[:-1], replace(STORAGE, arguments={"outputs": list(folders)}))


@dataclass
class Child:
    probe: Probe
    process: child_process.Program
    deadline: float
    asking: str | None = None
    pending: bytes = b""
    stderr: bytes = b""
    found: dict[str, Any] = field(default_factory=dict)
    gaps: dict[str, tuple[str, str]] = field(default_factory=dict)


def run(
    probes: Iterable[Probe], *, python: str | None = None, progress: Callable[[str], None] | None = None
) -> list[Child]:
    """Run the probes side by side. Each comes back, in order, with what it found and why the rest is missing."""
    return collect(start(probes, python=python), progress)


def start(probes: Iterable[Probe], *, python: str | None = None) -> list[Child]:
    """Start the probes' children. `collect` must follow: it reads them and leaves none behind."""
    return [_start(probe, python or sys.executable) for probe in probes]


def end(children: Iterable[Child]) -> None:
    """Leave none of these children behind, whether they were read or not."""
    child_process.end(*[child.process for child in children])


def collect(children: list[Child], progress: Callable[[str], None] | None = None) -> list[Child]:
    """Read the children until each has ended or its deadline has passed."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            for stream in (child.process.stdout, child.process.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, child)
        try:
            _read_all(selector, children, progress)
        finally:
            end(children)
    return children


def _start(probe: Probe, python: str) -> Child:
    # Without the current folder on sys.path: a pynvml.py in a cloned repository would run.
    command = interpreter.text(
        python if probe.in_training_python else sys.executable, _BOOT, *(("-I", "-S") if probe.bare else ())
    )
    tie = child_process.Tie()
    command += [json.dumps([(str(part.path), dict(part.arguments)) for part in probe.all]), str(tie.reading)]
    process = child_process.start(
        command,
        tie=tie,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, **probe.environment} if probe.environment else None,
    )
    return Child(probe, process, time.monotonic() + probe.deadline_s)


def _read_all(
    selector: selectors.BaseSelector, children: Sequence[Child], progress: Callable[[str], None] | None
) -> None:
    """Read every pipe until it ends or its child's deadline passes."""
    while selector.get_map():
        open_children = {id(key.data): key.data for key in selector.get_map().values()}
        now = time.monotonic()
        for child in open_children.values():
            if now >= child.deadline:
                if child.probe.name == "nvml":
                    child.found["nvml_wait"] = _unanswered(child)
                _gap_rest(child, "timed_out", _timed_out(child))
                _forget(selector, child)
                if child.probe.name == "nvml":
                    for other in children:
                        if other.probe.name == "pytorch":
                            other.deadline = min(other.deadline, now + _HUNG_DRIVER_GRACE_S)
        waits = [key.data.deadline for key in selector.get_map().values()]
        if not waits:
            return
        if progress:
            waiting = dict.fromkeys(key.data.probe.name for key in selector.get_map().values())
            progress(", ".join(waiting))
        for key, _ in selector.select(min(max(0.0, min(waits) - now), 0.25 if progress else 60.0)):
            child = key.data
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
            data = stream.read(65536)
            if data == b"":
                selector.unregister(stream)
                if not any(k.data is child for k in selector.get_map().values()):
                    _finish(child)
            elif data and stream is child.process.stdout:
                take(child, data)
            elif data:
                child.stderr = (child.stderr + data)[-_KEEP_STDERR:]


def take(child: Child, data: bytes) -> None:
    """Take in what a child wrote: whole JSON lines, the rest of the last one is kept."""
    *lines, child.pending = (child.pending + data).split(b"\n")
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            child.gaps["probe"] = ("crashed", f"the {child.probe.name} probe wrote a line that is no JSON")
            continue
        child.asking = found.pop("asking", child.asking)
        if raised := found.pop("raised", None):
            place, words = raised
            part = child.probe.all[place]
            for fact in part.facts:
                if fact not in child.found:
                    child.gaps.setdefault(fact, ("crashed", f"the {part.name} probe failed{_while(child)}: {words}"))
        for fact, (kind, reason) in found.pop("gap", {}).items():
            child.gaps[fact] = (kind, reason)
        child.found |= found


def _finish(child: Child) -> None:
    """The pipes have ended: wait for the child, and say why facts are missing if they are."""
    try:
        code = child.process.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        _gap_rest(child, "timed_out", _timed_out(child))
        return
    if code == 0:
        if child.probe.name == "nvml":
            child.found["nvml_wait"] = {"call": None, "called": not (child.found.get("driver") or {}).get("nvml_error")}
        _gap_rest(child, "no_driver" if child.found.get("driver") else "crashed", _no_answer(child))
        return
    how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    last = child.stderr.decode("utf-8", "replace").strip().splitlines()
    words = f": {last[-1]}" if last and code > 0 else ""
    if child.probe.name == "pytorch" and child.asking == "import torch" and code < 0:
        # That the import kills the process is not a gap: it is what torch does here.
        child.found["torch_runtime"] = {"import_error": f"the process {how} during `import torch`"}
        return
    _gap_rest(child, "crashed", f"the {child.probe.name} probe {how}{_while(child)}{words}")


def _unanswered(child: Child) -> dict[str, Any]:
    """The fact nvml_wait for a child whose deadline passed: read before the child is killed."""
    proc = Path(f"/proc/{child.process.pid}")
    try:
        state = proc.joinpath("stat").read_text("utf-8", "replace").rpartition(") ")[2][:1]
        function = proc.joinpath("wchan").read_text("utf-8", "replace").strip("\n\0")
    except OSError:
        state = function = ""
    return {
        "call": child.asking or "its start",
        "waited_s": child.probe.deadline_s,
        "state": state or None,
        "kernel_function": function if function not in ("", "0") else None,
    }


def _no_answer(child: Child) -> str:
    driver = child.found.get("driver") or {}
    if driver.get("nvml_error"):
        return f"NVML does not answer: {driver['nvml_error']}"
    return f"the {child.probe.name} probe gave no answer"


def _timed_out(child: Child) -> str:
    who = {"nvml": "NVML", "pytorch": "torch"}.get(child.probe.name, f"the {child.probe.name} probe")
    return f"{who} did not answer in {child.probe.deadline_s:g} s{_while(child)}"


def _while(child: Child) -> str:
    return f" (asked for {child.asking})" if child.asking else ""


def _gap_rest(child: Child, kind: str, reason: str) -> None:
    for fact in child.probe.brings:
        if fact not in child.found:
            child.gaps.setdefault(fact, (kind, reason))


def _forget(selector: selectors.BaseSelector, child: Child) -> None:
    for key in [k for k in selector.get_map().values() if k.data is child]:
        selector.unregister(key.fileobj)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
