"""A run on hosts whose disks fill, or whose connection breaks before the verdict is in.

Real ssh servers on hosts of namespaces, real torchrun with one CPU rank on each of two hosts, real full file systems.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.fleet import far_run, hosts_run, hosts_verdict
from mgpu.hosts.named_hosts import Host
from tests.scripts import wait_for
from tests.ssh_host import PROJECT, SshHost
from tests.ssh_hosts import SshHosts
from tests.test_hosts_launch import _CONFIG, Run

_SCRIPT = """\
import os, sys, threading, time

rank, what = int(os.environ["RANK"]), sys.argv[1]
if what.startswith("prints"):
    for number in range(20_000):
        print(f"rank {rank} line {number} of many, to fill the log of a small disk {'.' * 60}")
    sys.stdout.flush()
if what == "prints, then saves" and rank == 1:
    with open("out/model.pt", "wb") as file:
        file.write(bytes(4 << 20))
if what == "raises and stays" and rank == 1:
    threading.Thread(target=time.sleep, args=(600,)).start()  # Python waits for it, with the traceback printed
    raise ValueError("no such label: 7")
if what != "prints":
    time.sleep(600)
print("ready", flush=True)
"""
_RAISES = 1 + max(number for number, line in enumerate(_SCRIPT.splitlines()) if "raise ValueError" in line)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("ssh") / "hosts") as hosts:
        hosts.head.write("project/accelerate.yaml", _CONFIG)
        hosts.head.write("project/train.py", _SCRIPT)
        hosts.copy_project()
        yield hosts


@pytest.fixture
def disk() -> Iterator[Callable[..., None]]:
    """Mount a small disk on a host until the end of the test."""
    mounted: list[tuple[SshHost, str]] = []

    def mount(host: SshHost, name: str, size: str, *, full: bool = True) -> None:
        host.run("mkdir", "-p", f"{PROJECT}/{name}")  # of the user, for the tests that follow
        host.disk(f"{PROJECT}/{name}", size, full=full)
        mounted.append((host, f"{PROJECT}/{name}"))

    yield mount
    for host, place in mounted:
        host.root("umount", "-l", place)


def test_the_disk_fills_under_the_script(bed: SshHosts, disk: Callable[..., None]) -> None:
    """On n2; the disk of this machine, with the log of the run and what the hosts send, fills too."""
    disk(bed["n2"], "out", "1M", full=False)
    disk(bed.head, "runs", "2M", full=False)
    run = Run(bed, "prints, then saves")
    assert run.ends() == 1, run.text[-3000:]
    assert run.text.count("the log ends here (the disk is full)") == 1, run.text[-3000:]
    assert run.text.count("what the hosts send cannot be stored here") == 1, run.text[-3000:]
    result = json.loads(bed.head.root("cat", f"{PROJECT}/{run.place}/result.json"))
    cause, first = result["probable_cause"], result["first_failure"]
    assert cause["id"] == "run_disk_full", result
    assert cause["title"] == f"on n2: the disk is full: {PROJECT}/out (tmpfs), 0 MiB of 1 MiB free", cause
    assert (first["rank"], first["host"]) == (1, "n2") and "No space left" in first["exception"], first


def test_the_logs_of_hosts_cannot_be_written(bed: SshHosts, disk: Callable[..., None]) -> None:
    """On n1 the disk fills while the run lasts, on n2 it is full from the start: the run goes on."""
    disk(bed["n1"], "runs", "1M", full=False)
    disk(bed["n2"], "runs", "64k")
    run = Run(bed, "prints")
    assert run.ends() == 0, run.text[-3000:]
    assert run.text.count("mgpu: the log ends here (the disk is full)") == 1, run.text[-3000:]
    assert "[n1] mgpu: the log ends here (the disk is full). The run continues" in run.text
    said = [line for line in run.lines if line.startswith(f"[n2] mgpu: {PROJECT}/{run.place}: No space left")]
    assert len(said) == 1 and "are in /tmp/" in said[0], [line for line in run.lines if "mgpu" in line]
    kept = {name: (run.folder / "hosts" / f"node-{name}" / "run.log").read_text() for name in bed.nodes}
    # After it, torch may warn there that the store of rank 0 has ended.
    assert "ready\n" in kept["n2"] and "rank 0 line 0 " in kept["n1"] and "ready" not in kept["n1"]


def _sessions_end(host: SshHost) -> None:
    """Only the server of the connection is killed, as by the OOM killer."""
    found = [pid for pid, command in host.left().items() if command.startswith("sshd: trainer")]
    assert found, host.left()
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def test_the_connection_breaks_before_a_failure_is_judged(bed: SshHosts) -> None:
    """What the rank has printed is the cause; that its host was lost, and its logs, is said."""
    run = Run(bed, "raises and stays")
    wait_for(lambda: "[n2] ValueError: no such label: 7" in run.text or run.process.poll() is not None, 120)
    _sessions_end(bed["n2"])
    assert run.ends() == 1, run.text
    cause = run.result["probable_cause"]
    stopped = f"on n2: the script's own code stopped the run at train.py:{_RAISES}: no such label: 7"
    assert cause["title"] == stopped, run.result
    assert cause["evidence"]["line"] == "ValueError: no such label: 7"
    assert [one["id"] for one in run.result["secondary"]] == ["ssh_connection_lost"], run.result["secondary"]
    assert "[n2] mgpu: the connection ended: " in run.text
    assert f"its logs could not be collected; on n2 they are in {PROJECT}/{run.place}/" in run.text, run.text


# Without hosts.


class _Workers:
    """The connections of two hosts that have greeted."""

    all_nodes = ("n1", "n2")

    def __init__(self) -> None:
        self.greetings = dict.fromkeys(self.all_nodes, "")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    (tmp_path / hosts_run.RESULTS).mkdir()
    orders = {"hosts": [Host(name) for name in _Workers.all_nodes], "folder": "/p", "common": {"logs": "/p/logs"}}
    made = hosts_run._Run(tmp_path, orders)
    made.workers = _Workers()  # type: ignore[assignment]
    return made


def _end(code: int) -> dict[str, Any]:
    return {"event": far_run.END, "code": code, "document": {"exit_code": code}, "said": ""}


@pytest.mark.parametrize("code", [0, 3])
def test_a_host_is_lost_while_its_files_travel(run: Any, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    """How its part ended is known."""
    run._take("n2", _end(code))
    run._lose("n2", "the connection ended: Timeout")
    run._take("n1", _end(0))
    run._take("n1", {"code": 0})
    run._store()
    assert (run.ends["n2"]["code"], run.ends["n2"].get("lost")) == (code, None) and run.done == {"n1", "n2"}
    said = capfd.readouterr().err
    assert said == "[n2] mgpu: its logs could not be collected; on n2 they are in /p/logs/\n"
    stored = json.loads((run.folder / hosts_run.RESULTS / "0.json").read_text())
    assert (stored["host"], stored["code"], stored["document"]["exit_code"]) == ("n2", code, code)


def test_a_host_whose_logs_are_temporary_is_lost(run: Any, capfd: pytest.CaptureFixture[str]) -> None:
    run._take("n1", {"event": far_run.NOTICE, "text": "/p/logs: No space left on device.\x1b[1m"})
    run._lose("n1", "the connection ended: Timeout")
    said = capfd.readouterr().err.splitlines()
    assert said[1:] == [
        "[n1] mgpu: the connection ended: Timeout",
        "[n1] mgpu: its logs are lost: they were in a temporary folder there",
    ]
    assert said[0].startswith("[n1] mgpu: /p/logs: No space left on device.") and "\x1b" not in said[0]
    assert run.ends["n1"]["code"] == 1


def test_nothing_can_be_stored(run: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code is right if nothing can be stored."""
    run._take("n2", _end(3))
    shutil.rmtree(run.folder / hosts_run.RESULTS)
    run._store()
    assert "the verdict of n2 is lost: " in capfd.readouterr().err


