"""Does a launch say which rank keeps the others waiting, where and how? Real programs (`hangs/`) over gloo.

A few of them here; all with `MGPU_HANGS=all`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.launch import hang_evidence, hang_files, hang_watch
from tests.conftest import ROOT, Run, environment
from tests.scripts import TWO_RANKS, kill_all, marked, wait_for, write_config
from tests.terminal import CONTROL_C, Terminal

HANGS = ROOT / "tests" / "hangs"
ALL = os.environ.get("MGPU_HANGS") == "all"
AFTER_S = 4
LATEST_S = 15  # after --hang-after


@dataclass(frozen=True)
class Planted:
    """A program that hangs. `{here}` is its line that ends in `# HERE`."""

    program: str  # FILE.NAME
    check: str
    title: str
    cause: str = ""  # the probable cause, if it is another one
    ranks: int = 2
    always: bool = False  # not only with MGPU_HANGS=all

    @property
    def line(self) -> str:
        """ "programs.py:31"."""
        file, _, name = self.program.partition(".")
        lines = (HANGS / f"{file}.py").read_text("utf-8").splitlines()
        start = lines.index(f"def {name}(rank: int) -> None:")
        number = next((n for n, line in enumerate(lines[start:], start + 1) if "# HERE" in line), 0)
        return f"{file}.py:{number}"


DIFFER = "hang_collectives_differ"
MATRIX = (
    # somewhere else
    Planted("programs.sleeps", "hang_rank_sleeps", "rank 1 sleeps at {here}", always=True),
    Planted("programs.sleeps", "hang_rank_sleeps", "rank 1 sleeps at {here}", ranks=4),
    Planted("others.polls_file", "hang_rank_sleeps", "rank 1 sleeps at {here}"),
    Planted("others.disk_full", "hang_rank_sleeps", "rank 0 sleeps at {here}"),
    Planted("others.start_late", "hang_rank_sleeps", "rank 1 sleeps at {here}. Rank 0 waits in init_process_group"),
    Planted("libraries.fsdp2", "hang_rank_sleeps", "rank 1 sleeps at {here}. Rank 0 waits in all_gather"),
    Planted("libraries.start_lightning", "hang_rank_sleeps", "rank 1 sleeps at {here}"),
    Planted("programs.loader_worker_in_lock", "hang_rank_in_loader", "rank 1 waits for a batch", always=True),
    Planted("programs.loader_in_rank", "hang_rank_in_loader", "rank 1 waits for a batch"),
    Planted("programs.lock", "hang_rank_in_lock", "rank 1 waits for a lock at {here}"),
    Planted("programs.joins_thread", "hang_rank_in_lock", "rank 1 waits for a lock at {here}"),
    Planted("programs.file_lock", "hang_rank_in_lock", "rank 1 waits for a lock on a file"),
    Planted("others.empty_queue", "hang_rank_in_lock", "rank 1 waits for a lock at {here}"),
    Planted("others.waits_for_event", "hang_rank_in_lock", "rank 1 waits for a lock at {here}"),
    Planted("others.pool_of_dead", "hang_rank_in_lock", "rank 1 waits for a lock at {here}"),
    Planted("programs.reads_fifo", "hang_rank_reads", "at {here}", always=True),
    Planted("programs.reads_socket", "hang_rank_reads", "rank 1 waits for a file, pipe or socket"),
    Planted("others.holds_gil", "hang_rank_reads", "(read of pipe:"),
    Planted("programs.asks", "hang_rank_asks_for_input", "rank 1 waits for input at {here}"),
    Planted("programs.waits_for_child", "hang_rank_waits_for_process", "at {here}"),
    Planted("others.silent_child", "hang_rank_waits_for_process", "at {here}"),
    Planted("others.never_answers", "hang_rank_in_kernel", "rank 1 is in uninterruptible sleep"),
    # absent
    Planted("programs.stopped", "hang_rank_stopped", "rank 1 is stopped (SIGSTOP)", always=True),
    Planted("programs.raises_and_destroys", "hang_rank_left", "rank 1 has left the training at {here}: ValueError",
            "log_exception", always=True),
    Planted("others.raises_with_thread", "hang_rank_left", "rank 1 has left the training at {here}: KeyError",
            "log_exception"),
    Planted("programs.returns_early", "hang_rank_left", "rank 1 has left the training"),
    Planted("programs.start_barrier_at_exit", "hang_rank_left", "rank 1 has left the training"),
    # all wait
    Planted("programs.skipped_collective", DIFFER, "rank 0 called all_reduce #14 of 420 float at {here}"),
    Planted("programs.skipped_collective", DIFFER, "rank 1 called all_reduce #14", ranks=4, always=True),
    Planted("programs.other_order", DIFFER, "rank 1 called broadcast"),
    Planted("programs.lone_barrier", DIFFER, "rank 0 called barrier #14 at {here}"),
    Planted("programs.lone_backward", DIFFER, "barrier"),
    Planted("programs.lone_object", DIFFER, "rank 0 called all_gather"),
    Planted("programs.fewer_batches", DIFFER, "rank 1 called barrier #14 at {here}", always=True),
    Planted("programs.fewer_batches", DIFFER, "rank 0 called all_reduce #14 of 420 float", ranks=4),
    Planted("others.lone_object_list", DIFFER, "rank 1 called broadcast #12 of 1 long at {here}"),
    Planted("others.loss_branch", DIFFER, "rank 1 called barrier"),
    Planted("others.no_sync_on_one", DIFFER, "rank 1 called barrier"),
    Planted("libraries.start_accelerate_gather", DIFFER, "rank 0 called all_gather #11 of 1 float at {here}"),
    Planted("libraries.start_accelerate_wait", DIFFER, "rank 0 called barrier #11 at {here}"),
    Planted("libraries.start_accelerate_save", DIFFER, "rank 0 called barrier #11 at {here}"),
    Planted("libraries.start_trainer", DIFFER, "rank 0 called barrier #14 at {here}"),
    Planted("programs.lone_new_group", "hang_rank_behind", "waits in new_group at {here}"),
    Planted("others.subset", "hang_rank_behind", "rank 0 did not start all_reduce #12 of 420 float, and waits in "
            "all_reduce #1 of 7 float at {here}", ranks=4),
    Planted("others.receives", "hang_rank_behind", "rank 1 did not start all_reduce #12 of 420 float, and waits in "
            "recv at {here}"),
    Planted("others.start_wrong_number", "hang_collective_stuck", "all 2 ranks wait in init_process_group at {here}"),
)  # fmt: skip
# Slow, and healthy: what is said, if anything. None is stopped.
HEALTHY = {
    "busy_rank": "hang_rank_works", "busy_pool": "hang_rank_works", "busy_child": "hang_rank_works",
    "saves": "hang_rank_works", "slow_loader": "hang_rank_works", "downloads": "hang_rank_works",
    "all_slow": "", "all_sleep": "", "accumulates": "", "polls": "", "tokenizes": "",
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with a config of two ranks. Nothing that runs here outlives it."""
    write_config(tmp_path)
    yield tmp_path
    kill_all(tmp_path)


