"""With which options was `mgpu configure` called?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from mgpu.job_formats import FORMATS
from mgpu.snapshot import Snapshot
from mgpu.wizard import answers_file
from mgpu.wizard.answers import Answers

DEFAULT_FILE: Final = "accelerate.yaml"
Machine: TypeAlias = tuple[Snapshot, int, str]


def elsewhere(emit: str, target: str, saved: str) -> str:
    """Return the name of the machine or engine that a config is for, as part of file names; "" for this machine.

    `saved`: the file of a machine saved with `mgpu doctor --save`. Files for another machine have names of their own,
    so that they replace nothing that this machine uses.
    """
    name = emit or target or Path(saved).stem
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", name).strip("-.")[:64] or ("other" if name else "")


@dataclass(frozen=True)
class Request:
    """The options of `mgpu configure`."""

    output: str = ""  # "": the default file, or with `edit` the edited file
    yes: bool = False
    no_input: bool = False
    guided: bool = False
    accessible: bool = False
    dry_run: bool = False
    diff: bool = False
    force: bool = False
    resume: bool = False
    fresh: bool = False
    plan: bool = False
    offline: bool = False
    edit: str = ""
    validate: tuple[str, ...] = ()
    show_origin: str = ""
    fix: bool = False
    strict: bool = False
    verbose: bool = False
    loader: bool = True
    format: str = "human"
    from_: str = ""
    target: str = ""
    demo: str = ""  # a machine of mgpu/report/demo.py; nothing is written
    save_answers: str = answers_file.DEFAULT_FILE  # "": none
    answers: Answers = Answers()
    params_from: tuple[str, ...] = ()  # a script and its arguments
    emit: str = ""  # an engine: torchrun, kubeflow, skypilot; Slurm is an answer
    job: str = ""  # the file for it; "": its usual name
    python: str | None = None
    # Examines the hosts of the answers: the facts of the first one, their number and names, and the answers completed.
    look: Callable[[Answers], tuple[Machine, Answers]] | None = None
    machine: Machine | None = None  # what `look` has found
    # Whether a config counts as verified on this machine, and a phrase that says so ("verified 2 h ago").
    verified: Callable[[Path], tuple[bool, str]] | None = None

    @property
    def path(self) -> Path:
        """The file that would be written."""
        return Path(self.output or self.edit or self.default_file)

    @property
    def default_file(self) -> str:
        """The config that is written without --output: ./accelerate.yaml only for this machine."""
        return answers_file.named(DEFAULT_FILE, self.label)

    @property
    def default_answers(self) -> str:
        """The file that the answers are saved in without --save-answers."""
        return answers_file.named(answers_file.DEFAULT_FILE, self.label)

    @property
    def label(self) -> str:
        """The machine or engine the config is for, as part of file names; "" for this machine."""
        return elsewhere(self.emit, self.target, self.demo or self.from_)

    @property
    def machine_flags(self) -> tuple[str, ...]:
        """The options that select the machine, for commands that repeat them."""
        if self.demo:
            return "--demo", self.demo
        return ("--target", self.target) if self.target else ("--from", self.from_) if self.from_ else ()

    @property
    def more_flags(self) -> tuple[str, ...]:
        """The options that select the engine, for commands that repeat them."""
        return (*(("--emit", self.emit) if self.emit else ()), *(("--job", self.job) if self.job else ()))

    @property
    def job_file(self) -> Path:
        """The job script that would be written."""
        return Path(self.job or FORMATS[self.emit or "slurm"].file)

    @property
    def flags(self) -> tuple[str, ...]:
        """The options that select machine and engine, for commands that repeat them."""
        return (*self.machine_flags, *self.more_flags)
