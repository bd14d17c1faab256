"""Does the runner's clock see who stands still, do the ranks' answers tell where, and is what they leave cleared away?

Told by journals on disk, and by processes that stand in for ranks.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import probes
from mgpu.launchers import port
from mgpu.process import guard, leftover_files, processes
from mgpu.process.command import MARK
from mgpu.process.leftover_files import Swept, error_folder
from mgpu.smoke import culprit, memory_kept, report, stacks, watch
from mgpu.smoke.memory_kept import Before
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.ranks.journal import ASK, Journal
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Gap, Rank, Ranks, Snapshot, Step
from tests.checks import facts as known
from tests.scripts import wait_for
from tests.verdicts import judged


class Journals:
    """The journals of ranks that do not run."""

    def __init__(self, folder: Path, expected: int, stall_s: float = 3.0) -> None:
        self.folder = folder
        self.view = watch.View(Orders(str(folder), expected, stall_s=stall_s, start_limit_s=90.0))

    def write(self, rank: int, rung: str, word: str, *, order: int = 1, limit_s: float | None = None) -> None:
        record = {"order": order, "time": 0, "rung": rung, "word": word, "limit_s": limit_s}
        self._append(rank, json.dumps(record) + "\n")

    def pass_all(self, rank: int) -> None:
        done = {"rung": STAGES[-1], "ok": True, "detail": "left", "seconds": 0.1}
        self._append(
            rank, json.dumps({"order": 99, "time": 0, "rung": STAGES[-1], "done": done, "report": None}) + "\n"
        )

    def _append(self, rank: int, text: str) -> None:
        with (self.folder / f"rank{rank}.jsonl").open("a") as file:
            file.write(text)

    def beat(self, rank: int, age_s: float) -> None:
        path = self.folder / f"rank{rank}.beat"
        path.touch()
        os.utime(path, (time.time() - age_s,) * 2)

    def stalled(self, quiet_s: float) -> bool:
        """Whether the run counts as stalled when nothing was written for `quiet_s`."""
        self.view.read()
        self.view.progress = time.monotonic() - quiet_s
        return self.view.stalled()


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path, 2)


def test_ranks_that_move_are_not_stalled(journals: Journals) -> None:
    for rank in (0, 1):
        journals.write(rank, "collectives", "all-reduce 1 x int64")
        journals.beat(rank, 0.1)
    assert not journals.stalled(2.5)
    assert journals.stalled(3.5)


def test_launcher_gets_the_start_limit(journals: Journals) -> None:
    assert not journals.stalled(60.0)
    assert journals.stalled(95.0)
    journals.write(0, "collectives", "all-reduce 1 x int64")
    journals.beat(0, 0.1)
    assert not journals.stalled(60.0)  # the other one may still be importing


def test_import_gets_its_own_limit(journals: Journals) -> None:
    for rank in (0, 1):
        journals.write(rank, "start", "import torch", limit_s=90.0)
        journals.beat(rank, 0.1)
    assert not journals.stalled(60.0)
    assert journals.stalled(95.0)


def test_import_may_hold_up_the_heartbeat(journals: Journals) -> None:
    """Loading a gigabyte from a cold network file system holds Python's lock: no thread beats meanwhile."""
    for rank in (0, 1):
        journals.write(rank, "start", "import torch", limit_s=90.0)
        journals.beat(rank, 20.0)
    assert not journals.stalled(20.0)


def test_one_silent_rank_stalls_the_run(journals: Journals) -> None:
    """Although the others still write."""
    for rank in (0, 1):
        journals.write(rank, "train", "step 3 of ")
    journals.beat(0, 0.1)
    journals.beat(1, 3.5)
    assert journals.stalled(0.0)


def test_rank_that_is_through_needs_no_heartbeat(journals: Journals) -> None:
    for rank in (0, 1):
        journals.write(rank, "shutdown", "begins")
        journals.beat(rank, 10.0)
        journals.pass_all(rank)
    assert not journals.stalled(14.0)  # the launcher may take its time to end
    assert journals.stalled(16.0)


def test_half_a_line_is_left_for_later(journals: Journals) -> None:
    with (journals.folder / "rank0.jsonl").open("w") as file:
        file.write('{"order": 1, "time": 0, "rung": "collectives", "word": "all-')
        file.flush()
        journals.view.read()
        assert journals.view.journals[0].order == 0
        file.write('reduce", "limit_s": null}\n')
    journals.view.read()
    assert journals.view.journals[0].word == "all-reduce"