def options(program: str, *more: str) -> list[str]:
    file, _, name = program.partition(".")
    start = ["launch", "--yes", "--unverified", "allow", "--log-dir", "log", "--hang-after", str(AFTER_S)]
    return [*start, "--timeout", "100", *more, str(HANGS / f"{file}.py"), name]


def messages(here: Path) -> str:
    """What was said while the program ran."""
    notes = (here / "log" / "mgpu.log").read_text("utf-8").splitlines()
    return "\n".join(line.partition(" message: ")[2] for line in notes if " message: " in line)


def result(here: Path) -> Any:
    return json.loads((here / "log" / "result.json").read_bytes())


@pytest.mark.parametrize(
    "planted", [pytest.param(one, id=f"{one.program}-{one.ranks}") for one in MATRIX if one.always or ALL]
)
def test_who_keeps_the_others_waiting(planted: Planted, here: Path, mgpu: Run) -> None:
    for package in ("transformers", "lightning"):
        if planted.program in ("libraries.start_trainer", "libraries.start_lightning") and not _has(package):
            pytest.skip(f"{package} is not installed")
    write_config(here, TWO_RANKS.replace("2", str(planted.ranks)))
    done = mgpu(*options(planted.program, "--on-hang", "stop"), timeout=150)
    said, found = messages(here), result(here)
    assert done.returncode == 124, said + done.stderr[-3000:]
    assert f"[{planted.check}]" in said
    assert planted.title.format(here=planted.line) in said
    assert found["probable_cause"]["id"] == (planted.cause or planted.check)
    quiet = re.search(r"^no progress for ([\d.]+) s: ", said, re.MULTILINE)
    assert quiet is not None and float(quiet[1]) < AFTER_S + LATEST_S, said
    hang = json.loads((here / "log" / hang_files.NAME).read_bytes())
    assert [one["rank"] for one in hang["ranks"]] == list(range(planted.ranks))
    assert marked(here) == []


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@pytest.mark.parametrize("name", [name for name in HEALTHY if ALL or name == "busy_rank"])
def test_a_slow_run_is_not_stopped(name: str, here: Path, mgpu: Run) -> None:
    done = mgpu(*options(f"healthy.{name}", "--on-hang", "stop"), timeout=150, env={"WORK_S": "14"})
    said = messages(here)
    assert done.returncode == 0, said + done.stderr[-3000:]
    assert set(re.findall(r"\[(hang_\w+)\]", said)) <= {HEALTHY[name]}
    assert name != "busy_rank" or ("rank 0 works for " in said and "[hang_rank_works]" in said)


