"""Does `mgpu launch --hosts` start a training on all hosts, watch it, and leave nothing however it ends?

Real ssh servers on hosts of namespaces, real torchrun with one CPU rank on each of two hosts.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mgpu import errors
from tests.ssh_hosts import SshHosts

_READY_S = 120.0  # for torchrun to start on both hosts of a busy machine
_WHOLE_S = 120.0
_STOP_S = 30.0  # the longest time that a rank may stay anywhere
_TOKEN = "hf_Zq8Yk2Wd7Lr5Tn1Bv4"
_CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: 'NO'
mixed_precision: 'no'
num_machines: 1
num_processes: 1
use_cpu: true
"""
_SCRIPT = """\
import os, sys, time

rank, what = int(os.environ["RANK"]), sys.argv[1]
if what == "train":
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    total = accelerator.reduce(torch.tensor([rank + 1.0]))
    print(f"rank {rank}: the sum is {total.item():g}, the token {os.environ.get('TOKEN')}"[:-4] + "...", flush=True)
    print("a warning", file=sys.stderr)
    torch.distributed.destroy_process_group()
if what == "raise":
    if rank == 1:
        raise ValueError("no such label: 7")
    time.sleep(60)
if what == "wait":
    print("ready", os.environ.get("TOKEN", "")[:3], flush=True)
    time.sleep(600)
"""


class Run:
    """`mgpu launch --hosts n[1-2]` with the test's script."""

    def __init__(self, bed: SshHosts, what: str, *options: str, untested: str = "allow", token: bool = False) -> None:
        self.bed = bed
        self.place = f"runs/{what}-{time.monotonic_ns()}"
        self.folder = bed.head.project / self.place
        words = ("launch", "--hosts", "n[1-2]", "--unverified", untested, "--log-dir", self.place, *options)
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = bed.head.popen(
            *(sys.executable, "-m", "mgpu", *words, "train.py", what), env={"TOKEN": _TOKEN} if token else {}, **streams
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def ready(self, *wanted: str) -> None:
        """Wait until each host has printed that its rank waits."""
        end = time.monotonic() + _READY_S
        while not all(any(line.startswith(one) for line in self.lines) for one in wanted or ("[n1] r", "[n2] r")):
            assert time.monotonic() < end and self.process.poll() is None, self.text
            time.sleep(0.05)

    def ends(self, lost: str = "") -> int:
        """Wait for the end: the exit code. Nothing is left on any host then."""
        code = self.process.wait(_WHOLE_S)
        self._reader.join(10)
        nothing_left(self.bed, lost)
        return code

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found


def ranks_left(bed: SshHosts, name: str) -> list[str]:
    """What runs on a host besides ssh's own server, which waits for the network."""
    return [words for words in bed[name].left().values() if not words.startswith("sshd: ")]


def nothing_left(bed: SshHosts, lost: str = "") -> None:
    """Neither a process nor a file of a finished run is on a host. `lost`: the one that lost its power or network."""
    end = time.monotonic() + _STOP_S
    while left := {name: found for name in bed.names if (found := ranks_left(bed, name))}:
        assert time.monotonic() < end, left
        time.sleep(0.1)
    for name in bed.nodes:
        if name == lost:
            continue
        assert not bed[name].run("sh", "-c", "ls -d /tmp/mgpu-* 2>/dev/null").stdout, name


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("ssh") / "hosts") as hosts:
        hosts.head.write("project/accelerate.yaml", _CONFIG)
        hosts.head.write("project/train.py", _SCRIPT)
        hosts.copy_project()
        yield hosts


def test_a_run_to_its_end(bed: SshHosts) -> None:
    run = Run(bed, "train", "--pass-env", "TOKEN", token=True)
    assert run.ends() == 0, run.text
    shown = _TOKEN[:-4]
    assert all(f"[n{rank + 1}] rank {rank}: the sum is 3, the token {shown}" in run.text for rank in (0, 1)), run.text
    assert run.text.count("] a warning") == 2
    assert run.result["exit_code"] == 0 and run.result["first_failure"] is None