def test_reached_and_last_words(journals: Journals) -> None:
    journals.write(0, "start", "begins")
    journals.view.read()
    assert journals.view.reached() == "start"
    assert journals.view.positions() == "rank 0: begins; rank 1: no progress reported"


def rank(number: int, order: int, **more: Any) -> Rank:
    """A rank that came as far as its `order`-th word."""
    return Rank(rank=number, last_word_order=order, last_word=f"word {order}", **more)


def ranks(*members: Rank, ended: Any = "stalled") -> Ranks:
    return Ranks(expected=len(members), rungs=STAGES, ranks=members, ended=ended, launcher_exit=1, stall_limit_s=3.0)


FAILED = (Step("collectives", False, "wrong sum", 0.1),)
PASSED = tuple(Step(rung, True) for rung in STAGES)


@pytest.mark.parametrize(
    ("found", "who"),
    [
        pytest.param(ranks(rank(0, 9), rank(1, 9, process_state="stopped")), 1, id="stopped"),
        pytest.param(ranks(rank(0, 1, process_state="traced"), rank(1, 9, silent_s=9.0)), 0, id="in a debugger"),
        pytest.param(ranks(rank(0, 9, silent_s=2.0), rank(1, 9, silent_s=8.0)), 1, id="longest silent"),
        pytest.param(ranks(rank(0, 9, silent_s=0.2), rank(1, 7, silent_s=0.1)), 1, id="behind"),
        pytest.param(ranks(rank(0, 9, silent_s=0.2), rank(1, 9, silent_s=0.1)), None, id="all at one place"),
        pytest.param(ranks(rank(0, 9), rank(1, 0)), 1, id="never heard of"),
        pytest.param(
            ranks(
                rank(0, 8, steps=FAILED, finished=True, failed_at=20.0),
                rank(1, 10, steps=FAILED, finished=True, failed_at=19.5),
                ended="died",
            ),
            1, id="failed first",
        ),
        pytest.param(ranks(rank(0, 9, finished=True), rank(1, 4), ended="died"), 1, id="gone"),
        pytest.param(
            ranks(*(rank(n, 9, steps=PASSED, finished=True) for n in range(2)), ended="finished"), None, id="fine"
        ),
    ],
)  # fmt: skip
def test_culprit(found: Ranks, who: int | None) -> None:
    """The rank that the first failing check names, and no other rule."""
    outcomes = judged(Snapshot(ranks=found))
    told = culprit.find_culprit(outcomes, found)
    assert (told["rank"] if told else None) == who
    assert told is None or told["rung"] in STAGES


# A process that stands in for a rank


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """It answers SIGUSR1 as a rank does not: by its end."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def introduced(journals: Journals, number: int, pid: int) -> None:
    journals._append(number, json.dumps({"order": 1, "time": 0, "rung": "start", "identity": {"pid": pid}}) + "\n")


def test_a_rank_that_is_gone_is_the_launchers_to_notice(
    journals: Journals, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a moment for that; it may be stopped itself."""
    for number in (0, 1):
        introduced(journals, number, sleeper.pid)
        journals.write(number, "train", "step 3 of 20", order=2)
        journals.beat(number, 0.1)
    journals.view.read()
    assert not journals.view.lost()
    sleeper.kill()
    sleeper.wait()
    journals.beat(1, 60.0)
    assert not journals.stalled(60.0) and not journals.view.lost()
    monkeypatch.setattr(watch, "_NOTICE_S", 0.0)
    wait_for(journals.view.lost, 5)


