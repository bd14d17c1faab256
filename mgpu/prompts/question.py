"""One question to a person: its text, its default, its choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One line of a menu. A disabled one is shown with the reason and cannot be taken; a heading is only shown."""

    name: str
    text: str
    disabled: str | None = None
    detail: str = ""  # stands in a column of its own
    narrow: str = ""  # the whole line where there is no room for columns, and for those who listen
    heading: bool = False


@dataclass(frozen=True)
class Question:
    """One question: a menu when it has choices, else a line of text with a validator."""

    name: str
    text: str
    help: str
    default: str = ""
    choices: tuple[Choice, ...] = ()
    many: bool = False  # several choices are marked
    numbered: bool = True  # digits point at the choices
    problem: Callable[[str], str | None] = lambda text: None  # what is wrong with an answer; None when it is fine
    # What follows from the answer so far, in lines of a width; with width 0 as sentences for a screen reader.
    panel: Callable[[str, int], Sequence[str]] = lambda text, width: ()
    note: str = ""  # why it is asked again
    hint: str = ""  # how an answer is written, while there is none
    skips: bool = False  # it may stay without an answer
    heading: str = ""  # where it stands, for those who do not see the screen
    first: bool = False  # there is nothing to go back to
    saves: bool = True  # whoever quits here finds the answers again

    def told(self, answer: str) -> str:
        """The answer in words, for the line that stays on the screen."""
        if self.many:
            return answer.replace(",", ", ") or "none"
        if self.choices:
            text = next((choice.text for choice in self.choices if choice.name == answer), answer)
            return re.split(r"\s{3,}", text.removesuffix(" (recommended)").removesuffix(" >>"))[0]
        return answer or "skipped"