def test_the_last_files_have_a_limit(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    run._take("n1", _end(0))
    assert not run._is_late()
    run._take("n2", _end(errors.LAUNCH_REFUSED))
    assert not run._is_late()
    now[0] += 70
    assert run._is_late()


def _judged(folder: Path, parts: list[dict[str, Any]], printed: dict[str, Any] | None = None) -> dict[str, Any]:
    """The document of a failed run: `printed` is what the output of all hosts shows."""
    place = folder / hosts_run.RESULTS
    place.mkdir()
    for number, part in enumerate(parts):
        (place / f"{number}.json").write_text(json.dumps({"code": 1, "lost": None, "document": None, **part}))
    document: Any = {"exit_code": 1, "signalled": None, "timed_out": False, "first_failure": None}
    document |= {"probable_cause": printed, "secondary": []}
    (folder / "run.log").write_text("[n1] a\n[n2] b\n[n1] c\n")
    hosts_verdict.amend(folder, document, [{"name": str(part["host"])} for part in parts])
    return dict(document)


_LOST = {"host": "n2", "lost": "the connection ended: Timeout"}


@pytest.mark.parametrize(
    ("id", "role", "line", "chosen"),
    [
        ("log_exception", "root", 2, ["log_exception", "ssh_connection_lost"]),
        ("log_exception", "root", 3, ["ssh_connection_lost"]),  # of the other host, which judges it itself
        ("log_exception", "root", 99, ["ssh_connection_lost"]),
        ("log_peer_gone", "secondary", 2, ["ssh_connection_lost"]),
        ("run_exit_code", "root", None, ["ssh_connection_lost"]),  # of this machine's launcher
    ],
)
def test_what_a_lost_host_has_printed(id: str, role: str, line: int | None, chosen: list[str], tmp_path: Path) -> None:
    found = _judged(tmp_path, [_LOST], {"id": id, "role": role, "title": "x", "fix": [], "line": line})
    assert [found["probable_cause"]["id"], *(one["id"] for one in found["secondary"])] == chosen


@pytest.mark.parametrize(
    ("title", "commands", "shown"),
    [
        ("the disk is full", ["df -h /"], "on n2: the disk is full"),
        ("rank 1 (host n2) is stuck", ["df -h /"], "rank 1 (host n2) is stuck"),
        ("train.py:3 raised ValueError", [], "train.py:3 raised ValueError"),
    ],
)
def test_commands_are_for_a_host(title: str, commands: list[str], shown: str, tmp_path: Path) -> None:
    cause = {"id": "run_disk_full", "role": "root", "title": title, "fix": [{"commands": commands}]}
    document: dict[str, Any] = {"probable_cause": cause, "secondary": [], "first_failure": None}
    assert _judged(tmp_path, [{"host": "n2", "document": document}])["probable_cause"]["title"] == shown