def test_a_rank_that_is_through_may_be_gone(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_NOTICE_S", 0.0)
    for number in (0, 1):
        introduced(journals, number, 2**22 + 1)
        journals.pass_all(number)
    journals.view.read()
    assert not journals.view.lost()


def test_a_rank_stopped_before_it_began(journals: Journals, sleeper: subprocess.Popen[bytes]) -> None:
    """Nothing was heard of it: it is found by its number, and its time counts from when it was seen stopped."""
    journals.view.started[1] = processes.Rank(sleeper.pid)
    journals.write(0, "group", "first barrier")
    journals.beat(0, 0.1)
    assert not journals.stalled(2.0)
    os.kill(sleeper.pid, signal.SIGSTOP)
    wait_for(lambda: processes.state_of(sleeper.pid) == "stopped")
    assert not journals.stalled(0.0)
    journals.view._since[1, "stopped"] -= 3.5
    assert journals.stalled(0.0)
    assert journals.view.rank(1, journals.view.states(), {}).pid == sleeper.pid


def test_a_rank_that_is_stopped_at_times(journals: Journals, sleeper: subprocess.Popen[bytes]) -> None:
    """Each look of the runner counts; of a few looks nothing is told."""
    introduced(journals, 1, sleeper.pid)
    journals.view.read()
    os.kill(sleeper.pid, signal.SIGSTOP)
    wait_for(lambda: processes.state_of(sleeper.pid) == "stopped")
    for _ in range(8):
        journals.view.read()
    assert journals.view.stopped_share(1) is None
    os.kill(sleeper.pid, signal.SIGCONT)
    wait_for(lambda: processes.state_of(sleeper.pid) != "stopped")
    for _ in range(31):
        journals.view.read()
    assert journals.view.stopped_share(1) == 8 / 40
    assert journals.view.stopped_share(0) is None


def test_a_line_that_a_full_disk_cut_off_is_passed_over(journals: Journals) -> None:
    journals._append(0, '{"order": 1, "ti\n')
    journals.write(0, "train", "step 3 of 20", order=2)
    journals.view.read()
    assert journals.view.journals[0].word == "step 3 of 20"


LISTENS = """
import os, signal, sys, time
from pathlib import Path
from mgpu.smoke.ranks.journal import Journal
journal = Journal(Path(sys.argv[1]), int(sys.argv[2]))
journal.listen()
(Path(sys.argv[1]) / f"rank{sys.argv[2]}.said").write_text("introduced")
if sys.argv[3:] == ["stop"]:
    os.kill(os.getpid(), signal.SIGSTOP)
def waits():
    time.sleep(60)
waits()
"""


def test_ranks_tell_where_they_hang(tmp_path: Path) -> None:
    """One runs, one is stopped and has to be woken, one is a shell that does not know how to answer."""
    running, stopped = (
        subprocess.Popen([sys.executable, "-c", LISTENS, str(tmp_path), *arguments])
        for arguments in (("0",), ("1", "stop"))
    )
    deaf = subprocess.Popen(["sh", "-c", "trap '' USR1; sleep 60 & wait"])
    try:
        wait_for(lambda: "introduced" in "".join(path.read_text() for path in tmp_path.glob("rank0.said")), 20)
        wait_for(lambda: processes.state_of(stopped.pid) == "stopped")
        members = (rank(0, 1), rank(1, 1, process_state="stopped"), rank(2, 1))
        listeners = {0: running.pid, 1: stopped.pid, 2: deaf.pid}
        found = stacks.collect(tmp_path, listeners, members)
    finally:
        for process in (running, stopped, deaf):
            process.kill()
            process.wait()
    assert [member.stack_from for member in found] == ["asked", "woken", None]
    assert "in waits" in (found[0].stack or "")
    assert 'File "<string>", line 9 in <module>' in (found[1].stack or "")  # where it was stopped, and no step further
    assert found[2].stack is None and found[0].collective is None  # no torch, no flight recorder


def test_sigterm_leaves_a_mark_and_an_exit_does_not(tmp_path: Path) -> None:
    """It is left though the interpreter is busy in C, and by the rank alone: not by what it forked."""
    code = LISTENS.replace("time.sleep(60)", "time.sleep(60 if sys.argv[3:] == ['stay'] else 0)")
    busy = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), "0", "stay"])
    gone = subprocess.run([sys.executable, "-c", code, str(tmp_path), "1"], timeout=20)
    view = watch.View(Orders(str(tmp_path), 2))
    try:
        wait_for(lambda: (tmp_path / "rank0.said").exists(), 20)
        busy.terminate()
        assert busy.wait(20) == -signal.SIGTERM and gone.returncode == 0
    finally:
        busy.kill()
        busy.wait()
    assert [view.rank(number, view.states(), {}).terminated for number in (0, 1)] == [True, False]


# Recorded with torch 2.13 over gloo: rank 0 waits in the second collective of the world, rank 1 has done the first.
ENTRY: dict[str, Any] = {
    "collective_seq_id": 1, "input_dtypes": ["Float"], "input_sizes": [[10]], "is_p2p": False,
    "process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "retired": True, "state": "scheduled",
}  # fmt: skip


