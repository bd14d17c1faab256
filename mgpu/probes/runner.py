"""How can foreign libraries be queried without hanging or crashing with them?

Each probe is a child process that runs one file of `probes/` (or `config/loader.py`) and writes JSON lines to its own
pipe: `{"fact": value, …}`, `{"gap": {fact: [kind, reason]}}`, `{"asking": "its next step"}`. A probe that aborts, hangs
or prints loses only its own facts; its last step is part of the reason. All probes run in parallel. Cheap probes share
a child (`Probe.then`) and run one after another, because starting Python takes longer than they do.

Imports little, so the doctor's children start before mgpu has loaded its checks.
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

from mgpu.process import child_process, interpreter, training_python

# Results go to a copy of stdout, and stdout is redirected to stderr, because foreign libraries print.
_BOOT = """\
import json, os, sys
os.set_blocking(int(sys.argv[2]), False)
try: os.read(int(sys.argv[2]), 1); os._exit(1)  # mgpu exited before this process was tied to it
except BlockingIOError: pass
sys.path += json.loads(sys.argv[3])
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
_HUNG_DRIVER_GRACE_S = 2.0  # if NVML hangs, torch.cuda will hang on the same driver: remaining time it gets
_REAP_S = 1.0  # time to wait for a killed child in uninterruptible sleep
_KEEP_STDERR = 4096


@dataclass(frozen=True)
class Probe:
    """One file of `probes/`, the facts it collects, and its deadline."""

    name: str
    facts: tuple[str, ...]
    deadline_s: float
    in_training_python: bool = False  # run by the training run's interpreter, not mgpu's own
    bare: bool = False  # needs only the standard library: Python starts faster without site-packages
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # variables added to mgpu's environment
    file: Path | None = None
    then: tuple[Probe, ...] = ()  # run after it, in the same child

    @property
    def path(self) -> Path:
        """The file the child runs."""
        return self.file or Path(__file__).with_name(f"{self.name}.py")

    @property
    def all(self) -> tuple[Probe, ...]:
        """All probes of its child, in order."""
        return (self, *self.then)

    @property
    def brings(self) -> tuple[str, ...]:
        """All facts its child collects."""
        return tuple(fact for probe in self.all for fact in probe.facts)


# NVML: nvmlInit alone takes 0.5-3 s on 8 GPUs without persistence mode. torch: an import from a cold network file
# system takes tens of seconds.
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
OF_CONFIGS = (NVML, PACKAGES, replace(SYSTEM, then=()))  # the machine facts that config checks need

# The facts every launch needs. The others do not change between launches, and the smoke test covered them. Uses few
# children, because each starts Python. Probes that load foreign libraries come last in their child.
_HERE = replace(
    SYSTEM, deadline_s=10.0, in_training_python=True, bare=False, then=(NETWORK, replace(PACKAGES, then=()))
)
OF_LAUNCH = (NVML, _HERE, STORAGE)


def launch_probes(folders: Sequence[str]) -> tuple[Probe, ...]:
    """Return OF_LAUNCH with the folders that a script writes to, from its arguments."""
    if not folders:
        return OF_LAUNCH
    return (*OF_LAUNCH[:-1], replace(STORAGE, arguments={"outputs": list(folders)}))


@dataclass
class Child:
    """A running probe's process, and what was read from it so far."""

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
    """Run the probes in parallel. Return the children in order, with their facts and the reasons for missing ones."""
    return collect(start(probes, python=python), progress)


def start(probes: Iterable[Probe], *, python: str | None = None) -> list[Child]:
    """Start the probes' children. Call `collect` afterwards: it reads and stops them."""
    return [_start(probe, python or sys.executable) for probe in probes]


def end(children: Iterable[Child]) -> None:
    """Stop these children, whether they were read or not."""
    child_process.end(*[child.process for child in children])


