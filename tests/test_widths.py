"""Rows that end at the screen's edge, and what stands in place of the rest."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from mgpu.launch import hang_report, run_case
from mgpu.report import failure
from mgpu.report.screen import Line, Screen, headed
from mgpu.snapshot import Hang, HangRank, StackFrame

LONG = (
    "Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True, even_batches=False), cpu=True, log='x')"
)


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def screen(width: int) -> Screen:
    return Screen(width, False, False, io.StringIO())


def test_code_ends_at_the_edge() -> None:
    for width in (40, 80, 200):
        shown = texts(failure._code_rows(screen(width), "Source", f"train.py:79: accelerator = {LONG}"))
        assert max(map(len, shown)) <= width and shown[0].startswith("Source"), shown
        assert shown[-1].endswith("...") == (width < 200)


def test_a_verdict_continues_under_its_text() -> None:
    shown = texts(
        headed("FAILED", "fail", f"the script makes no progress at the {'end ' * 20}at t_hang.py:61", screen(80))
    )
    assert len(shown) > 1 and all(line.startswith(" " * 8) for line in shown[1:])


def test_a_line_of_code_that_is_cut_says_so() -> None:
    frame = StackFrame("/w/train.py", 62, "main", "loss = F.cross_entropy(model(inputs), targets, label_smoothing=0.1)")
    hang = Hang(9.0, 1.0, (HangRank(0, 7, "sleeping", frames=(frame,)),), 1, 1)
    assert texts(hang_report.table(hang, screen(200)))[-1].endswith("label_smoothing=0.1)")
    narrow = texts(hang_report.table(hang, screen(60)))
    assert max(map(len, narrow)) <= 60 and narrow[-1].endswith("label_smoothing=0.1)")
    longer = Hang(9.0, 1.0, (HangRank(0, 7, "sleeping", frames=(replace(frame, text="x" * 300),)),), 1, 1)
    assert texts(hang_report.table(longer, screen(400)))[-1].endswith("...")


def test_the_verdict_of_a_report_is_ascii_where_the_screen_is() -> None:
    case: Any = {"headline": {"word": "FAILED", "light": "fail", "text": "a rank raised · exit 1 after 3 s"}}
    plain = texts(run_case._verdict(case, screen(80)))
    assert plain == ["FAILED  a rank raised, exit 1 after 3 s"] and "".join(plain).isascii()