def test_an_exception_on_one_host(bed: SshHosts) -> None:
    run = Run(bed, "raise")
    assert run.ends() == 1, run.text
    first = run.result["first_failure"]
    assert (first["rank"], first["host"]) == (1, "n2"), run.result
    line = _SCRIPT.splitlines().index('        raise ValueError("no such label: 7")') + 1
    assert f"train.py:{line}" in run.text and "n2" in run.text.rpartition("FAILED")[2], run.text
    assert "no such label: 7" in json.dumps(run.result["probable_cause"])
    assert run.text.count("mgpu: FAILED") == 1, run.text


def test_ctrl_c_and_a_secret(bed: SshHosts) -> None:
    """While the run lasts, the value of --pass-env is on no command line, and in no file of the run."""
    run = Run(bed, "wait", "--pass-env", "TOKEN", token=True)
    run.ready("[n1] ready hf_", "[n2] ready hf_")
    assert not any(_TOKEN in words for name in bed.names for words in bed[name].left().values())
    run.process.send_signal(signal.SIGINT)
    assert run.ends() == 130, run.text
    raw = _TOKEN.encode()
    assert not [path for path in run.folder.rglob("*") if path.is_file() and raw in path.read_bytes()]
    assert raw.decode() not in run.text


def test_mgpu_is_killed(bed: SshHosts) -> None:
    run = Run(bed, "wait")
    run.ready()
    run.process.kill()
    run.ends()


@pytest.mark.parametrize("how", ["crash", "down"])
def test_a_host_is_lost(bed: SshHosts, how: str) -> None:
    """Its power fails, or its network: the verdict names it, and the rank there stops too."""
    run = Run(bed, "wait")
    run.ready()
    getattr(bed["n2"], how)()
    try:
        assert run.ends(lost="n2") == 1, run.text
    finally:
        bed["n2"].kill_all()
        bed["n2"].run("sh", "-c", "rm -rf /tmp/mgpu-*")
        (bed["n2"].boot if how == "crash" else bed["n2"].up)()
    cause = run.result["probable_cause"]
    assert cause["id"] == "ssh_connection_lost" and "n2" in cause["title"], run.result
    assert "n2: the connection ended" in run.text


def test_detached_then_stopped(bed: SshHosts) -> None:
    run = Run(bed, "wait", "--detach")
    assert run.process.wait(_WHOLE_S) == 0, run.text
    output = run.folder / "run.log"
    end = time.monotonic() + _READY_S
    while not output.exists() or not all(f"[n{number}] ready" in output.read_text() for number in (1, 2)):
        assert time.monotonic() < end, (run.text, [*run.folder.iterdir()])
        time.sleep(0.1)
    status = bed.head.run(sys.executable, "-m", "mgpu", "launch", "--status", timeout=_WHOLE_S)
    assert status.returncode == 0 and run.folder.name in status.stdout and "running" in status.stdout, status
    stop = bed.head.run(sys.executable, "-m", "mgpu", "launch", "--stop", timeout=_WHOLE_S)
    assert stop.returncode == 0, stop
    nothing_left(bed)
    assert run.result["signalled"], run.result


def test_what_starts_nothing(bed: SshHosts) -> None:
    refused = Run(bed, "train", untested="refuse")
    assert refused.ends() == errors.LAUNCH_REFUSED
    assert "mgpu smoke-test --hosts 'n[1-2]'" in refused.text and "--unverified allow" in refused.text, refused.text
    shown = Run(bed, "train", "--dry-run")
    assert shown.ends() == 0
    assert "n1 (node 0), n2 (node 1)" in shown.text and "2 ranks, 1 on each host (CPU)" in shown.text
    assert not any(one.folder.exists() for one in (refused, shown))
