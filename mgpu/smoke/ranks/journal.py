"""How does a rank tell where it is, so that a hang or a death shows where it happened?

Every step is announced before it is taken, one JSON line a write, in `rankN.jsonl`; a thread touches `rankN.beat` as
long as the process lives. Asked by SIGUSR1 it writes the Python stacks to `rankN.stack`, asked by the file `ASK` what
torch's flight recorder holds to `rankN.recorder`: the main thread may hang meanwhile. The verdict is never exchanged
through the process group under test. Nothing is printed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import RUNGS

BEAT_S = 0.2
ASK = "ask"  # this file in the run folder asks every rank for its flight recorder
# The flight recorder's dump, newest name first: of every backend (torch 2.9 and later), of NCCL alone (2.5 and later).
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")


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
        self.name: Callable[[BaseException], Failure | None] = lambda trouble: None  # an error's kind, if it is known
        self.rung = RUNGS[0]
        # What the runner reads: keys are fields of mgpu.snapshot.Rank.
        self.report: dict[str, Any] = {"rank": rank, "pid": os.getpid(), "steps": [], "measured": {}, "wrote": []}

    def listen(self) -> None:
        """Beat from now on, and answer when asked."""
        stack = open(f"{self.path}.stack", "w", encoding="utf-8")  # noqa: SIM115 - faulthandler keeps it
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        threading.Thread(target=_beat, args=(self.path,), daemon=True).start()

    def write(self, **record: Any) -> None:
        """One line, in one write: two ranks' lines never mix, and half a line is never read."""
        self.order += 1
        line = json.dumps({"order": self.order, "time": time.time(), "rung": self.rung, **record})
        os.write(self.file, line.encode() + b"\n")

    def about_to(self, word: str, limit_s: float | None = None) -> None:
        """Say what comes next. `limit_s`: this one may take longer than the stall limit."""
        self.write(word=word, limit_s=limit_s)

    def introduce(self, *keys: str) -> None:
        """Let the runner know at once what the report holds so far: all of it, or these parts."""
        told = keys or [key for key in self.report if key != "steps"]
        self.write(identity={key: self.report[key] for key in told})

    @contextmanager
    def climbing(self, rung: str) -> Iterator[list[str]]:
        """One rung. What the caller appends to the list is its detail; an exception is its failure."""
        self.rung = rung
        start = time.monotonic()
        told: list[str] = []
        ok = False
        try:
            self.about_to("begins")
            yield told
            ok = True
        except Exception as trouble:
            error = str(trouble) if isinstance(trouble, Failure) else f"{type(trouble).__name__}: {trouble}"
            told[:] = [error.splitlines()[0] if error else ""]
            self.report["error"] = error
            self.report["traceback"] = traceback.format_exc()
            failure = trouble if isinstance(trouble, Failure) else self.name(trouble)
            if failure is not None:
                self.report["kind"], self.report["evidence"] = failure.kind, failure.evidence
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


def _beat(path: Path) -> None:
    """Touch a file as long as this process runs (a stopped or frozen process does not); look whether anybody asks."""
    beat = f"{path}.beat"
    Path(beat).touch()
    asked = path.parent / ASK
    answered = False
    while True:
        os.utime(beat)
        if not answered and asked.exists():
            answered = True
            _tell_collectives(f"{path}.recorder")
        time.sleep(BEAT_S)


def _tell_collectives(path: str) -> None:
    """Write what torch's flight recorder holds, where this torch has one that can be asked."""
    recorder = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    dump = next((getattr(recorder, name) for name in _DUMPS if hasattr(recorder, name)), None)
    if dump is None:
        return
    try:
        told = dump(True, False)  # not only the active ones; never with C++ stacks, which may take long
        Path(f"{path}.tmp").write_bytes(told if isinstance(told, bytes) else str(told).encode())
        os.replace(f"{path}.tmp", path)
    except Exception:  # no recorder of this kind: an answer that does not come is none
        return
