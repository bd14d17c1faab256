"""How does a rank record its progress, so that a hang or crash shows where it happened?

Every step is announced in `rankN.jsonl` before it starts, one JSON line per write; a thread touches `rankN.beat` while
the process lives. On SIGUSR1 the rank writes its Python stacks to `rankN.stack`; if the file `ASK` exists, it dumps
torch's flight recorder to `rankN.recorder`. Both work while the main thread hangs. Results are never exchanged through
the process group under test. Nothing is printed.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from . import STAGES

BEAT_S = 0.2
TERMINATED = "terminated"  # suffix of the file that is not empty after SIGTERM
ASK = "ask"  # this file in the run folder makes every rank dump its flight recorder
# The flight recorder's dump, newest name first: for every backend (torch 2.9 and later), for NCCL (2.5 and later).
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")


class Failure(Exception):
    """A stage failed.

    `sentence` is for the report; `kind` is a short name that a check matches (checks/smoke), `evidence` the JSON values
    from which it finds the cause.
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
        self.classify: Callable[[BaseException], Failure | None] = lambda trouble: None  # an error's kind, if known
        self.rung = STAGES[0]
        # What the runner reads: keys are fields of mgpu.snapshot.Rank.
        self.report: dict[str, Any] = {"rank": rank, "pid": os.getpid(), "steps": [], "measured": {}, "wrote": []}

    def listen(self) -> None:
        """Start the heartbeat, answer requests for stacks and the flight recorder, and leave a mark on SIGTERM.

        The launcher sends SIGTERM to the other ranks after a failure: a rank that disappears without this mark exited
        by itself. faulthandler writes in the signal handler, so the mark does not need a free interpreter.
        """
        # faulthandler keeps both files.
        stack = open(f"{self.path}.stack", "w", encoding="utf-8")  # noqa: SIM115
        mark = open(f"{self.path}.{TERMINATED}", "w", encoding="utf-8")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        faulthandler.register(signal.SIGTERM, file=mark, all_threads=False, chain=True)
        # A DataLoader worker is forked from the rank and must not leave the rank's mark.
        os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
        threading.Thread(target=_beat, args=(self.path, stack), daemon=True).start()

    def write(self, **record: Any) -> None:
        """Append one line in a single write, so that lines never mix and a partial line is never read."""
        self.order += 1
        line = json.dumps({"order": self.order, "time": time.time(), "rung": self.rung, **record})
        os.write(self.file, line.encode() + b"\n")

    def about_to(self, word: str, limit_s: float | None = None) -> None:
        """Announce the next step. `limit_s`: its limit, if it may take longer than the stall limit."""
        self.write(word=word, limit_s=limit_s)

    def introduce(self, *keys: str) -> None:
        """Send the report so far to the runner: all of it, or only these keys."""
        sent = keys or [key for key in self.report if key != "steps"]
        self.write(identity={key: self.report[key] for key in sent})

    @contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """Record one stage. The caller appends its detail to the list; an exception is recorded as its failure."""
        self.rung = name
        start = time.monotonic()
        details: list[str] = []
        ok = False
        try:
            self.about_to("begins")
            yield details
            ok = True
        except BaseException as trouble:
            if isinstance(trouble, SystemExit):
                trouble = _explain_exit(trouble)
            error = str(trouble) if isinstance(trouble, Failure) else f"{type(trouble).__name__}: {trouble}"
            details[:] = [error.splitlines()[0] if error else ""]
            self.report["error"] = error
            self.report["traceback"] = traceback.format_exc()
            failure = trouble if isinstance(trouble, Failure) else self.classify(trouble)
            if failure is not None:
                self.report["kind"], self.report["evidence"] = failure.kind, _finite(failure.evidence)
            raise
        finally:
            detail = details[-1] if details else ""
            step = {"rung": name, "ok": ok, "detail": detail, "seconds": round(time.monotonic() - start, 4)}
            self.report["steps"].append(step)
            self.write(done=step, report=self.report if not ok else None)

    def finish(self) -> None:
        """Write the rank's report atomically."""
        temporary = Path(f"{self.path}.json.tmp")
        temporary.write_text(json.dumps(self.report), "utf-8")
        temporary.replace(f"{self.path}.json")


def _finite(evidence: dict[str, Any]) -> dict[str, Any]:
    """Return the evidence with NaN and infinity as text: JSON has no such numbers."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in evidence.items()
    }


def _explain_exit(exit_call: SystemExit) -> Failure:
    """Return the failure for a call of sys.exit, whose argument is an exit code, a message or None."""
    code = exit_call.code
    if code is None or isinstance(code, int):
        return Failure(f"sys.exit({code or 0}) was called", "exited", code=int(code or 0))
    return Failure(f"sys.exit was called: {code}", "exited", code=1)


def _beat(path: Path, stack: TextIO) -> None:
    """Touch a file while this process runs (not while it is stopped), and answer when the runner asks.

    This thread writes the stacks if the main one runs Python code: it has the lock, so no frame changes meanwhile.
    """
    beat = f"{path}.beat"
    Path(beat).touch()
    asked = path.parent / ASK
    answered = False
    while True:
        os.utime(beat)
        if not answered and asked.exists():
            answered = True
            if not os.fstat(stack.fileno()).st_size:  # else the handler has written it
                faulthandler.dump_traceback(stack)
            _dump_recorder(f"{path}.recorder")
        time.sleep(BEAT_S)


def _dump_recorder(path: str) -> None:
    """Write the content of torch's flight recorder, if this torch has one."""
    recorder = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    dump = next((getattr(recorder, name) for name in _DUMPS if hasattr(recorder, name)), None)
    if dump is None:
        return
    try:
        content = dump(True, False)  # including completed ones; without C++ stacks, which may take long
        Path(f"{path}.tmp").write_bytes(content if isinstance(content, bytes) else str(content).encode())
        os.replace(f"{path}.tmp", path)
    except Exception:  # no recorder of this kind: then no answer
        return
