"""Does a launch say which rank keeps the others waiting, where and how? Real programs (`hangs/matrix.py`) over gloo.

A few of them here; all with `MGPU_HANGS=all`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.hangs import hang_evidence, hang_files, hang_watch
from tests.conftest import Run, environment
from tests.hangs import table
from tests.hangs.matrix import ENDED, HANGS, KINDS, MATRIX, REPORTED, Planted, line_of
from tests.scripts import TWO_RANKS, kill_all, marked, wait_for, write_config
from tests.terminal import CONTROL_C, Terminal

ALL = os.environ.get("MGPU_HANGS") == "all"
AFTER_S = table.AFTER_S
LATEST_S = 15  # after --hang-after


# Slow, and healthy: what is said, if anything. None is stopped. They are scaled: a pause is 14 s (WORK_S) and the
# threshold 4 s (--hang-after), as a pause of 105 s with the default of 30 s. By hand, a compilation of 3 minutes:
# WORK_S=180 mgpu launch --yes --unverified allow tests/hangs/slow.py compiles
HEALTHY = {
    "healthy.busy_rank": "hang_rank_works", "healthy.busy_pool": "hang_rank_works",
    "healthy.busy_child": "hang_rank_works", "healthy.saves": "hang_rank_works",
    "healthy.slow_loader": "hang_rank_works", "healthy.downloads": "hang_rank_works", "healthy.all_slow": "",
    "healthy.all_sleep": "", "healthy.accumulates": "", "healthy.polls": "", "healthy.tokenizes": "",
    "slow.compiles": "", "slow.autotunes": "hang_rank_works", "slow.evaluates": "", "slow.uneven": "",
    "slow.many_workers": "", "slow.saves_all": "hang_rank_works", "slow.prints": "",
    "slow.debugs": "hang_rank_in_debugger", "slow.collects_garbage": "hang_rank_works", "slow.start_no_training": "",
    "slow.start_serves": "", "slow.waits_for_jobs": "",
}  # fmt: skip
PLACES = ("slow.debugs", "slow.collects_garbage")  # with a line of their own to name


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


@pytest.mark.parametrize("planted", [pytest.param(one, id=one.id) for one in MATRIX if one.always or ALL])
def test_who_keeps_the_others_waiting(planted: Planted, here: Path, mgpu: Run) -> None:
    if planted.missing:
        pytest.skip(f"{planted.missing} is not installed")
    write_config(here, TWO_RANKS.replace("2", str(planted.ranks)))
    done = mgpu(*options(planted.program, "--on-hang", "stop"), timeout=150)
    said, found = messages(here), result(here)
    table.keep(planted, found, said if planted.check not in said else _message_of(planted.check, said))
    assert done.returncode == 124, said + done.stderr[-3000:]
    first = _message_of(planted.check, said)
    assert re.search(re.escape(planted.message).replace(r"\.\.\.", r"\S+"), first), first
    assert "_mgpu_" not in said  # the user's line, not the recorder's
    assert found["probable_cause"]["id"] == (planted.cause or planted.check)
    hang = found["hang"]
    assert (hang["id"], hang["kind"], hang["rank"]) == (planted.check, KINDS[planted.check], planted.rank)
    assert hang["at"] == planted.line or not planted.at
    quiet = re.match(r"no progress for ([\d.]+) s: ", first)
    assert quiet is not None and float(quiet[1]) < AFTER_S + LATEST_S, said
    facts = json.loads((here / "log" / hang_files.NAME).read_bytes())
    assert [one["rank"] for one in facts["ranks"]] == list(range(planted.ranks))
    assert marked(here) == []


@pytest.mark.parametrize("planted", [pytest.param(one, id=one.id) for one in REPORTED if ALL])
def test_what_may_go_on_is_reported(planted: Planted, here: Path, mgpu: Run) -> None:
    """A rank that computes forever, or that a user debugs: it is named, and only --timeout ends it."""
    done = mgpu(*options(planted.program, "--on-hang", "stop"), timeout=150)
    said, hang = messages(here), result(here)["hang"]
    assert done.returncode == 124 and "--timeout" in (here / "log" / "mgpu.log").read_text("utf-8"), said
    assert planted.message in _message_of(planted.check, said)
    assert planted.line in said or not planted.at
    assert (hang["id"], hang["rank"]) == (planted.check, 1)


def _message_of(check: str, said: str) -> str:
    """The first message about this finding. A rank may work before."""
    assert f"[{check}]" in said, said
    return next(line for line in said.splitlines() if line.endswith(f"[{check}]"))


@pytest.mark.parametrize("planted", [pytest.param(one, id=one.id) for one in ENDED if one.always or ALL])
def test_what_ends_at_once(planted: Planted, here: Path, mgpu: Run) -> None:
    """No hang: torch or its launcher notices, and the log says the rest."""
    done = mgpu(*options(planted.program, "--on-hang", "stop"), timeout=150)
    found = result(here)
    table.keep(planted, found, "")
    cause = found["probable_cause"]
    assert done.returncode not in (0, 124), done.stderr[-3000:]
    assert messages(here) == "" and found["hang"] is None
    assert cause["id"] == planted.check
    assert planted.message in json.dumps([cause, found["first_failure"]])
    assert planted.rank is None or f"rank {planted.rank}" in json.dumps(cause)
    at = {one["rank"]: one["at"] for one in found["ranks"]}
    for rank, text in planted.others.items():
        assert at[rank] in planted.filled(text).split(" or ")
        assert f"rank {rank} at {at[rank]} " in " ".join(done.stderr.split())
    assert marked(here) == []


@pytest.mark.parametrize("program", [name for name in HEALTHY if ALL or name == "healthy.busy_rank"])
def test_a_slow_run_is_not_stopped(program: str, here: Path, mgpu: Run) -> None:
    done = mgpu(*options(program, "--on-hang", "stop"), timeout=150, env={"WORK_S": "14"})
    said = messages(here)
    assert done.returncode == 0, said + done.stderr[-3000:]
    assert set(re.findall(r"\[(hang_\w+)\]", said)) <= {HEALTHY[program]}
    assert program != "healthy.busy_rank" or ("rank 0 works for " in said and "[hang_rank_works]" in said)
    if said and program in PLACES:  # on a crowded machine the run is given more time, and nothing is said
        assert line_of(program) in said.partition("\n")[0]


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
    wait_for(lambda: terminal._read() and [beat.read_bytes()[:1] for beat in beats.glob("*.beat")] == [b"\x08"] * 2, 60)
    began = time.monotonic()
    while time.monotonic() < began + hang_watch._WORTH_S + 4:
        assert terminal._read(), terminal.text
    pressed = time.time()
    terminal.press(CONTROL_C)
    terminal.see("end of your program", 60)
    assert terminal.end() == errors.INTERRUPTED
    assert (here / "log" / hang_files.NAME).stat().st_mtime - pressed < 15
    assert f"rank 1 sleeps at {line_of('programs.sleeps')}" in " ".join(terminal.text.split())
    found = result(here)
    assert found["probable_cause"]["id"] == found["hang"]["id"] == "hang_rank_sleeps"
    assert (found["hang"]["kind"], found["hang"]["rank"]) == ("sleep", 1)
    assert found["hang"]["at"] == line_of("programs.sleeps")
    assert marked(here) == []
