"""What is asked, in which order, with which default and why? Pure; `prompts.py` asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from mgpu import plan
from mgpu.wizard.proposal import Answers, Proposal


@dataclass(frozen=True)
class Choice:
    """One line of a menu. A disabled one is shown with the reason and cannot be taken."""

    name: str
    text: str
    disabled: str | None = None


@dataclass(frozen=True)
class Question:
    """One question: a menu when it has choices, else a line of text with a validator."""

    name: str
    text: str
    help: str
    default: str = ""
    choices: tuple[Choice, ...] = ()
    problem: Callable[[str], str | None] = lambda text: None  # what is wrong with an answer; None when it is fine
    panel: Callable[[str], str] = lambda text: ""  # what follows from the text typed so far


WhatNext = Literal["ask", "write", "quit"]


def what_next(*, exists: bool) -> Question:
    """Screen A: the proposal is shown above; one Enter goes on."""
    write = "Write this as it is" + (" (the old file is kept as a backup)" if exists else "")
    return Question(
        "what_next",
        "What next?",
        "The table above is what fits this machine. Nothing is written before you say so.",
        default="ask",
        choices=(
            Choice("ask", "Answer 1 short question (recommended)"),
            Choice("write", write),
            Choice("quit", "Quit without writing"),
        ),
    )


def batch(proposal: Proposal, answers: Answers) -> Question:
    """The micro-batch: accelerate does not store it, but the effective batch follows from it."""
    unit = "rank" if proposal.cpu else "GPU"

    def problem(text: str) -> str | None:
        text = text.strip()
        if not text:
            return None
        return None if text.isdigit() and 0 < int(text) < 1_000_000 else "a whole number from 1 to 999999, or nothing"

    def panel(text: str) -> str:
        if problem(text) or not text.strip():
            return f"{proposal.ranks} ranks; the effective batch is what one optimizer step sees"
        whole = plan.effective_batch(int(text), proposal.ranks)
        return f"{proposal.ranks} ranks x {int(text)} = effective batch {whole}; one {unit} alone would see {int(text)}"

    return Question(
        "batch_per_gpu",
        f"Samples per {unit} per step (micro-batch)?  Enter = I do not know yet",
        f"The batch_size your DataLoader gets. Each {unit} works on that many samples per step, so one\n"
        "optimizer step sees ranks x micro-batch samples. A larger effective batch may want another\n"
        "learning rate. accelerate does not store it: it goes into a comment of the config.",
        default=str(answers.batch_per_gpu or ""),
        problem=problem,
        panel=panel,
    )


def answer_batch(answers: Answers, text: str) -> Answers:
    """The answers with the micro-batch that was typed; nothing typed means not known."""
    value = int(text) if text.strip() else None
    return replace(answers, batch_per_gpu=value, origins={**answers.origins, "batch_per_gpu": "you"})


def confirm_write(path: str, *, replaces: bool) -> Question:
    """The review before the file is written."""
    return Question(
        "confirm",
        f"Write {path}?",
        "The file is written in one step; what it replaces is kept as a backup.",
        default="write",
        choices=(
            Choice("write", "Write it" + (" (the old one is kept as a backup)" if replaces else "")),
            Choice("back", "Back to the question"),
            Choice("quit", "Quit without writing"),
        ),
    )