def collect(children: list[Child], progress: Callable[[str], None] | None = None) -> list[Child]:
    """Read the children until each has exited or its deadline has passed."""
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
    # Without the current folder on sys.path, so that a pynvml.py in a cloned repository does not run.
    command = interpreter.text(
        python if probe.in_training_python else sys.executable, _BOOT, *(("-I", "-S") if probe.bare else ())
    )
    tie = child_process.Tie()
    command += [json.dumps([(str(part.path), dict(part.arguments)) for part in probe.all]), str(tie.reading)]
    ours = training_python.carried is not None and not (probe.in_training_python or probe.bare)
    command.append(json.dumps(list(training_python.carried.folders) if training_python.carried and ours else []))
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
    """Read every pipe until it is closed or its child's deadline passes."""
    while selector.get_map():
        open_children = {id(key.data): key.data for key in selector.get_map().values()}
        now = time.monotonic()
        for child in open_children.values():
            if now >= child.deadline:
                if child.probe.name == "nvml":
                    child.found["nvml_wait"] = _nvml_wait(child)
                _gap_rest(child, "timed_out", _timeout_reason(child))
                _unregister(selector, child)
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
    """Process a child's output: complete JSON lines; an incomplete last line is kept for later."""
    *lines, child.pending = (child.pending + data).split(b"\n")
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            child.gaps["probe"] = ("crashed", f"the {child.probe.name} probe printed a line that is not JSON")
            continue
        child.asking = found.pop("asking", child.asking)
        if raised := found.pop("raised", None):
            place, words = raised
            part = child.probe.all[place]
            for fact in part.facts:
                if fact not in child.found:
                    reason = f"the {part.name} probe failed{_last_step(child)}: {words}"
                    child.gaps.setdefault(fact, ("crashed", reason))
        for fact, (kind, reason) in found.pop("gap", {}).items():
            child.gaps[fact] = (kind, reason)
        child.found |= found


def _finish(child: Child) -> None:
    """Wait for a child whose pipes are closed, and record the reason if facts are missing."""
    try:
        code = child.process.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        _gap_rest(child, "timed_out", _timeout_reason(child))
        return
    if code == 0:
        if child.probe.name == "nvml":
            child.found["nvml_wait"] = {"call": None, "called": not (child.found.get("driver") or {}).get("nvml_error")}
        _gap_rest(child, "no_driver" if child.found.get("driver") else "crashed", _missing_reason(child))
        return
    how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
    last = child.stderr.decode("utf-8", "replace").strip().splitlines()
    words = f": {last[-1]}" if last and code > 0 else ""
    if child.probe.name == "pytorch" and child.asking == "import torch" and code < 0:
        # An import that kills the process is not a gap, but a fact about torch on this machine.
        child.found["torch_runtime"] = {"import_error": f"the process {how} during `import torch`"}
        return
    _gap_rest(child, "crashed", f"the {child.probe.name} probe {how}{_last_step(child)}{words}")


def _nvml_wait(child: Child) -> dict[str, Any]:
    """Return the fact nvml_wait for a child whose deadline passed. Must be called before the child is killed."""
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


def _missing_reason(child: Child) -> str:
    driver = child.found.get("driver") or {}
    if driver.get("nvml_error"):
        return f"NVML does not respond: {driver['nvml_error']}"
    return f"the {child.probe.name} probe returned no result"


def _timeout_reason(child: Child) -> str:
    who = {"nvml": "NVML", "pytorch": "torch"}.get(child.probe.name, f"the {child.probe.name} probe")
    return f"{who} did not answer in {child.probe.deadline_s:g} s{_last_step(child)}"


def _last_step(child: Child) -> str:
    return f" (last step: {child.asking})" if child.asking else ""


def _gap_rest(child: Child, kind: str, reason: str) -> None:
    for fact in child.probe.brings:
        if fact not in child.found:
            child.gaps.setdefault(fact, (kind, reason))


def _unregister(selector: selectors.BaseSelector, child: Child) -> None:
    for key in [k for k in selector.get_map().values() if k.data is child]:
        selector.unregister(key.fileobj)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