def test_a_run_that_makes_progress_again(here: Path, mgpu: Run) -> None:
    done = mgpu(*options("healthy.resumes"), timeout=150, env={"WORK_S": "14"})
    said = messages(here).splitlines()
    assert done.returncode == 0
    assert "rank 1 sleeps at healthy.py:" in said[0] and said[0].endswith("[hang_rank_sleeps]")
    assert said[2:] == ["the run makes progress again"]
    # stderr is a pipe here: one line for each finding, none on the program's stdout
    shown = [" ".join(line.split()) for line in done.stderr.splitlines() if "progress" in line]
    assert shown == [" ".join(f"mgpu: {said[0]}".split()), f"mgpu: {said[2]}"]
    assert "mgpu" not in done.stdout
    assert result(here)["probable_cause"] is None


def test_without_a_recorder(here: Path, mgpu: Run) -> None:
    """The states of the processes remain."""
    done = mgpu(*options("programs.stopped", "--no-recorder", "--on-hang", "stop"), timeout=150)
    assert done.returncode == 124
    assert "rank 1 is stopped (SIGSTOP)" in messages(here)
    assert "MGPU_RECORDER" not in (here / "log" / "mgpu.log").read_text("utf-8")
    assert not (here / "log" / hang_evidence.RECORDED).exists()


def test_control_c_asks_the_ranks_first(here: Path) -> None:
    """A user who waits no longer gets the answer too."""
    given = options("programs.sleeps", "--hang-after", "60")
    terminal = Terminal([sys.executable, "-m", "mgpu", *given], env=environment(here / "home"), cwd=here)
    beats = here / "log" / hang_evidence.RECORDED
    wait_for(lambda: terminal._read() and len(list(beats.glob("*.beat"))) == 2, 60)
    began = time.monotonic()
    while time.monotonic() < began + hang_watch._WORTH_S + 4:
        assert terminal._read(), terminal.text
    pressed = time.time()
    terminal.press(CONTROL_C)
    terminal.see("end of your program", 60)
    assert terminal.end() == errors.INTERRUPTED
    assert (here / "log" / hang_files.NAME).stat().st_mtime - pressed < 3
    assert "rank 1 sleeps at programs.py:" in terminal.text
    assert result(here)["probable_cause"]["id"] == "hang_rank_sleeps"
    assert marked(here) == []
