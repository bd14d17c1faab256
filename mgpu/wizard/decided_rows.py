"""Which rows of the review have decisions that no subject of the proposal has one for? Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mgpu.wizard.answers import Answers, shown
from mgpu.wizard.decision import Decision
from mgpu.wizard.proposal_types import Setting, origin_of

WIDTH: Final = 44  # of a row's text


def rows_of(answers: Answers, decisions: Iterable[Decision]) -> list[Setting]:
    """A row for each that has a label, where somebody decided it."""
    decided = [one for one in decisions if one.label and answers[one.name] not in (None, "auto")]
    return [
        Setting(one.label, shown(one.name, answers[one.name])[:WIDTH], origin_of(answers, one.name), one.why, one.name)
        for one in decided
    ]
