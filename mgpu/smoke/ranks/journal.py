"""How does a rank tell where it is, so that a hang or a death shows where it happened?

Every step is announced before it is taken, one JSON line a write, in `rankN.jsonl`; a thread touches `rankN.beat` as
long as the process lives; SIGUSR1 writes the Python stacks to `rankN.stack`. The verdict is never exchanged through the
process group under test. Nothing is printed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import RUNGS

BEAT_S = 0.2


class Failure(Exception):
    """A rung that was tried and is wrong.

    `sentence` is for the report; `kind` is a short name that a check knows (checks/smoke), `evidence` the JSON values
    that it needs to name the cause.
    """

    def __init__(self, sentence: str, kind: str | None = None, **evidence: Any) -> None:
        super().__init__(sentence)
        self.kind, self.evidence = kind, evidence


class Journal:
    """Announces and records what this rank does."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"rank{rank}"
        self.file = os.open(f"{self.path}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.order = 0
        self.rung = RUNGS[0]
        # What the runner reads: keys are fields of mgpu.snapshot.Rank.
        self.report: dict[str, Any] = {"rank": rank, "pid": os.getpid(), "steps": [], "measured": {}}

    def listen(self) -> None:
        """Beat from now on, and answer SIGUSR1 with the stacks."""
        stack = open(f"{self.path}.stack", "w", encoding="utf-8")  # noqa: SIM115 - faulthandler keeps it
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        threading.Thread(target=_beat, args=(f"{self.path}.beat",), daemon=True).start()

    def write(self, **record: Any) -> None:
        """One line, in one write: two ranks' lines never mix, and half a line is never read."""
        self.order += 1
        line = json.dumps({"order": self.order, "time": time.time(), "rung": self.rung, **record})
        os.write(self.file, line.encode() + b"\n")

    def about_to(self, word: str, limit_s: float | None = None) -> None:
        """Say what comes next. `limit_s`: this one may take longer than the stall limit."""
        self.write(word=word, limit_s=limit_s)

    def introduce(self) -> None:
        """Let the runner know at once what the report holds so far."""
        self.write(identity={key: value for key, value in self.report.items() if key != "steps"})

    @contextmanager
    def climbing(self, rung: str) -> Iterator[list[str]]:
        """One rung. What the caller appends to the list is its detail; an exception is its failure."""
        self.rung = rung
        self.about_to("begins")
        start = time.monotonic()
        told: list[str] = []
        ok = True
        try:
            yield told
        except Exception as trouble:
            ok = False
            known = isinstance(trouble, Failure)
            error = str(trouble) if known else f"{type(trouble).__name__}: {trouble}"
            told[:] = [error.splitlines()[0] if error else ""]
            self.report["error"] = error
            self.report["traceback"] = traceback.format_exc()
            if isinstance(trouble, Failure):
                self.report["kind"], self.report["evidence"] = trouble.kind, trouble.evidence
            raise
        finally:
            detail = told[-1] if told else ""
            step = {"rung": rung, "ok": ok, "detail": detail, "seconds": round(time.monotonic() - start, 4)}
            self.report["steps"].append(step)
            self.write(done=step, report=self.report if not ok else None)

    def finish(self) -> None:
        """The rank's report, in one piece."""
        temporary = Path(f"{self.path}.json.tmp")
        temporary.write_text(json.dumps(self.report), "utf-8")
        temporary.replace(f"{self.path}.json")


def _beat(path: str) -> None:
    """Touch a file as long as this process runs: a stopped or frozen process does not."""
    Path(path).touch()
    while True:
        os.utime(path)
        time.sleep(BEAT_S)
