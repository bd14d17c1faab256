"""One question to the user: its text, its default, its choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One line of a menu. A disabled one is shown with the reason and cannot be selected; a heading is only shown."""

    name: str
    text: str
    disabled: str | None = None
    detail: str = ""  # shown in its own column
    narrow: str = ""  # the whole line on narrow screens and for screen readers
    heading: bool = False


@dataclass(frozen=True)
class Question:
    """One question: a menu if it has choices, else a line of text with a validator."""

    name: str
    text: str
    help: str
    default: str = ""
    choices: tuple[Choice, ...] = ()
    many: bool = False  # several choices can be selected
    numbered: bool = True  # digits select the choices
    problem: Callable[[str], str | None] = lambda text: None  # what is wrong with an answer; None if it is valid
    # The consequences of the current answer, as lines of a width; with width 0 as sentences for a screen reader.
    panel: Callable[[str, int], Sequence[str]] = lambda text, width: ()
    note: str = ""  # why it is asked again
    hint: str = ""  # example of an answer, shown while there is none
    skips: bool = False  # it may be skipped
    heading: str = ""  # its position, for screen readers: "Question 3 of 8."
    first: bool = False  # there is nothing to go back to
    saves: bool = True  # quitting here saves the answers

    def answer_text(self, answer: str) -> str:
        """Return the answer as text, for the line that stays on the screen."""
        if self.many:
            return answer.replace(",", ", ") or "none"
        if self.choices:
            text = next((choice.text for choice in self.choices if choice.name == answer), answer)
            return re.split(r"\s{3,}", text.removesuffix(" (recommended)").removesuffix(" >>"))[0]
        return answer or "skipped"
