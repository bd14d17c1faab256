"""The probe of leftovers: recorded /proc trees, and ranks, zombies, segments and locks that are really left here."""

from __future__ import annotations

import json
import mmap
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu import engine
from mgpu.check import Problem
from mgpu.probes import leftovers as leftovers_probe
from mgpu.probes.runner import LEFTOVERS, run
from mgpu.snapshot import Leftovers, LeftProcess, Snapshot, decode
from tests.checks.facts import facts
from tests.conftest import CHECKS, Run, environment, missing, need

TICKS = os.sysconf("SC_CLK_TCK")
MINE = os.getuid()
RANK = {"RANK": "3", "LOCAL_RANK": "1", "MASTER_PORT": "29511", "PATH": "/usr/bin"}
ELASTIC = {**RANK, "TORCHELASTIC_RUN_ID": "none"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TORCH_EXTENSIONS_DIR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))


class Proc:
    """A /proc as recorded: 5000 s after the start of the machine, with systemd as the first process."""

    def __init__(self, folder: Path, first: str = "systemd") -> None:
        self.folder = folder / "proc"
        (self.folder / "self" / "ns").mkdir(parents=True)
        (self.folder / "uptime").write_text("5000.00 9000.00\n")
        (self.folder / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
        self.add(1, first, 0)
        self.add(50, "mgpu", 1)

    def add(self, pid: int, name: str, parent: int = 1, env: dict[str, str] | None = None, **changes: Any) -> None:
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        started = changes.get("started_s", 1000) * TICKS
        (folder / "comm").write_bytes(name.encode()[:15] + b"\n")
        fields = [changes.get("state", "S"), parent, *[0] * 17, started, 0, 0]
        (folder / "stat").write_text(f"{pid} ({name[:15]}) {' '.join(map(str, fields))}\n")
        (folder / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in (env or {}).items()))
        (folder / "maps").write_text(changes.get("maps", ""))

    def ask(self, shm: Path | None = None, **arguments: Any) -> Leftovers:
        given = {"proc": str(self.folder), "shm": str(shm or self.folder / "no-shm"), "mgpu": 50, **arguments}
        return ask(**given)


def ask(**arguments: Any) -> Leftovers:
    """The probe's last word."""
    found = [answer["leftovers"] for answer in leftovers_probe.probe(**arguments) if "leftovers" in answer]
    return decode(Leftovers, json.loads(json.dumps(found[-1])), "")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def ranks(found: Leftovers) -> dict[int, bool | None]:
    return {process.pid: process.orphan for process in found.processes if process.kind == "rank"}


def firing(found: Leftovers, **changes: Any) -> dict[str, Problem]:
    checks = [check for check in CHECKS.values() if "leftovers" in check.facts and check.area == "processes"]
    outcomes = engine.run(checks, Snapshot(**facts(leftovers=found, **changes)))
    return {o.check.id: o.problem for o in outcomes if o.problem}


# ---- ranks


def test_a_rank_whose_launcher_is_gone(proc: Proc) -> None:
    proc.add(4711, "python", 1, RANK)
    (rank,) = proc.ask().processes
    assert rank == LeftProcess(4711, "python", "rank", True, 4000.0, 3, 29511, True)


@pytest.mark.parametrize(
    ("first", "parent", "env", "orphan"),
    [
        ("systemd", "torchrun", ELASTIC, False),
        ("systemd", "python", RANK, False),
        ("systemd", "pt_elastic", ELASTIC, False),
        ("systemd", "slurmstepd", RANK, False),
        ("systemd", "bash", RANK, False),
        ("systemd", "systemd", ELASTIC, True),  # the user's own manager takes orphans in, too
        ("bash", "tini", RANK, True),
        ("systemd", None, ELASTIC, True),
        ("bash", None, ELASTIC, True),  # torch's agent is never called bash
        ("bash", None, RANK, None),  # a container whose first process starts ranks itself
        ("torchrun", None, ELASTIC, False),
        ("systemd", None, {"RANK": "0", "MASTER_PORT": "1"}, None),  # by hand, with nohup
    ],
)
def test_whose_launcher_is_gone(
    first: str, parent: str | None, env: dict[str, str], orphan: bool | None, tmp_path: Path
) -> None:
    proc = Proc(tmp_path, first)
    if parent:
        proc.add(60, parent, 1)
    proc.add(4711, "pt_main_thread", 60 if parent else 1, env)
    assert ranks(proc.ask()) == {4711: orphan}


