"""The rehearsal of a training script: what this rank does in its first optimizer steps, and an orderly stop after them.

Each rank appends to `RANK.PID.rehearsal` in the recorder's folder, one JSON object a line, whose "k" is its kind. After
`MGPU_REHEARSAL=K` steps the script gets a SystemExit with code 0, once all ranks have reached that step: none is left
waiting in a collective. `RANK.done` and `RANK.left` are files that the ranks wait for.

Runs with any Python from 3.8 on. It never imports torch: it adds its hooks when the script imports it.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_own_code import is_users
else:
    from _mgpu_own_code import is_users

STEPS = "MGPU_REHEARSAL"  # the variable with the number of optimizer steps
ON_CPU = "MGPU_REHEARSAL_CPU"  # set: gloo takes the place of a backend that needs GPUs
KIND, DONE, LEFT = "rehearsal", "done", "left"
WAIT_S = 10.0  # for the other ranks, before this one leaves
_POLL_S = 0.02
_MOST_BUFFERED = 2000  # records before the process is known to be a rank
MOST_RECORDS = 20_000
# The records that are also written while steps are measured.
_ALWAYS = ("measured", "unmeasured", "pulse", "file", "checkpoint", "raised", "done", "left", "end")


class Stop(SystemExit):
    """The end of the rehearsal."""


class Rehearsal:
    """What this process has recorded, and whether it has to stop."""

    def __init__(self) -> None:
        self.folder = os.environ.get("MGPU_RECORDER", "")
        self.wanted = int(os.environ.get(STEPS, "0") or 0)
        self.rank: int | None = None
        self.world: int | None = None
        self.waited = self.backward = self.saved = 0.0  # seconds so far, by phase
        self.own = 0.0  # seconds that recording itself took, which are no part of a step
        self.samples = self.drawn = 0  # so far, from loaders: samples, batches
        self.drawn_from: int | None = None  # the loader of the last batch
        self.step_seconds: list[float] = []  # of the watched steps
        self.training: Any = None
        self.times: Any = None
        self.checkpoint: Any = None
        self.measuring = False  # only time is taken
        self.peaks: dict[str, int] = {}  # of memory, before the measured steps
        self.files: Any = None
        self.calls: Any = None
        self.at_stop: list[Callable[[], object]] = []
        self.off = False  # in a child of a rank
        self._buffer: list[str] = []
        self._journal: Any = None
        self._records = 0
        self._lock = _thread.RLock()
        self._stopped = False

    def note(self, record: str, **values: Any) -> None:
        """Append one record. Cheap enough for each collective."""
        if self.off or self._records > MOST_RECORDS or (self.measuring and record not in _ALWAYS):
            return
        with self._lock:
            self._records += 1
            line = json.dumps({"k": record, "t": round(time.monotonic(), 6), **values}, default=str) + "\n"
            if self._journal is None:
                if len(self._buffer) < _MOST_BUFFERED:
                    self._buffer.append(line)
                return
            self._journal.write(line)

    def look(self, function: Callable[[], object]) -> None:
        """Call a function that reads values of the script; its time does not count as the script's."""
        if self.measuring:
            return
        began = time.monotonic()
        guarded(function)
        self.own += time.monotonic() - began

    def join(self, rank: int, world: int | None = None) -> None:
        """Record from now on as this rank."""
        if self.off:
            return
        self.world = world or self.world
        if self._journal is not None:
            return
        self.rank = rank
        path = os.path.join(self.folder, f"{rank}.{os.getpid()}.{KIND}")
        self._journal = open(path, "w", encoding="utf-8", errors="replace", buffering=1)  # noqa: SIM115 - to the end
        self._journal.writelines(self._buffer)
        self._buffer = []
        self.note("rank", rank=rank, pid=os.getpid(), world=_number("WORLD_SIZE"), line=user_line())
        import atexit

        atexit.register(guarded, self._end)

    def _end(self) -> None:
        if self.times is not None:
            self.times.finish()
        for function in self.at_stop:
            guarded(function)
        self.at_stop = []
        self.note("end", **peaks(self))

    def reach(self, optimizer: Any) -> None:
        """Stop the script, once all ranks have made as many steps and their times are measured. Raises Stop."""
        if self.checkpoint is not None and not self.checkpoint.tried:
            guarded(lambda: self.checkpoint.write(optimizer))
        if self.times is not None and not self._stopped and self.times.goes_on(optimizer):
            return
        if self._stopped:  # the script has caught the first one
            self.note("left", together=None)
            os._exit(0)
        self._stopped = True
        self.note("done", **peaks(self))
        together = self._meet()
        for function in self.at_stop:
            guarded(function)
        self.at_stop = []
        self.note("left", together=together)
        self._mark(LEFT)
        if _thread.get_ident() != _main_thread():
            os._exit(0)
        raise Stop(0)

    def _mark(self, what: str) -> None:
        with contextlib.suppress(OSError), open(os.path.join(self.folder, f"{self.rank}.{what}"), "w"):
            pass

    def agree(self, what: str, text: str) -> list[str] | None:
        """Exchange a text with the other ranks; return all of them, None if not all ranks have come."""
        path = os.path.join(self.folder, f"{self.rank}.{what}")
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".tmp", path)
        wanted, deadline = self.world or _number("WORLD_SIZE") or 1, time.monotonic() + WAIT_S
        while time.monotonic() < deadline and not self.others_left():
            names = [name for name in os.listdir(self.folder) if name.endswith(f".{what}")]
            if len(names) >= wanted:
                return [_text_of(os.path.join(self.folder, name)) for name in names]
            time.sleep(_POLL_S)
        return None

    def _meet(self) -> bool:
        """Wait for the other ranks; return whether all of them have come."""
        self._mark(DONE)
        wanted = self.world or _number("WORLD_SIZE") or 1
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            names = os.listdir(self.folder)
            if sum(name.endswith(f".{DONE}") for name in names) >= wanted:
                return True
            if any(name.endswith(f".{LEFT}") for name in names):
                return False
            time.sleep(_POLL_S)
        return False

    def others_left(self) -> bool:
        """Whether another rank has left the rehearsal: what fails now fails because of that."""
        with contextlib.suppress(OSError):
            return any(name.endswith(f".{LEFT}") for name in os.listdir(self.folder))
        return False