def test_what_the_flight_recorder_tells() -> None:
    inside = {
        "entries": [
            ENTRY,
            {**ENTRY, "process_group": ["1", "undefined"], "collective_seq_id": 7, "profiling_name": "gloo:barrier"},
            {**ENTRY, "collective_seq_id": 2, "profiling_name": "gloo:all_gather", "retired": False},
        ]
    }
    assert stacks.pending_collective(inside) == "gloo all_gather of 10 x Float"
    assert stacks.last_global_sequence(inside) == 2
    assert (
        stacks.pending_collective({"entries": [ENTRY]}) is None
        and stacks.last_global_sequence({"entries": [ENTRY]}) == 1
    )
    barrier = {**ENTRY, "profiling_name": "nccl:barrier", "retired": False, "input_sizes": [], "input_dtypes": []}
    assert stacks.pending_collective({"entries": [barrier]}) == "nccl barrier"
    assert stacks.pending_collective({}) is None and stacks.last_global_sequence({"entries": "none"}) is None


def test_a_rung_that_exits_is_not_passed(tmp_path: Path) -> None:
    """SystemExit is no Exception, and its code may be 0; a message is told."""
    journal = Journal(tmp_path, 0)
    with pytest.raises(SystemExit), journal.stage("train"):
        sys.exit(0)
    os.close(journal.file)
    assert [step["ok"] for step in journal.report["steps"]] == [False]
    assert (journal.report["kind"], journal.report["evidence"]) == ("exited", {"code": 0})
    other = Journal(tmp_path, 1)
    with pytest.raises(SystemExit), other.stage("train"):
        sys.exit("no data set")
    os.close(other.file)
    assert other.report["error"] == "sys.exit was called: no data set"


def test_a_fact_that_timed_out_is_no_bug_of_ours() -> None:
    """What could not be judged for it is named; a pass is not claimed."""
    snapshot = Snapshot(ranks=known.ranks(), gaps={"gpus": Gap("timed_out", "NVML did not answer within 10 s")})
    outcomes = judged(snapshot)
    result = report.Result(snapshot, outcomes, "unknown", 3, 1.0)
    assert report.head(result)[2] == "bandwidth_collapsed could not be checked: NVML did not answer within 10 s."


def test_an_old_question_is_not_taken_for_a_new_one() -> None:
    assert "/" not in ASK  # a file of the run folder, which climb removes before it starts


# What is left


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A shared memory and a temporary folder of our own."""
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    for folder in (shared, temporary):
        folder.mkdir()
    monkeypatch.setattr(leftover_files, "_SHM", shared)
    patterns = dict(zip((shared, temporary), leftover_files._OURS.values(), strict=True))
    monkeypatch.setattr(leftover_files, "_OURS", patterns)
    return shared, temporary


def test_what_the_killed_ranks_left_is_removed(folders: tuple[Path, Path]) -> None:
    shared, temporary = folders
    (shared / "torch_99_1_0").touch()
    before = leftover_files.files()
    for name in ("torch_4711_2_0", "torch_4712_3_0", "torch_815_1_0"):
        (shared / name).touch()
    loader = temporary / "pymp-ab"
    loader.mkdir()
    (loader / "listener-4712-0-x").touch()
    elastic = temporary / "torchelastic_ab" / "none_x" / "attempt_0" / "0" / "error.json"
    elastic.parent.mkdir(parents=True)
    save = temporary / ".mgpu-smoke-1"
    save.mkdir()
    precious = temporary / "thesis"
    precious.mkdir()
    wrote = [error_folder(str(elastic)), str(save), str(precious)]
    swept = leftover_files.sweep(before, {4711, 4712}, wrote)
    assert swept.removed == {str(shared / "torch_4711_2_0"): 4711, str(shared / "torch_4712_3_0"): 4712}
    assert swept.remaining == ()
    assert {path.name for path in shared.iterdir()} == {"torch_99_1_0", "torch_815_1_0"}  # not of this run
    assert list(temporary.iterdir()) == [precious]


def test_shared_memory_of_nobody_is_told_and_stays(folders: tuple[Path, Path]) -> None:
    """NCCL's names do not tell whose they are."""
    shared, _ = folders
    before = leftover_files.files()
    orphan, used = shared / "nccl-ab", shared / "nccl-cd"
    for path in (orphan, used):
        path.write_bytes(b"0" * 4096)
    code = f"""
import mmap, time
file = open({str(used)!r}, 'r+b')
memory = mmap.mmap(file.fileno(), 0)
print(1, flush=True)
time.sleep(60)
"""
    user = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert user.stdout is not None and user.stdout.readline()
        assert leftover_files.sweep(before, {4711: "rank 0"}, ()) == Swept({}, (str(orphan),))
    finally:
        user.kill()
        user.wait()
    assert orphan.exists() and used.exists()


