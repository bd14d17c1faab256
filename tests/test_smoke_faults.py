"""Does a real fault, in any rung, end with a verdict that names rank, rung and cause, in time, and is nothing left?

Real ranks over gloo through the real launcher. In time is: the stall limit after the fault, and what a busy machine
adds.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.launchers import port
from mgpu.smoke.ranks import STAGES
from tests import fake_nvml, verdicts
from tests.conftest import environment, missing, need
from tests.scripts import TWO_RANKS, fault, kill_all, marked, wait_for, write_config

STALL = 3  # seconds
USUAL_STALL = 30  # without --stall-timeout
BUSY = 20  # what a busy machine may add; torch alone waits for minutes
AT_ONCE = 20  # well before USUAL_STALL
START = 15  # what mgpu and the imports may take on a busy machine, where no rank tells the time of the fault
SHM = Path("/dev/shm")
# Rungs that the quick level leaves out.
SLOW = ("checkpoint", "bandwidth")


@dataclass
class Told:
    """What one smoke test said."""

    code: int
    document: dict[str, Any]
    seconds: float  # from the fault, or where there was none to wait for from the start, to the end

    @property
    def failed(self) -> dict[str, dict[str, Any]]:
        """The checks that fail, by id."""
        return verdicts.checks(self.document)

    @property
    def cause(self) -> dict[str, Any]:
        """The one check that the report names as the cause."""
        return verdicts.cause(self.document)


Test = Callable[..., Told]


@pytest.fixture
def smoke_test(tmp_path: Path) -> Iterator[Test]:
    """Run it, with a fault. The verdict must come in time, and no process, port, shared memory or temporary file of it
    may be left."""
    # a short one: loader workers hand tensors over a socket in it, whose path may have 107 characters
    temporary = Path(tempfile.mkdtemp(prefix="faults-"))
    before = set(os.listdir(SHM))

    def run(
        *arguments: str,
        env: Mapping[str, str] | None = None,
        mount: str = "",
        wrap: str = "",
        config: str = TWO_RANKS,
        busy: int | None = None,
        leaves: bool = False,
    ) -> Told:
        write_config(tmp_path, config)
        options = ("--json", "--no-bisect", *arguments)
        command = [sys.executable, "-m", "mgpu", "smoke-test", *options]
        if mount:
            command = in_a_mount(mount, command)
        elif wrap:
            command = ["sh", "-c", f"{wrap} && exec {shlex.join(command)}"]
        started = time.time()
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(tmp_path / "home", {"TMPDIR": str(temporary), **(env or {})}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        ended = time.time()
        assert done.stdout and "Traceback" not in done.stderr, done.stderr
        document = json.loads(done.stdout)
        spoke = _last_words(tmp_path, document)
        told = Told(done.returncode, document, ended - (spoke or started))
        stall = float(options[options.index("--stall-timeout") + 1]) if "--stall-timeout" in options else USUAL_STALL
        assert told.seconds < stall + BUSY + (0 if spoke else START)
        nothing_left(tmp_path, temporary, before, told, busy, leaves)
        return told

    yield run
    kill_all(tmp_path)
    shutil.rmtree(temporary)


def _last_words(folder: Path, document: dict[str, Any]) -> float | None:
    """When the rank at fault wrote last, if it wrote at all."""
    number = (document.get("culprit") or {}).get("rank")
    journal = folder / (document.get("logs") or "") / f"rank{number}.jsonl"
    lines = journal.read_text().splitlines() if journal.is_file() else []
    return json.loads(lines[-1])["time"] if lines else None


def in_a_mount(mount: str, command: list[str]) -> list[str]:
    """The command with something mounted, in a mount namespace of its own."""
    if os.geteuid() != 0:
        missing("mounting needs root")
    unshare = [need("unshare"), "-m", "--propagation", "private"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode != 0:
        missing("mount namespaces are not allowed here")
    return [*unshare, "sh", "-c", f"{mount} && exec {shlex.join(command)}"]


def nothing_left(folder: Path, temporary: Path, shared: set[str], told: Told, busy: int | None, leaves: bool) -> None:
    """No process, no file, no shared memory, and nobody listens where the ranks met, unless it was `busy` before.

    `leaves`: a rank left a file, which mgpu removed and told."""
    assert not marked(folder)
    # torch._dynamo keeps a cache for the user, which is none of a run's
    assert [name for name in os.listdir(temporary) if not name.startswith("torchinductor_")] == []
    # tests beside this one make such files, too, but not for long
    wait_for(lambda: not {name for name in set(os.listdir(SHM)) - shared if name.startswith(("torch_", "sem."))}, 20)
    checks = {check["id"]: check for check in told.document["checks"]}
    if told.document["ranks"]:
        for name in ("ranks_left_running", "run_leaves_files", "run_leaves_port_taken"):
            if leaves and name == "run_leaves_files":
                continue
            assert checks[name]["status"] == "ok", checks[name]
        met = re.search(r"did not leave port (\d+) in use", json.dumps(checks["run_leaves_port_taken"]))
        assert met and port.is_taken(int(met.group(1))) == (int(met.group(1)) == busy)


def level(rung: str) -> tuple[str, ...]:
    return ("--level", "standard" if rung in SLOW else "quick")


# A rank that is stopped, or killed: one of them in each rung, both in the last one, where the others may have ended.
# tests/test_smoke.py stops one in training.

STOPPED = ("start", "group", "pairs", "checkpoint", "shutdown")
KILLED = ("device", "collectives", "train", "bandwidth", "shutdown")


def test_each_rung_has_its_fault() -> None:
    assert {*STOPPED, *KILLED} == {*STAGES}


@pytest.mark.parametrize("rung", STOPPED)
def test_rank_stopped(smoke_test: Test, rung: str) -> None:
    told = smoke_test(*level(rung), "--stall-timeout", str(STALL), env=fault("SIGSTOP", "begins", rung=rung))
    assert told.code == errors.NOT_READY and told.document["ended"] == "stalled"
    assert told.cause["id"] == "rank_frozen"
    assert re.fullmatch(rf'rank 1 \(.*, pid \d+\) is stopped in stage "{rung}"', told.cause["title"])
    culprit = told.document["culprit"]
    assert (culprit["rank"], culprit["rung"], culprit["state"]) == (1, rung, "stopped")
    # A stopped process cannot answer. Woken, it does, before it takes one more step.
    assert culprit["stack_from"] == "woken" and "sitecustomize" in culprit["stack"]
    assert "Python stack (after SIGCONT)" in told.cause["cause"]


@pytest.mark.parametrize("rung", KILLED)
def test_rank_killed(smoke_test: Test, rung: str) -> None:
    """At once: nobody waits for the stall limit, which is 30 s here. In training the other rank sees its connection
    break amid a step; the one that was killed is the cause. In the stage "device" it was never behind the others: only
    the launcher's table tells which of them was ended by the launcher."""
    word = "step 3 of " if rung == "train" else "begins"
    told = smoke_test(*level(rung), env=fault("SIGKILL", word, rung=rung))
    assert told.code == errors.NOT_READY and told.document["ended"] == "died"
    assert told.cause["id"] == "rank_killed"
    assert re.fullmatch(rf'rank 1 \(.*, pid \d+\) was killed by SIGKILL in stage "{rung}"', told.cause["title"])
    assert (told.document["culprit"]["rank"], told.document["culprit"]["rung"]) == (1, rung)
    assert told.failed["rank_killed"]["evidence"]["rank"] == 1 and told.document["stamp"] is None
    assert told.seconds < AT_ONCE


