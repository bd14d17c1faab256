"""Which rank does a log name as the first to fail, and when does it name none?"""

from __future__ import annotations

from pathlib import Path

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.report import failure
from tests.test_log_callers import SCRIPT, frames

WAITED = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600060 "
    "milliseconds before timing out.\n"
)


def first_rank(tmp_path: Path, text: str) -> tuple[str, int | None]:
    """The id of the cause, and the rank that is said to have failed first."""
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    log = read.read_logs([path])
    verdict = root_cause.find_cause(log, None)
    first = failure.triage_document(verdict, log, None)["first_failure"]
    assert verdict.first is not None
    return verdict.first.id, first["rank"] if first else None


def test_a_rank_that_only_reports_a_timeout_is_not_named(tmp_path: Path) -> None:
    text = WAITED.format(0, 9) + WAITED.format(1, 9) + WAITED.format(2, 9)
    assert first_rank(tmp_path, text) == ("log_exchange_stalled", None)


def test_nor_is_one_that_never_came(tmp_path: Path) -> None:
    """It may still work: the title names it."""
    text = WAITED.format(1, 9000) + WAITED.format(2, 9000) + WAITED.format(3, 9000)
    assert first_rank(tmp_path, text) == ("log_rank_never_came", None)


def test_one_with_an_exception_is(tmp_path: Path) -> None:
    raised = frames((SCRIPT, "main", "check()"), prefix="[rank3]: ") + "[rank3]: ValueError: bad batch\n"
    assert first_rank(tmp_path, raised + WAITED.format(0, 9) + WAITED.format(1, 9))[1] == 3


def test_nor_is_one_whose_line_is_all_that_there_is(tmp_path: Path) -> None:
    assert first_rank(tmp_path, WAITED.format(0, 9)) == ("log_collective_timed_out", None)