@pytest.mark.parametrize(
    "env", [{}, {"RANK": "0"}, {"MASTER_PORT": "29500"}, {"RANKS": "1", "MY_MASTER_PORT": "2"}, {"LOCAL_RANK": "0"}]
)
def test_who_is_no_rank(env: dict[str, str], proc: Proc) -> None:
    proc.add(4711, "python", 1, env)
    assert proc.ask().processes == ()


def test_only_python_is_asked_for_its_environment(proc: Proc) -> None:
    for pid, name in enumerate(("bash", "vim", "jupyter-lab", "train"), 4711):
        proc.add(pid, name, 1, RANK)
    assert proc.ask().processes == ()


def test_loader_workers_are_not_counted(proc: Proc) -> None:
    proc.add(60, "torchrun", 1)
    for rank in (100, 200):
        proc.add(rank, "python", 60, ELASTIC)
        proc.add(rank + 1, "pt_data_worker", rank, ELASTIC)
        proc.add(rank + 2, "bash", rank, ELASTIC)
        proc.add(rank + 3, "python", rank + 2, ELASTIC)
    assert ranks(proc.ask()) == {100: False, 200: False}


def test_mgpus_own_family_is_no_leftover(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """mgpu may itself run in a shell with rank variables, or as a rank; its children have them then."""
    proc.add(40, "python", 1, RANK)
    proc.add(50, "python", 40, RANK)
    proc.add(51, "python", 50, RANK)
    assert proc.ask().processes == ()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    proc.add(60, "python", 1, ELASTIC)  # another rank of the same job
    assert proc.ask().processes == ()


def test_a_process_of_somebody_else_is_not_asked(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.add(4711, "python", 1, RANK)
    proc.add(4712, "nvidia-cuda-mps-control", 1)
    monkeypatch.setattr(os, "getuid", lambda: MINE + 1)
    (service,) = proc.ask().processes
    assert (service.kind, service.mine) == ("mps", False)


# ---- services


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvidia-cuda-mps-control", "mps"),
        ("nvidia-cuda-mps-server", "mps"),
        ("nv-fabricmanager", "fabric_manager"),
        ("nv-hostengine", "dcgm"),
        ("dcgm-exporter", "dcgm"),
        ("nvidia-persistenced", "persistence"),
        ("nsys", "profiler"),
        ("nsys-launcher", "profiler"),
        ("ncu", "profiler"),
    ],
)
def test_services_by_their_names(name: str, kind: str, proc: Proc) -> None:
    proc.add(77, name, 1)
    (service,) = proc.ask().processes
    assert (service.pid, service.name, service.kind) == (77, name[:15], kind)


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ("--static_resource_list=node:192.0.2.2,1.0,node:__internal_head__,1.0,CPU,4,GPU,3,memory,157717762", 3.0),
        ("--static_resource_list=node:192.0.2.2,1.0,CPU,4,memory,157717762", 0.0),
        ("--static_resource_list=node:192.0.2.2,1.0,GPU,many", None),
        ("--node_manager_port=0", None),
    ],
)
def test_the_gpus_of_a_ray_node(resources: str, gpus: float | None, tmp_path: Path) -> None:
    """A process that is named and started like Ray's raylet (ray 2.60)."""
    program = tmp_path / "raylet"
    program.symlink_to(sys.executable)
    waits = [str(program), "-S", "-c", "input()", resources, "--node_id=4711"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, cwd="/") as node:
        while Path(f"/proc/{node.pid}/comm").read_text() != "raylet\n":
            time.sleep(0.01)
        found = {process.pid: process for process in ask(shm=str(tmp_path)).processes}
        node.communicate(b"\n")
    assert (found[node.pid].kind, found[node.pid].ray_gpus) == ("ray", gpus)


