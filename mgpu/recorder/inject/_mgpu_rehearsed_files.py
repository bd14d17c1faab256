"""Which files this rank writes, and whether the checkpoints among them can be read again."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_kept_files import EVENTS, Kept, writes
    from mgpu.recorder.inject._mgpu_rehearsal import guarded, user_line, wrap
else:
    from _mgpu_kept_files import EVENTS, Kept, writes
    from _mgpu_rehearsal import guarded, user_line, wrap

_MOST = 1000  # files
_MOST_CHECKPOINTS = 8  # that are read again
_CACHE_VARIABLES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "HF_MODULES_CACHE",
    "HF_METRICS_CACHE",
    "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "XDG_CACHE_HOME",
    "MPLCONFIGDIR",
    "WANDB_CACHE_DIR",
)
_NOT_FILES = ("/dev/", "/proc/", "/sys/")
_EXCLUSIVE, _UNLOCK = 2, 8  # LOCK_EX and LOCK_UN of flock


def _cache_folders() -> list[str]:
    """Return the folders of libraries' caches. Libraries expect several processes there, and lock what they write."""
    return [os.environ[name] for name in _CACHE_VARIABLES if os.environ.get(name)]


_EVENTS = (*EVENTS, "fcntl.flock")


class Files:
    """The files that this rank has opened for writing."""

    def __init__(self, rehearsal: Any) -> None:
        self.rehearsal = rehearsal
        self.seen: set[tuple[str, str, str | None]] = set()
        self.locks: dict[int, str] = {}  # file descriptor -> the file that this rank locked with it
        self.checkpoints: dict[str, str] = {}  # path -> format
        self.caches = tuple(os.path.abspath(os.path.expanduser(place)) + os.sep for place in _cache_folders())
        self.kept = Kept(rehearsal.folder, self.caches)
        self._busy = threading.local()

    def audit(self, event: str, args: Any) -> None:
        """Called by Python before each operation that it audits."""
        if event not in _EVENTS or getattr(self._busy, "on", False):
            return
        self._busy.on = True
        try:
            if event in EVENTS:
                guarded(lambda: self.kept.audit(event, args))
            if self.rehearsal.off:  # a child of a rank, such as a loader's worker: its files are the script's, too
                return
            if event == "open":
                self._open(*args)
            elif event == "fcntl.flock":
                self._lock(*args)
            elif event in ("os.rename", "os.remove"):
                self.wrote(args[1] if event == "os.rename" else args[0], event.partition(".")[2])
        except Exception:
            return
        finally:
            self._busy.on = False

    def before_unaudited(self, path: Any) -> None:
        """Keep the file that C++ or Rust code is about to write."""
        self._busy.on = True
        try:
            self.kept.before_write(path)
        finally:
            self._busy.on = False

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        if writes(mode, flags):
            append = "a" in mode if isinstance(mode, str) else bool(flags & os.O_APPEND)
            self.wrote(path, "append" if append else "write")

    def _lock(self, descriptor: Any, operation: int) -> None:
        """Follow the locks of files, as filelock takes them for the caches of Hugging Face's libraries."""
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        self.locks.pop(number, None)
        if operation & _EXCLUSIVE and not operation & _UNLOCK:
            self.locks[number] = _file_of(number)

    def _held(self) -> str | None:
        """Return a file that this rank has locked. A descriptor that was closed has no lock any more."""
        for number, path in list(self.locks.items()):
            try:
                if path and _file_of(number) == path:
                    return path
            except OSError:
                pass
            del self.locks[number]
        return None

    def wrote(self, path: Any, how: str) -> None:
        """Note one path, once."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        name = os.path.abspath(os.fsdecode(path))
        lock = self._held()
        if (name, how, lock) in self.seen or len(self.seen) >= _MOST or name.startswith(_NOT_FILES):
            return
        if name.endswith(".pyc") or "__pycache__" in name or name.startswith(self.rehearsal.folder + os.sep):
            return
        self.seen.add((name, how, lock))
        cache = name.startswith(self.caches)
        self.rehearsal.note("file", path=name, how=how, cache=cache, lock=lock, line=user_line())

    def check(self) -> None:
        """Read the checkpoints that were written."""
        for path, form in list(self.checkpoints.items())[:_MOST_CHECKPOINTS]:
            if os.path.isfile(path):
                self._read_again(path, form)

    def _read_again(self, path: str, form: str) -> None:
        torch = sys.modules["torch"]
        ok: bool | None = True
        error, began = None, time.monotonic()
        try:
            if form == "torch":
                torch.load(path, map_location="cpu", weights_only=True)
            else:
                sys.modules["safetensors.torch"].load_file(path)
        except Exception as found:
            text = (str(found).splitlines() or [""])[0][:300]
            # Objects other than tensors are saved too: whether they can be read is not known.
            ok = None if "weights_only" in str(found) or "Weights only" in str(found) else False
            error = f"{type(found).__name__}: {text}"
        size = os.path.getsize(path)
        self.rehearsal.note("checkpoint", path=path, ok=ok, error=error, s=time.monotonic() - began, size=size)


def _file_of(descriptor: int) -> str:
    """Return the file that a descriptor is open for. Raises OSError if it is closed."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def begin(rehearsal: Any) -> None:
    """Listen to what Python audits."""
    rehearsal.files = files = Files(rehearsal)
    sys.addaudithook(files.audit)
    rehearsal.at_stop.append(files.check)


def _saving(name: str, form: str, at: int) -> Any:
    """Note the path of a function that writes a checkpoint with C++ or Rust, and how long it takes."""

    def hook(rehearsal: Any, module: Any) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            guarded(lambda: _saved(rehearsal, args, kwargs, at, form))
            began = time.monotonic()
            try:
                return original(*args, **kwargs)
            finally:
                rehearsal.saved += time.monotonic() - began

        setattr(module, name, save)

    return hook


def _saved(rehearsal: Any, args: Any, kwargs: Any, at: int, form: str) -> None:
    path = kwargs.get("f", kwargs.get("filename", args[at] if len(args) > at else None))
    if isinstance(path, (str, os.PathLike)):
        rehearsal.files.before_unaudited(path)
        name = os.path.abspath(os.fspath(path))
        rehearsal.files.checkpoints[name] = form
        rehearsal.files.wrote(name, "save")


def _unaudited(name: str) -> Any:
    """Keep the file that a function writes with C++ or Rust; its path is the second argument, or a named one."""

    def hook(rehearsal: Any, module: Any) -> None:
        def before(*args: Any, **kwargs: Any) -> None:
            path = kwargs.get("f", kwargs.get("filename", args[1] if len(args) > 1 else None))
            rehearsal.files.before_unaudited(path)

        wrap(module, name, before)

    return hook


HOOKS = {
    "safetensors": _unaudited("serialize_file"),
    "torch.jit._serialization": _unaudited("save"),
    "torch.serialization": _saving("save", "torch", 1),
    "safetensors.torch": _saving("save_file", "safetensors", 1),
}
