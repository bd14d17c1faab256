"""Which rows does the review have for decisions that no part of the proposal shows? Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mgpu.wizard.answers import Answers, as_typed
from mgpu.wizard.decision import Decision
from mgpu.wizard.proposal_types import Setting, origin_of

WIDTH: Final = 44  # characters of a row's text


def rows_of(answers: Answers, decisions: Iterable[Decision]) -> list[Setting]:
    """Return a row for each decision that has a label and was made."""
    decided = [one for one in decisions if one.label and answers[one.name] not in (None, "auto")]
    return [
        Setting(
            one.label, as_typed(one.name, answers[one.name])[:WIDTH], origin_of(answers, one.name), one.why, one.name
        )
        for one in decided
    ]
