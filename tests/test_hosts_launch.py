"""Does `mgpu launch --hosts` start a training on all hosts, watch it, and leave nothing however it ends?

Real ssh servers on hosts of namespaces, real torchrun with one CPU rank on each of two hosts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mgpu import errors
from tests.ssh_hosts import SshHosts
from tests.terminal import CONTROL_C

_READY_S = 120.0  # for torchrun to start on both hosts of a busy machine
_WHOLE_S = 120.0
_STOP_S = 90.0  # the longest time that a rank may stay anywhere on a busy machine; it sleeps for 600
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
if what == "python":
    print(f"rank {rank} of {os.environ['WORLD_SIZE']}: {sys.executable}", flush=True)
if what == "raise":
    if rank == 1:
        raise ValueError("no such label: 7")
    time.sleep(60)
if what == "wait":
    print("ready", os.environ.get("TOKEN", "")[:3], flush=True)
    time.sleep(600)
"""


_OTHER, _PORT = "/tmp/env/bin/python", 23456  # of n2; of a rendezvous


class Run:
    """`mgpu launch --hosts n[1-2]` with the test's script."""

    def __init__(self, bed: SshHosts, what: str, *options: str, untested: str = "allow", token: bool = False) -> None:
        self.bed = bed
        self.place = f"runs/{what}-{time.monotonic_ns()}"
        self.folder = bed.head.project / self.place
        words = ("launch", "--unverified", untested, "--log-dir", self.place, *options)
        words += () if "--hosts" in options else ("--hosts", "n[1-2]")
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
        while files := bed[name].run("sh", "-c", "ls -d /tmp/mgpu-* 2>/dev/null").stdout:
            assert time.monotonic() < end, (name, files)  # its mgpu removes them after the ranks have ended
            time.sleep(0.1)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("ssh") / "hosts") as hosts:
        hosts.head.write("project/accelerate.yaml", _CONFIG)
        hosts.head.write("project/train.py", _SCRIPT)
        hosts.copy_project()
        for name in hosts.nodes:  # as Debian installs it: its own name is the loopback address
            hosts.knows(name, **{name: "127.0.1.1"})
        yield hosts


def test_a_run_to_its_end(bed: SshHosts) -> None:
    """Also if a start-up file prints, and if the login shell is fish."""
    bed["n1"].profile("echo Welcome\n")
    bed["n2"].login_shell("fish")
    try:
        run = Run(bed, "train", "--pass-env", "TOKEN", token=True)
        assert run.ends() == 0, run.text
    finally:
        bed["n1"].profile("")
        bed["n2"].login_shell("bash")
    assert "Welcome" not in run.text
    shown = _TOKEN[:-4]
    assert all(f"[n{rank + 1}] rank {rank}: the sum is 3, the token {shown}" in run.text for rank in (0, 1)), run.text
    assert run.text.count("] a warning") == 2
    assert run.result["exit_code"] == 0 and run.result["first_failure"] is None


