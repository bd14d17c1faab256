"""Cases of the check that reads mgpu's own messages in a log."""

from __future__ import annotations

import pytest

from mgpu.snapshot import Circumstance
from tests.checks.facts import Case, fails, log, table, well

HANG = Circumstance(
    "mgpu_found_hang", "mgpu: no progress for 9 s: rank 1 sleeps at t.py:6. Rank 0 waits. [hang_rank_sleeps]", "a", 2, 2
)
AGAIN = Circumstance("mgpu_progress_again", "mgpu: the run makes progress again", "a", 3, 3)


CASES = (
    fails("log_run_hung", "rank 1 sleeps at t.py:6", "--explain hang_rank_sleeps", log=log(shows=(HANG,))),
    well("log_run_hung", "made progress again", log=log(shows=(HANG, AGAIN))),
    well("log_run_hung", "no hang", log=log()),
)


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
