"""Is a finding in the script repeated when the run fails of it, and only then?"""

from __future__ import annotations

import io
from typing import Any

import pytest

from mgpu.launch import report
from mgpu.report import failure
from mgpu.report import screen as report_screen
from mgpu.snapshot import Run, Snapshot
from tests.bad_scripts import bad

HANGS, SAVES, RANK = (
    bad("group-address-of-one-machine"),
    bad("saving-model-saved-by-every-rank"),
    bad("launching-the-old-launcher's-argument"),
)


def again(script: Any, kind: str | None, code: int = 1, **run: Any) -> list[str]:
    """The ids that are repeated after a failure of this kind."""
    triage: Any = {"probable_cause": {"kind": kind} if kind else None}
    found = report._foreseen(Snapshot(script=script), triage, Run(code, 1, 9.0, **run))
    rows = failure.source_rows(found, "Before the run", report_screen.Screen.of(io.StringIO()))
    text = " ".join(word for line in rows for word, _ in line)
    assert ("Before the run" in text) is bool(found) and all(one["id"] in text for one in found)
    return [one["id"] for one in found]


@pytest.mark.parametrize(
    ("script", "kind", "code", "expected"),
    [
        (HANGS, "timeout", 1, ["script_meeting_point_fixed"]),
        (HANGS, "network", 1, ["script_meeting_point_fixed"]),
        (HANGS, None, 1, ["script_meeting_point_fixed"]),  # the cause is not known
        (HANGS, "script", 1, []),  # an exception of the script
        (SAVES, "timeout", 1, []),
        (RANK, "launcher", 2, ["script_expects_local_rank_argument"]),
        (RANK, "launcher", 1, []),  # a rendezvous that failed
        (HANGS, "launcher", 1, ["script_meeting_point_fixed"]),
        (HANGS, "launcher", 2, []),  # its arguments were rejected
        (RANK, "cuda", 1, ["script_expects_local_rank_argument"]),
        (RANK, "timeout", 1, []),
    ],
)
def test_only_what_leads_to_such_a_failure(script: Any, kind: str | None, code: int, expected: list[str]) -> None:
    assert again(script, kind, code) == expected


def test_a_run_that_was_stopped_may_have_hung() -> None:
    assert again(HANGS, "timeout", 130, signalled="SIGINT") == again(HANGS, "launcher", 124, timed_out=True)
    assert again(HANGS, "timeout", 130, signalled="SIGINT") == ["script_meeting_point_fixed"]
    assert again(HANGS, None, 0) == []