REHEARSAL = Rehearsal()


def begin() -> None:
    """Add the hooks. The process may still be a launcher, which becomes no rank and writes no file."""
    if not REHEARSAL.folder or REHEARSAL.wanted < 1:
        return
    import _mgpu_recorder  # type: ignore[import-not-found]
    import _mgpu_rehearsed_checkpoint as checkpoint  # type: ignore[import-not-found]
    import _mgpu_rehearsed_data as data  # type: ignore[import-not-found]
    import _mgpu_rehearsed_exchange as exchange  # type: ignore[import-not-found]
    import _mgpu_rehearsed_files as files  # type: ignore[import-not-found]
    import _mgpu_rehearsed_times as times  # type: ignore[import-not-found]
    import _mgpu_rehearsed_training as training  # type: ignore[import-not-found]

    os.register_at_fork(after_in_child=_in_child)
    if (rank := _number("RANK")) is not None:
        REHEARSAL.join(rank, _number("WORLD_SIZE"))
    _record_raised()
    files.begin(REHEARSAL)
    checkpoint.begin(REHEARSAL)
    wanted: dict[str, Callable[[Any], None]] = {}
    for part in (data, exchange, files, training):
        for name, hook in part.HOOKS.items():
            wanted[name] = functools.partial(hook, REHEARSAL)
    sys.meta_path.insert(0, _mgpu_recorder.Hooks(wanted))
    for part in (times, checkpoint):
        around = {name: functools.partial(hook, REHEARSAL) for name, hook in part.HOOKS.items()}
        sys.meta_path.insert(0, _mgpu_recorder.Hooks(around))


def _in_child() -> None:
    REHEARSAL.off = True


def _record_raised() -> None:
    before = sys.excepthook

    def record(kind: Any, error: Any, trace: Any) -> None:
        guarded(lambda: _raised(kind, error, trace))
        left = False
        with contextlib.suppress(Exception):
            left = REHEARSAL.rank is not None and REHEARSAL.others_left()
        if left:
            os._exit(0)
        before(kind, error, trace)

    sys.excepthook = record


def _raised(kind: Any, error: Any, trace: Any) -> None:
    line = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if is_users(name):
            line = f"{os.path.abspath(name)}:{trace.tb_lineno}"
        trace = trace.tb_next
    message = (str(error).splitlines() or [""])[0][:500]
    REHEARSAL.note("raised", type=kind.__name__, message=message, line=line, after=REHEARSAL.others_left())


def guarded(function: Callable[[], Any]) -> Any:
    """Call it; an error in it must not affect the training."""
    try:
        return function()
    except Exception:
        if os.environ.get("MGPU_DEBUG"):
            import traceback

            traceback.print_exc()
        return None


def user_line() -> str | None:
    """Return the user's innermost line that is running, as path:number."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{os.path.abspath(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def wrap(module: Any, name: str, before: Callable[..., Any]) -> None:
    """Replace a function by one that calls `before` first, guarded."""
    original = getattr(module, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        guarded(lambda: before(*args, **kwargs))
        return original(*args, **kwargs)

    setattr(module, name, wrapped)


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _main_thread() -> int:
    import threading

    return threading.main_thread().ident or 0


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def peaks(rehearsal: Rehearsal) -> dict[str, int]:
    """Return the peaks of this rank's memory in bytes. Torch's own begin again with the measured steps."""
    import _mgpu_recorder

    found = {}
    with contextlib.suppress(OSError):
        found["host"] = _mgpu_recorder.peak_bytes()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found.update(allocated=cuda.max_memory_allocated(), reserved=cuda.max_memory_reserved())
    return {name: max(size, rehearsal.peaks.get(name, 0)) for name, size in found.items()}