def test_rank_that_exits_with_0_in_a_step(smoke_test: Test) -> None:
    """The launcher takes it for a success, and the other rank's connection breaks: the one that left is the cause."""
    told = smoke_test("--level", "quick", env=fault("exit 0", "step 3 of ", rung="train"))
    assert told.code == errors.NOT_READY and told.document["ended"] == "died"
    assert told.cause["id"] == "rank_exited"
    assert re.fullmatch(r'rank 1 \(.*\) exited by itself in stage "train" at "step 3 of 20"', told.cause["title"])
    assert (told.document["culprit"]["rank"], told.document["culprit"]["rung"]) == (1, "train")
    assert told.seconds < AT_ONCE


def test_rank_that_is_throttled(smoke_test: Test) -> None:
    """Stopped and continued again and again, it passes every stage; what all ranks wait for is said."""
    told = smoke_test("--level", "quick", env=fault("throttle", "begins", rung="device"))
    assert told.code == 0
    found = {check["id"]: check for check in told.document["checks"]}["rank_stopped_repeatedly"]
    assert found["status"] == "warn" and found["evidence"]["rank"] == 1
    assert found["evidence"]["share"] > 0.1  # of the whole test, from the start of the imports


def test_rank_that_leaves_shared_memory(smoke_test: Test) -> None:
    told = smoke_test("--level", "quick", env=fault("leave a file", "begins", rung="shutdown"), leaves=True)
    assert told.code == 0
    found = {check["id"]: check for check in told.document["checks"]}["run_leaves_files"]
    assert found["status"] == "warn" and found["evidence"]["rank"] == 1
    assert re.fullmatch(r"1 file left by rank 1: /dev/shm/torch_\d+_1_0 \(removed by mgpu\)", found["title"])


