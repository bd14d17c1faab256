"""Targets of binary cross entropy that are not 0 to 1: each reason has its own repair."""

from __future__ import annotations

from pathlib import Path

from tests.test_log_meanings import explained

ASSERTED = (
    "/pytorch/aten/src/ATen/native/cuda/Loss.cu:95: operator(): block: [1,0,0], thread: [7,0,0] Assertion `target_val "
    ">= zero && target_val <= one` failed.\n"
)


def test_no_repair_changes_what_the_labels_mean(tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, ASSERTED)
    assert title == "a target of binary cross entropy is not between 0 and 1, or is NaN"
    assert "target > 0" not in words  # of NaN a negative, of all classes a positive
    assert "target = (target + 1) / 2  # " in words and "Leave out samples with missing values" in words
    assert "CrossEntropyLoss" in words and "mask / 255" in words
