"""What a hang is called: the collective, the end of the run, and the hang before how the run was stopped."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mgpu.launch import report
from mgpu.launch.request import Request
from mgpu.report.screen import Screen
from mgpu.snapshot import Collective, Run

CAUSE: dict[str, Any] = {
    "id": "hang_rank_sleeps", "role": "root", "kind": "timeout", "title": "rank 1 sleeps at train.py:61",
    "cause": "Why.",
    "evidence": {}, "subjects": ["rank 1"], "file": None, "line": None, "fix": [],
}  # fmt: skip
FIRST: dict[str, Any] = {
    "rank": 1, "host": None, "gpu": None, "signal": None, "exit": 1, "exception": "KeyboardInterrupt",
    "place": "train.py:61 in main", "line": 9, "values": [],
}  # fmt: skip


def said(**fields: Any) -> str:
    document: dict[str, Any] = {
        "duration_s": 26.0, "exit_code": 124, "signalled": None, "timed_out": True, "triage": True, "logs": "logs",
        "first_failure": None, "probable_cause": CAUSE, "secondary": [],
        "again": "mgpu launch train.py", "left_over": 0,
        "hang": {"quiet_s": 17.0, "stopped": True}, **fields,
    }  # fmt: skip
    shown = report.lines(document, Screen(400, False, False, io.StringIO()))  # type: ignore[arg-type]
    return "\n".join("".join(text for text, _ in line) for line in shown)


def test_on_hang_stop_is_no_timeout() -> None:
    assert said().startswith("mgpu: stopped: no progress for 17 s, after 26 s, exit 124\n")
    assert said(hang={"quiet_s": 17.0, "stopped": False}).startswith("mgpu: timed out after 26 s, exit 124\n")
    assert said(hang={"quiet_s": 17.0}).startswith("mgpu: timed out after 26 s")  # stored by an earlier mgpu


@pytest.mark.parametrize(
    ("options", "seconds", "timed_out", "stopped"),
    [
        ({"on_hang": "stop"}, 26.0, True, True),
        ({"on_hang": "stop", "timeout_s": 60.0}, 26.0, True, True),
        ({"on_hang": "stop", "timeout_s": 20.0}, 20.3, True, False),
        ({"timeout_s": 20.0}, 20.3, True, False),
        ({"on_hang": "stop"}, 26.0, False, False),
    ],
)
def test_which_limit_stopped_the_run(options: dict[str, Any], seconds: float, timed_out: bool, stopped: bool) -> None:
    run = Run(124, 1, seconds, timed_out=timed_out)
    assert report._is_hang_stop(Request(**options), run) == stopped


def test_ctrl_c_in_a_hang_names_the_hang_first() -> None:
    stopped = {"exit_code": 130, "signalled": "SIGINT", "timed_out": False, "hang": {"quiet_s": 12.0, "stopped": False}}
    shown = said(first_failure=FIRST, **stopped)
    assert "KeyboardInterrupt" not in shown and "Probable cause rank 1 sleeps" in shown
    raised = {**FIRST, "exception": "RuntimeError: Timed out waiting 20000ms"}
    assert "First to fail" in said(first_failure=raised, **stopped)


@pytest.mark.parametrize(
    ("shape", "title"),
    [
        ("1 long", "broadcast #37 of 1 int64 value"),
        ("420 float", "broadcast #37 of 420 float32 values"),
        ("420 quint", "broadcast #37 of 420 quint"),
        ("", "broadcast #37"),
    ],
)
def test_the_data_of_a_collective(shape: str, title: str) -> None:
    assert Collective("broadcast", "0", 37, shape).title == title