def test_another_python_and_another_number_of_ranks(bed: SshHosts) -> None:
    """n2 has its environment at another path, and one rank more: accelerate's launchers agree on the ranks."""
    bed.head.write("project/hosts.txt", "n1\nn2 slots=2\n")
    made = bed["n2"].run(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", "/tmp/env")
    assert made.returncode == 0, made.stderr
    paths = "\n".join(
        path for path in sys.path if (os.path.isdir(path) and "lib/python" not in path) or "-packages" in path
    )
    bed["n2"].run("sh", "-c", "cat > $(ls -d /tmp/env/lib/python3*/site-packages)/all.pth", stdin=f"{paths}\n")
    run = Run(bed, "python", "--hosts", "hosts.txt", "--python", f"n2={_OTHER}")
    assert run.ends() == 0, run.text
    assert "3 ranks, 1 on n1, 2 on n2" in run.text and f"{_OTHER} on n2" in run.text, run.text
    for rank, name, python in ((0, "n1", sys.executable), (1, "n2", _OTHER), (2, "n2", _OTHER)):
        assert f"[{name}] rank {rank} of 3: {python}" in run.text, run.text


def test_an_exception_on_one_host(bed: SshHosts) -> None:
    run = Run(bed, "raise")
    assert run.ends() == 1, run.text
    first = run.result["first_failure"]
    assert (first["rank"], first["host"]) == (1, "n2"), run.result
    line = _SCRIPT.splitlines().index('        raise ValueError("no such label: 7")') + 1
    assert f"train.py:{line}" in run.text and "n2" in run.text.rpartition("FAILED")[2], run.text
    assert "no such label: 7" in json.dumps(run.result["probable_cause"])
    assert run.text.count("mgpu: FAILED") == 1, run.text
    name = f"{run.folder.name}-"
    assert f"Report         mgpu launch --report {name}" in run.text, run.text
    report = bed.head.run(
        *(sys.executable, "-m", "mgpu", "launch", "--report", "--json-result", "case.json", name), timeout=_WHOLE_S
    )
    assert report.returncode == 0, report
    case = json.loads((bed.head.project / "case.json").read_text())
    ranks = case["run"]["ranks"]
    assert [(one["rank"], one["exit"]) for one in ranks] == [(0, 143), (1, 1)], ranks
    assert len({one["host"] for one in ranks}) == 2
    assert [one["failed"] for one in case["run"]["courses"]] == [False, True]
    assert case["probable_cause"]["id"] == run.result["probable_cause"]["id"]
    assert case["first_failure"]["rank"] == 1 and case["first_failure"]["host"] == ranks[1]["host"]


def test_ctrl_c_and_a_secret(bed: SshHosts) -> None:
    """While the run lasts, the value of --pass-env is on no command line, and in no file of the run.

    Ctrl-C is typed at a terminal: the kernel sends it to mgpu, to its launcher and to each ssh at the same time.
    """
    folder = bed.head.project / "typed"
    words = ("launch", "--hosts", "n[1-2]", "--unverified", "allow", "--log-dir", "typed", "--pass-env", "TOKEN")
    terminal = bed.head.terminal(*words, "train.py", "wait", env={"TOKEN": _TOKEN})
    for name in bed.nodes:
        terminal.see(f"[{name}] ready hf_", _READY_S)
    assert not any(_TOKEN in words for name in bed.nodes for words in bed[name].left().values())
    terminal.press(CONTROL_C)
    assert terminal.end(_WHOLE_S) == 130, terminal.text
    nothing_left(bed)
    raw = _TOKEN.encode()
    assert not [path for path in folder.rglob("*") if path.is_file() and raw in path.read_bytes()]
    assert raw not in terminal.raw


def test_the_terminal_is_closed(bed: SshHosts) -> None:
    """As when a window is closed, or the ssh to the head is cut."""
    folder = bed.head.project / "closed"
    words = ("launch", "--hosts", "n[1-2]", "--unverified", "allow", "--log-dir", "closed", "train.py", "wait")
    terminal = bed.head.terminal(*words)
    for name in bed.nodes:
        terminal.see(f"[{name}] ready", _READY_S)
    terminal.child.ptyproc.fileobj.close()
    nothing_left(bed)
    document = json.loads((folder / "result.json").read_text())
    assert (document["exit_code"], document["signalled"]) == (129, "SIGHUP")


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
    planned = Run(bed, "train", "--dry-run", untested="refuse")
    assert planned.ends() == errors.LAUNCH_REFUSED
    assert "2 ranks, 1 on each host" in planned.text and "NOT tested on these hosts" in planned.text, planned.text
    said = planned.text.partition("WOULD NOT START")[2]
    assert "not tested with this config" in said and "mgpu smoke-test --hosts 'n[1-2]'" in said, planned.text
    shown = Run(bed, "train", "--dry-run")
    assert shown.ends() == 0
    assert "n1 (node 0), n2 (node 1)" in shown.text and "2 ranks, 1 on each host (CPU)" in shown.text
    assert not any(one.folder.exists() for one in (refused, planned, shown))


def test_a_port_that_a_rank_of_an_earlier_run_holds(bed: SshHosts) -> None:
    """It is named on its host before anything starts; so is a folder in which your user may not write."""
    held = f"import socket, time; s = socket.create_server(('', {_PORT})); print('held', flush=True); time.sleep(600)"
    orphan = f'({sys.executable} -c "{held}" > /tmp/held 2>&1 &); until grep -q held /tmp/held; do sleep 0.05; done'
    variables = {"RANK": "0", "MASTER_PORT": str(_PORT), "TORCHELASTIC_RUN_ID": "x"}
    assert bed["n1"].run("sh", "-c", orphan, env=variables).returncode == 0
    os.chown(bed["n2"].project, 0, 0)
    (bed["n2"].project / "accelerate.yaml").rename(bed["n2"].home / "kept.yaml")  # it gets this machine's
    try:
        run = Run(bed, "wait", "--port", str(_PORT), untested="refuse")
        assert run.process.wait(_WHOLE_S) == errors.LAUNCH_REFUSED, run.text
        run._reader.join(10)
        planned = Run(bed, "wait", "--dry-run", untested="refuse")
        planned.process.wait(_WHOLE_S)
        planned._reader.join(10)
    finally:
        bed["n1"].kill_all()
        os.chown(bed["n2"].project, bed.uid, bed.uid)
        (bed["n2"].home / "kept.yaml").rename(bed["n2"].project / "accelerate.yaml")
    assert "fleet_config_differs" not in planned.text
    said = " ".join(run.text.split())
    assert f"n1 cannot listen on the rendezvous port {_PORT}: address already in use" in said, run.text
    warnings = " ".join(planned.text.partition("Warnings")[2].split())
    assert "ssh_folder_not_writable (n2)" in warnings and "node_ranks_left (n1)" in warnings, planned.text
    nothing_left(bed)