def test_rank_stopped_before_it_says_anything(smoke_test: Test) -> None:
    """It is found by its number in its environment, and counts as stopped for as long as it was seen so."""
    told = smoke_test("--level", "quick", "--stall-timeout", str(STALL), env=fault("SIGSTOP", ""))
    assert told.code == errors.NOT_READY and told.document["ended"] == "stalled"
    assert told.cause["id"] == "rank_frozen"
    assert re.fullmatch(r'rank 1 \(.*, pid \d+\) is stopped in stage "start"', told.cause["title"])
    assert told.document["culprit"]["stack"] is None and "did not respond, so no stack" in told.cause["cause"]


def test_rank_killed_before_it_says_anything(smoke_test: Test) -> None:
    told = smoke_test("--level", "quick", env=fault("SIGKILL", ""))
    assert told.code == errors.NOT_READY
    assert told.cause["id"] == "rank_killed"
    assert re.fullmatch(r'rank 1.* was killed by SIGKILL in stage "start"', told.cause["title"])


# A machine that lacks something. A rank that is wrong: test_smoke_collectives.py, test_smoke_planted.py


def test_port_busy(smoke_test: Test) -> None:
    """accelerate takes another port where it sees that somebody listens; here somebody only holds it."""
    with socket.socket() as other:
        other.bind(("", 0))
        number = other.getsockname()[1]
        told = smoke_test("--level", "quick", config=f"{TWO_RANKS}main_process_port: {number}\n", busy=number)
    assert told.code == errors.NOT_READY
    assert told.cause["id"] == "meeting_port_taken"
    assert told.cause["title"] == f'no rank was started in stage "start": port {number} is in use'
    assert told.document["culprit"]["rung"] == "start"
    assert told.seconds < AT_ONCE + START


def test_interface_that_does_not_exist(smoke_test: Test) -> None:
    told = smoke_test("--level", "quick", env={"GLOO_SOCKET_IFNAME": "nope0"})
    assert told.code == errors.NOT_READY
    assert "nope0" in told.cause["title"] and told.document["culprit"]["rung"] in ("start", "group")
    assert told.document["culprit"]["rank"] in (0, 1) and "rank" in told.cause["title"]
    assert told.seconds < AT_ONCE