def test_a_link_is_not_followed(folders: tuple[Path, Path]) -> None:
    _, temporary = folders
    precious = temporary / "thesis"
    precious.mkdir()
    (precious / "chapter").touch()
    link = temporary / "torchelastic_ab"
    link.symlink_to(precious)
    assert leftover_files.sweep(frozenset(), {}, [str(link)]) == Swept({}, (str(link),))
    assert (precious / "chapter").exists()


def test_a_launchers_empty_folder_goes_unless_a_launcher_lives(folders: tuple[Path, Path]) -> None:
    """It names nobody: one that another launcher has just made looks the same."""
    _, temporary = folders
    folder = temporary / "torchelastic_ab"
    folder.mkdir()
    other = subprocess.Popen(["sh", "-c", ": torchrun; sleep 60"], env={**os.environ, "TMPDIR": str(temporary)})
    try:
        wait_for(lambda: b"torchrun" in Path(f"/proc/{other.pid}/cmdline").read_bytes())
        leftover_files.sweep(frozenset(), {}, ())
        assert folder.exists()
    finally:
        subprocess.run(["pkill", "-P", str(other.pid)], check=False)
        other.kill()
        other.wait()
    leftover_files.sweep(frozenset(), {}, ())
    assert not folder.exists()


def test_memory_that_a_gpu_does_not_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a moment; a GPU that has more free memory than before is no fault."""
    looks = [(9 << 30, 1 << 30), (2 << 30, 1 << 30)]
    gpus = known.gpus(2)

    def gather(asked: object) -> Snapshot:
        used = looks.pop(0) if len(looks) > 1 else looks[0]
        return Snapshot(gpus=tuple(replace(gpu, memory_used_bytes=u) for gpu, u in zip(gpus, used, strict=True)))

    monkeypatch.setattr(probes, "gather", gather)
    monkeypatch.setattr(memory_kept, "_FREED_S", 0.5)
    assert all(gpu.uuid for gpu in gpus)
    before = Before({str(gpu.uuid): 1 << 30 for gpu in gpus})
    kept = memory_kept.add_leftovers(replace(ranks(rank(0, 9)), cpu=False), before).memory_kept
    assert kept == {gpus[0].uuid: 1 << 30}
    monkeypatch.setattr(probes, "gather", lambda asked: Snapshot())
    assert memory_kept.add_leftovers(replace(ranks(rank(0, 9)), cpu=False), before).memory_kept is None


def test_the_kernels_count_of_processes_killed_for_memory() -> None:
    count = leftover_files.killed_for_memory()
    assert count is None or count >= 0
    if count is not None:
        assert (
            memory_kept.add_leftovers(replace(ranks(rank(0, 9)), cpu=True), Before({}, count - 2)).killed_for_memory
            == 2
        )


def test_a_port_that_somebody_holds_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        number = other.getsockname()[1]
        assert port.is_taken(number)
        other.listen()
        assert port.is_taken(number)
    assert not port.is_taken(number)


def test_ranks_are_found_under_their_launcher(tmp_path: Path) -> None:
    """By their number, whatever stands between; what a rank starts is no rank."""
    script = "RANK=1 TORCHELASTIC_ERROR_FILE=/t/a/b/c/1/e sh -c 'sleep 60 & wait' & RANK=0 sleep 60 & wait"
    launcher = subprocess.Popen(["sh", "-c", f"sh -c {json.dumps(script)} & wait"], start_new_session=True)
    try:
        found = wait_for(lambda: len(known := processes.ranks_under(launcher.pid)) == 2 and known)
        assert {number: rank.error_file for number, rank in found.items()} == {0: None, 1: "/t/a/b/c/1/e"}
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


def test_a_clean_up_that_is_interrupted_goes_on() -> None:
    """By a second Ctrl-C, say: the guard ends what was to be ended."""
    run_id = uuid.uuid4().hex
    processes_of_it = []
    with pytest.raises(KeyboardInterrupt), guard.guard_run(run_id):
        processes_of_it.append(subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: run_id}))
        wait_for(lambda: processes.processes_of_run(run_id))
        raise KeyboardInterrupt
    assert processes_of_it[0].wait(10) == -signal.SIGTERM
    assert not processes.processes_of_run(run_id)
