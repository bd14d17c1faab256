"""The files to validate, and the findings in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mgpu import engine
from mgpu.check import Edit
from mgpu.snapshot import Config, DeepSpeedJson, Snapshot

STDIN = "-"


@dataclass(frozen=True)
class Request:
    """The files to validate, and the options."""

    files: tuple[str, ...]
    loader: bool = True
    format: str = "human"  # json, github
    fix: bool = False
    dry_run: bool = False  # with fix: the diff only
    strict: bool = False  # warnings make the exit code 1
    verbose: bool = False  # also list notes without consequence
    show_origin: bool = False
    machine: Snapshot | None = None  # the machine the files are for; None: this one
    python: str | None = None  # the interpreter whose accelerate is used


@dataclass(frozen=True)
class Fixed:
    """A file after `--fix`: its bytes, the edits made, and the reasons for repairs that were not made."""

    raw: bytes
    done: tuple[Edit, ...] = ()
    left: tuple[str, ...] = ()
    diff: tuple[str, ...] = ()
    backup: Path | None = None


@dataclass(frozen=True)
class Judged:
    """A file with its findings."""

    config: Config
    outcomes: tuple[engine.Outcome, ...]
    verdict: str  # valid, valid_with_options, invalid, unknown
    code: int
    snapshot: Snapshot = field(default_factory=Snapshot)  # of the machine, the file in it
    fixed: Fixed | None = None  # None: without --fix
    loaded: bool = True  # with accelerate; False with --no-loader
    deepspeed: DeepSpeedJson | None = None  # the file itself, if it is not an accelerate config but DeepSpeed's
    verbose: bool = False  # -v: also notes without consequence


def repair(outcome: engine.Outcome) -> tuple[Edit, ...]:
    """Return the edits that fix a problem, from its first fix that has any."""
    return next((fix.edits for fix in (outcome.problem.fixes if outcome.problem else ()) if fix.edits), ())