def test_rendezvous_that_does_not_answer(smoke_test: Test) -> None:
    config = TWO_RANKS.replace("num_machines: 1", "num_machines: 2\nmain_process_ip: 192.0.2.1\nmachine_rank: 1")
    config = config.replace("num_processes: 2", "num_processes: 4") + "main_process_port: 29517\n"
    told = smoke_test("--level", "quick", "--node-rank", "1", "--start-timeout", "3", config=config)
    assert told.code == errors.NOT_READY
    assert "192.0.2.1" in told.cause["title"], told.cause
    assert told.document["culprit"]["rung"] == "start"
    assert told.seconds < AT_ONCE + START


def test_shared_memory_too_small_for_the_loader(smoke_test: Test) -> None:
    told = smoke_test(mount="mount -t tmpfs -o size=1m tmpfs /dev/shm")
    assert told.code == errors.NOT_READY
    assert "/dev/shm" in told.cause["title"] and "rank" in told.cause["title"], told.cause
    assert told.document["culprit"]["rung"] == "train" and told.document["culprit"]["rank"] in (0, 1)


def test_memory_limit(smoke_test: Test) -> None:
    told = smoke_test("--level", "quick", env=fault("no memory", "begins", rung="train"))
    assert told.code == errors.NOT_READY
    assert told.cause["id"] == "rank_out_of_memory"
    assert re.fullmatch(r'rank 1 \(.*\) ran out of host memory in stage "train".*', told.cause["title"])
    assert (told.document["culprit"]["rank"], told.document["culprit"]["rung"]) == (1, "train")
    assert told.seconds < AT_ONCE


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A control group of 2 GiB, as a container or a job has one."""
    root = Path("/sys/fs/cgroup")
    old = root / "memory"
    group = (old if old.is_dir() else root) / f"mgpu-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.limit_in_bytes" if old.is_dir() else "memory.max"
        (group / limit).write_text(str(2 << 30))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_memory_limit_of_a_job(smoke_test: Test, small_cgroup: Path) -> None:
    """The kernel kills the rank without a word; it counts whom it kills for memory."""
    env = fault("too much memory", "begins", rung="collectives")
    told = smoke_test("--level", "quick", env=env, wrap=f"echo $$ > {small_cgroup}/cgroup.procs")
    assert told.code == errors.NOT_READY
    assert told.cause["id"] == "rank_out_of_memory"
    killed = r'rank 1 \(.*\) was killed by the OOM killer \(out of memory\) in stage "collectives"'
    assert re.fullmatch(killed, told.cause["title"])
    assert (told.document["culprit"]["rank"], told.document["culprit"]["rung"]) == (1, "collectives")


def test_checkpoint_folder_that_is_full(smoke_test: Test, tmp_path: Path) -> None:
    """One that is read-only, in forked ranks: tests/test_smoke_checkpoint.py."""
    folder = tmp_path / "out"
    folder.mkdir()
    fill = f"cat /dev/zero > {folder}/filler 2>/dev/null; true"
    mount = f"{{ mount -t tmpfs -o size=16k tmpfs {folder}; {fill}; }}"
    told = smoke_test("--checkpoint-dir", str(folder), mount=mount)
    assert told.code == errors.NOT_READY
    assert told.cause["id"] == "checkpoint_not_writable"
    assert "rank" in told.cause["title"] and told.document["culprit"]["rung"] == "checkpoint", told.cause
    assert told.document["culprit"]["rank"] is not None


def test_more_ranks_than_gpus(smoke_test: Test, tmp_path: Path) -> None:
    """Refused before a rank is started: on a described machine of four GPUs."""
    described = fake_nvml.machine(tmp_path / "nvml", "a100_sxm_x4")
    env = fake_nvml.environment(fake_nvml.build(tmp_path / "nvml"), described)
    told = smoke_test(env=env, config=TWO_RANKS.replace("num_processes: 2", "num_processes: 9"))
    assert told.code == errors.NOT_READY and told.document["ranks"] == []
    assert "config_more_ranks_than_gpus" in told.failed
    title = told.failed["config_more_ranks_than_gpus"]["title"]
    assert "9" in title and "4" in title