@pytest.mark.parametrize(
    ("namespace", "first", "sees_all"),
    [("pid:[4026531836]", True, True), ("pid:[4026532999]", True, False), ("pid:[4026531836]", False, False)],
    ids=["host", "container", "hidepid"],
)
def test_whether_all_processes_are_seen(namespace: str, first: bool, sees_all: bool, proc: Proc) -> None:
    link = proc.folder / "self" / "ns" / "pid"
    link.unlink()
    link.symlink_to(namespace)
    if not first:
        (proc.folder / "1" / "comm").unlink()
    assert proc.ask().sees_all_processes is sees_all


# ---- shared memory


def left(folder: Path, name: str, size: int = 1 << 20, age_s: float = 3600.0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(b"\1" * size)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_segments_and_their_owners(proc: Proc, tmp_path: Path) -> None:
    shm = tmp_path / "shm"
    proc.add(4711, "python", 1)
    proc.add(4712, "python", 1, maps="7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/nccl-live00\n")
    for name in ("nccl-d5rTd0", "nccl-live00", "torch_4711_77_0", "torch_999_77_0", "cuda.shm.0.1267.1", "psm_1a2b3c4d",
                 "cuda.shm.0.3e7.1", "sem.mp-abc", "mine.dat", "torch", "nothing"):  # fmt: skip
        left(shm, name, 4096)
    found = {Path(file.path).name: file for file in proc.ask(shm).files}
    assert {name: file.owner_alive for name, file in found.items()} == {
        "nccl-d5rTd0": False,
        "nccl-live00": True,  # mapped
        "torch_4711_77_0": True,  # its process lives
        "torch_999_77_0": False,
        "cuda.shm.0.1267.1": True,  # 0x1267 = 4711
        "cuda.shm.0.3e7.1": False,
        "psm_1a2b3c4d": False,
        "sem.mp-abc": False,
    }
    assert found["nccl-d5rTd0"].size_bytes == 4096
    assert found["nccl-d5rTd0"].age_s == pytest.approx(3600, abs=5)


def test_in_a_container_an_owner_may_be_out_of_sight(proc: Proc, tmp_path: Path) -> None:
    link = proc.folder / "self" / "ns" / "pid"
    link.unlink()
    link.symlink_to("pid:[4026532999]")
    left(tmp_path / "shm", "nccl-d5rTd0")
    (file,) = proc.ask(tmp_path / "shm").files
    assert file.owner_alive is None


def test_without_the_mappings_of_a_process_no_segment_is_called_dead(proc: Proc, tmp_path: Path) -> None:
    left(tmp_path / "shm", "nccl-d5rTd0")
    proc.add(4711, "python", 1)
    (proc.folder / "4711" / "maps").unlink()
    (proc.folder / "4711" / "maps").mkdir()
    (file,) = proc.ask(tmp_path / "shm").files
    assert file.owner_alive is None


def test_a_process_that_may_not_be_looked_into_and_has_no_shared_memory(proc: Proc, tmp_path: Path) -> None:
    """sshd, ssh-agent, systemd's (sd-pam): in every login, and nobody may read their maps."""
    left(tmp_path / "shm", "nccl-d5rTd0")
    folder = proc.folder / "4711"
    for shared, alive in ((b"0 kB", False), (b"10 kB", None), (b"", None)):
        proc.add(4711, "(sd-pam)", 1)
        (folder / "maps").unlink(missing_ok=True)
        (folder / "maps").mkdir()
        (folder / "status").write_bytes(b"Name:\t(sd-pam)\nRssShmem:\t       %s\n" % shared)
        (file,) = proc.ask(tmp_path / "shm").files
        assert file.owner_alive is alive
        (folder / "maps").rmdir()


@pytest.mark.parametrize("number", [1, 60])
def test_names_in_maps(number: int, proc: Proc, tmp_path: Path) -> None:
    """Few names are looked for one by one, many by what the maps hold; the kernel escapes a newline."""
    maps = [
        f"7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/{name}" for name in ("nccl-a", "nccl-b\\012c", "psm_x (deleted)")
    ]
    proc.add(4711, "python", 1, maps="\n".join(maps) + "\n7f02-7f03 rw-p 00000000 00:00 0\n")
    for name in ("nccl-a", "nccl-b\nc", "psm_x", *(f"nccl-dead{place}" for place in range(number))):
        left(tmp_path / "shm", name, 1)
    found = {Path(file.path).name: file.owner_alive for file in proc.ask(tmp_path / "shm").files}
    assert [found.pop(name) for name in ("nccl-a", "nccl-b\nc", "psm_x")] == [True, True, True]
    assert set(found.values()) == {False} and len(found) == number


def test_the_largest_leftovers_are_kept(proc: Proc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers_probe, "_FILES_KEPT", 2)
    proc.add(4711, "python", 1, maps="7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/nccl-used\n")
    for name, pages in (("nccl-used", 9), ("nccl-small", 1), ("nccl-large", 5), ("nccl-middle", 3)):
        left(tmp_path / "shm", name, pages * 4096)
    assert [Path(file.path).name for file in proc.ask(tmp_path / "shm").files] == ["nccl-large", "nccl-middle"]


def test_a_semaphore_of_another_program_is_no_leftover(proc: Proc, tmp_path: Path) -> None:
    for name in ("sem.license", "sem.mp-x1y2z3", "sem.loky-4-abc"):
        left(tmp_path / "shm", name, 32)
    found = {Path(file.path).name for file in proc.ask(tmp_path / "shm").files}
    assert found == {"sem.mp-x1y2z3", "sem.loky-4-abc"}


def test_links_and_folders_are_no_segments(proc: Proc, tmp_path: Path) -> None:
    left(tmp_path / "shm", "target")
    (tmp_path / "shm" / "nccl-link").symlink_to(tmp_path / "shm" / "target")
    (tmp_path / "shm" / "nccl-folder").mkdir()
    assert proc.ask(tmp_path / "shm").files == ()


def test_segments_that_are_really_mapped(tmp_path: Path) -> None:
    """Against the real /proc: this process maps one, nobody the others."""
    shm = tmp_path / "shm"
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in ("nccl-" + os.urandom(8).hex(), f"torch_{dead.pid}_1_0"):
        left(shm, name)
    live = left(shm, "nccl-" + os.urandom(8).hex(), mmap.PAGESIZE)
    with live.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        found = ask(shm=str(shm))
    gone = False if found.sees_all_processes else None
    states = {file.path: file.owner_alive for file in found.files}
    assert states.pop(str(live)) is True
    assert set(states.values()) == {gone} and len(states) == 2


# ---- locks


@pytest.mark.parametrize("place", ["py311_cu130/cpu_adam", "cpu_adam"])
def test_locks_of_extension_builds(place: str, proc: Proc, tmp_path: Path) -> None:
    folder = tmp_path / "extensions" / place
    folder.mkdir(parents=True)
    left(folder, "lock", 0, 3600.0)
    left(folder, "cpu_adam.so", 5)
    found = proc.ask(extensions=str(tmp_path / "extensions"))
    (lock,) = found.files
    assert (lock.path, lock.kind, lock.owner_alive) == (str(folder / "lock"), "lock", None)
    assert found.locks_searched
    proc.add(88, "ninja", 1)
    (lock,) = proc.ask(extensions=str(tmp_path / "extensions")).files
    assert lock.owner_alive is True


def test_no_folder_of_extensions_is_no_lock(proc: Proc, tmp_path: Path) -> None:
    found = proc.ask(extensions=str(tmp_path / "missing"))
    assert found.files == () and found.locks_searched
    (tmp_path / "file").touch()
    assert proc.ask(extensions=str(tmp_path / "file")).locks_searched


def test_the_search_is_bounded(proc: Proc, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / "extensions" / f"e{number}" / "deep" / "deeper").mkdir(parents=True)
        (tmp_path / "extensions" / f"e{number}" / "deep" / "deeper" / "lock").touch()
    assert proc.ask(extensions=str(tmp_path / "extensions")).files == ()


def test_processes_are_told_before_a_folder_that_hangs_is_asked(proc: Proc) -> None:
    proc.add(4711, "python", 1, RANK)
    answers = leftovers_probe.probe(proc=str(proc.folder), shm="/nonexistent", extensions="/home/x/ext", mgpu=50)
    assert "blocked if one is stuck in the kernel" in next(answers)["asking"]
    first = decode(Leftovers, next(answers)["leftovers"], "")
    assert ranks(first) == {4711: True} and first.locks_searched is False
    assert next(answers) == {"asking": "lock files under /home/x/ext"}
    assert engine.run_check(CHECKS["extension_lock_stale"], Snapshot(**facts(leftovers=first)))[0].status == "skip"


# ---- spoiled trees


def test_an_empty_or_missing_proc(tmp_path: Path) -> None:
    found = ask(proc=str(tmp_path), shm=str(tmp_path / "none"), mgpu=50)
    assert found == Leftovers((), (), None, True)
    assert ask(proc="/nonexistent", shm="/nonexistent").processes == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=80), min_size=4, max_size=4), st.sampled_from(["python", "nsys", "ninja"]))
