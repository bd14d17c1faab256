"""What is to be validated, and what was found in each file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mgpu import engine
from mgpu.check import Edit
from mgpu.snapshot import Config, Snapshot

STDIN = "-"


@dataclass(frozen=True)
class Request:
    """What is to be validated, and how it is told."""

    files: tuple[str, ...]
    loader: bool = True
    format: str = "human"  # json, github
    fix: bool = False
    dry_run: bool = False  # with fix: the diff only
    show_origin: bool = False
    machine: Snapshot | None = None  # the machine the files are for; None: this one
    python: str | None = None  # the interpreter whose accelerate is asked


@dataclass(frozen=True)
class Mended:
    """A file after `--fix`: its bytes, what was done, and why an offered repair was not made."""

    raw: bytes
    done: tuple[Edit, ...] = ()
    left: tuple[str, ...] = ()
    diff: tuple[str, ...] = ()
    backup: Path | None = None


@dataclass(frozen=True)
class Judged:
    """A file, and what is to be said of it."""

    config: Config
    outcomes: tuple[engine.Outcome, ...]
    verdict: str  # valid, invalid, unknown
    code: int
    snapshot: Snapshot = field(default_factory=Snapshot)  # of the machine, the file in it
    mended: Mended | None = None  # None: nobody asked
    asked: bool = True  # whether accelerate was to be asked


def repair(outcome: engine.Outcome) -> tuple[Edit, ...]:
    """The edits that make a problem go away; of several ways the first."""
    return next((fix.edits for fix in (outcome.problem.fixes if outcome.problem else ()) if fix.edits), ())