def test_garbage_in_proc(tmp_path_factory: pytest.TempPathFactory, garbage: list[bytes], name: str) -> None:
    proc = Proc(Path(tmp_path_factory.mktemp("garbage")))
    proc.add(4711, name, 1, RANK)
    for file, content in zip(("stat", "environ", "comm", "maps"), garbage, strict=True):
        if content:
            (proc.folder / "4711" / file).write_bytes(content)
    (proc.folder / "uptime").write_bytes(garbage[0])
    (proc.folder / "4712").mkdir()
    (proc.folder / "٣").mkdir()  # a digit, and no number of a process
    proc.ask()


def test_a_circle_of_parents_ends(proc: Proc) -> None:
    proc.add(60, "python", 61, RANK)
    proc.add(61, "bash", 60)
    assert set(ranks(proc.ask())) <= {60}


# ---- really here


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start processes that are ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        running.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, **options))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


SLEEPS = (sys.executable, "-c", "print('up', flush=True); import time; time.sleep(120)")


def up(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process.pid


# Takes orphans in as systemd does (PR_SET_CHILD_SUBREAPER, PR_SET_NAME), and starts a rank whose launcher ends.
REAPER = """\
import ctypes, os, subprocess, sys, time
libc = ctypes.CDLL(None)
libc.prctl(36, 1, 0, 0, 0); libc.prctl(15, b"systemd", 0, 0, 0)
launcher = subprocess.Popen(["sh", "-c", '"$0" -c "import time; time.sleep(120)" >/dev/null & echo $!', sys.executable])
launcher.wait()
time.sleep(120)
"""


def test_ranks_that_are_really_left(started: Callable[..., subprocess.Popen[str]]) -> None:
    env = {**os.environ, **RANK}
    live = up(started(*SLEEPS, env=env))
    idle = up(started(*SLEEPS, env={name: value for name, value in os.environ.items() if name not in RANK}))
    reaper = started(sys.executable, "-c", REAPER, env=env)
    assert reaper.stdout is not None
    orphan = int(reaper.stdout.readline())
    somebody = started("sleep", "120")  # in the place of mgpu: this test is the parent of the live rank
    try:
        for _ in range(100):  # until the launcher is gone and the rank has become python
            found = {p.pid: p for p in ask(mgpu=somebody.pid).processes if p.kind == "rank"}
            if orphan in found and found[orphan].orphan:
                break
            time.sleep(0.05)
        assert found[orphan].orphan is True and found[orphan].rank == 3 and found[orphan].port == 29511
        assert found[live].orphan is False and found[live].mine
        assert idle not in found
        told = firing(replace(ask(mgpu=somebody.pid), processes=(found[orphan], found[live])))
        assert f"kill {orphan}" in told["rank_orphaned"].fixes[0].commands
        assert "GPU memory and port stay in use" in told["rank_orphaned"].cause
        assert str(live) in told["rank_of_another_run"].cause
        own = {process.pid for process in ask(mgpu=os.getpid()).processes}
        assert live not in own, "a child of mgpu is no leftover"
    finally:
        os.kill(orphan, 9)


def test_a_zombie_that_is_really_here(started: Callable[..., subprocess.Popen[str]]) -> None:
    ended = started(sys.executable, "-c", "")
    for _ in range(200):
        dead = [process for process in ask(mgpu=1).processes if process.pid == ended.pid]
        if dead and dead[0].kind == "zombie":
            break
        time.sleep(0.05)
    assert [process.kind for process in dead] == ["zombie"]
    assert "1 zombie process" in firing(Leftovers((), (replace(dead[0], age_s=60.0),), True))["rank_zombie"].title
    assert ended.pid not in {process.pid for process in ask(mgpu=os.getpid()).processes}, "mgpu's own, about to be read"


def test_a_lock_that_hangs_every_rank(mgpu: Run, tmp_path: Path) -> None:
    lock = tmp_path / "ext" / "cpu_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (time.time() - 3600,) * 2)
    result = mgpu("doctor", "--quick", "--json", env={"TORCH_EXTENSIONS_DIR": str(tmp_path / "ext")})
    (found,) = [c for c in json.loads(result.stdout)["checks"] if c["id"] == "extension_lock_stale"]
    if "running builds" in str(found):
        return  # this user really compiles something here at the moment
    assert found["status"] == "warn", found
    assert found["fix"][0]["commands"] == [f"rm {lock}"]
    assert "forever" in found["cause"]


def test_segments_that_fill_a_small_shm(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        missing("mounting needs root")
    probe = subprocess.run([need("unshare"), "-m", "true"], capture_output=True, check=False)
    if probe.returncode:
        missing("mount namespaces are not allowed here")
    command = shlex.join([sys.executable, "-m", "mgpu", "doctor", "--quick", "--json"])
    script = (
        "mount -t tmpfs -o size=64m tmpfs /dev/shm && head -c 10m /dev/zero > /dev/shm/nccl-d5rTd0 && "
        f"touch -d '-5 minutes' /dev/shm/nccl-d5rTd0 && exec {command}"
    )
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script], env=environment(tmp_path), cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    document = json.loads(done.stdout)
    (found,) = [c for c in document["checks"] if c["id"] == "shm_holds_leftovers"]
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        assert found["status"] == "skip", found
        return
    assert found["status"] == "warn", found
    assert found["title"].startswith("10 MiB of 64 MiB in /dev/shm left over from killed runs")
    assert "rm /dev/shm/nccl-d5rTd0" in found["fix"][0]["commands"]


def test_on_this_machine() -> None:
    (child,) = run([replace(LEFTOVERS, bare=True)])
    found = decode(Leftovers, child.found["leftovers"], "")
    assert not child.gaps and found.sees_all_processes is not None
    assert os.getpid() not in {process.pid for process in found.processes}
