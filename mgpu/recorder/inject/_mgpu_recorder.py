"""What does this rank do? Files in the run's `recorder` folder, written so that they work while the main thread hangs.

For each process: `RANK.PID.stacks`, the Python stacks of all threads on a signal (faulthandler writes them without the
interpreter); `RANK.PID.beat`, counters in shared memory; `RANK.PID.raised`, an exception that ends the script;
`RANK.PID.values`, what the names on its lines stood for (_mgpu_raised.py); `RANK.PID.flight`, torch's flight recorder,
written on a request through the FIFO `RANK.PID.ask`; `RANK.PID.nan`, the first loss or gradient norm that is not finite
(_mgpu_finite.py).

Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # without the enumerations of `signal`, whose import takes longer
import contextlib
import faulthandler
import os
import sys
import time
from struct import calcsize, pack_into
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FOLDER = "MGPU_RECORDER"  # the variable that names the folder; in a Slurm job with NODE for the name of the node
NODE = "%N"
# Real-time signals: SIGUSR1 and SIGUSR2 belong to training scripts (Slurm sends them before a time limit). The thread
# that gets it writes its own stack; it writes all; Python writes all, once it handles signals (stack_requests.py).
SIGNAL, SIGNAL_FOR_ALL, SIGNAL_TO_PYTHON = 50, 51, 52
THREAD = "mgpu-recorder"  # name of the thread that answers requests
# Requests through the FIFO.
ASK_FLIGHT, ASK_STACKS = b"f", b"s"
# struct of the beat file: optimizer steps, time of the last one, batches, time of the last one, seconds spent waiting
# for batches, time since when a batch is awaited (0: none is), longest time between two steps. Times: CLOCK_MONOTONIC.
BEAT = "=QdQdddd"
# After it, the last steps, each at its number modulo STEPS: number, wall-clock time of its end, and the seconds spent
# so far waiting for batches, in optimizers, and saving. The flight recorder has wall-clock times too.
STEP, STEPS = "=Qdddd", 256
# After them: peak bytes of this process in the machine's memory, and allocated and reserved by torch on its GPU.
MEMORY = "=QQQ"
_HEAD_BYTES, _STEP_BYTES = calcsize(BEAT), calcsize(STEP)
MEMORY_AT = _HEAD_BYTES + STEPS * _STEP_BYTES
_MEMORY_S = 1.0  # between two looks at the memory, which take some 50 us
_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")  # torch 2.9 and later, 2.5 and later
_FINITE = ("torch.autograd", "torch.nn.utils.clip_grad", "torch.amp.grad_scaler", "transformers.trainer")
_MOST_ENTRIES, _MOST_FRAMES = 200, 12  # of the flight recorder; of each entry


class Recorder:
    """The files of this process."""

    def __init__(self) -> None:
        self.folder = ""
        self.rank: int | None = None
        self.steps = self.batches = 0
        self.step_at = self.batch_at = self.waited = self.longest = 0.0
        self.optimized = self.saved = 0.0  # seconds in optimizers, and saving
        self.finite: Any = None
        self._optimizing_since = self._memory_at = 0.0
        self._allocated = self._reserved = 0
        self._stacks: BinaryIO | None = None
        self._beat: Any = None

    def path(self, kind: str) -> str:
        """Return the path of a file of this process."""
        return os.path.join(self.folder, f"{self.rank or 0}.{os.getpid()}.{kind}")

    def store(self, kind: str, text: str) -> None:
        """Write a file of this process, which appears with all of the text. Raises OSError."""
        self.prepare_folder()
        path = self.path(kind)
        with open(path + ".tmp", "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(path + ".tmp", path)

    def prepare_folder(self) -> None:
        """Create the folder if this process may be the first of its node to need it. Raises OSError."""
        if self.rank is None and NODE in os.environ.get(FOLDER, ""):
            make_own(self.folder)

    def attend(self, rank: int) -> None:
        """Begin to answer requests for stacks. Called again in each forked child, which has files of its own."""
        self.rank = rank
        path = self.path("stacks")
        self._stacks = open(path + ".tmp", "wb", buffering=0)  # noqa: SIM115 - faulthandler keeps it
        faulthandler.register(SIGNAL, file=self._stacks, all_threads=False, chain=False)
        faulthandler.register(SIGNAL_FOR_ALL, file=self._stacks, all_threads=True, chain=False)
        with contextlib.suppress(ValueError):  # not in the main thread
            _signal.signal(SIGNAL_TO_PYTHON, self.dump_stacks)
        os.replace(path + ".tmp", path)  # a file that exists answers

    def dump_stacks(self, *_: Any) -> None:
        """Write the stacks from this thread, which has Python's lock: no other one changes its frames."""
        if self._stacks is not None:
            faulthandler.dump_traceback(self._stacks, all_threads=True)

    def open_beat(self) -> bool:
        """Begin to count; return False if it has begun before."""
        if self._beat is not None:
            return False
        import mmap

        with open(self.path("beat"), "w+b") as file:
            size = MEMORY_AT + calcsize(MEMORY)
            os.posix_fallocate(file.fileno(), 0, size)  # in a sparse file on a full disk, a counter would raise SIGBUS
            self._beat = mmap.mmap(file.fileno(), size)
        self.write()
        return True

    def write(self, waits_since: float = 0.0) -> None:
        """Store the counters. Takes about a microsecond."""
        if self._beat is not None:
            values = (self.steps, self.step_at, self.batches, self.batch_at, self.waited, waits_since, self.longest)
            pack_into(BEAT, self._beat, 0, *values)

    def steps_now(self, *_: Any) -> None:
        """Before each step of any optimizer."""
        self._optimizing_since = time.monotonic()

    def stepped(self, *_: Any) -> None:
        """After each step of any optimizer."""
        now = time.monotonic()
        if self._optimizing_since:
            self.optimized += now - self._optimizing_since
        if self.steps:
            self.longest = max(self.longest, now - self.step_at)
        self.steps += 1
        self.step_at = now
        self.write()
        if self._beat is not None:
            place = _HEAD_BYTES + self.steps % STEPS * _STEP_BYTES
            pack_into(STEP, self._beat, place, self.steps, time.time(), self.waited, self.optimized, self.saved)
        if now - self._memory_at > _MEMORY_S:
            self._memory_at = now
            guarded(self.write_memory)

    def write_memory(self) -> None:
        """Store the peaks of this rank's memory: the kernel's, and torch's if it has used a GPU. Waits for no GPU."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():  # the script may reset torch's own peaks
            self._allocated = max(self._allocated, cuda.max_memory_allocated())
            self._reserved = max(self._reserved, cuda.max_memory_reserved())
        if self._beat is not None:
            pack_into(MEMORY, self._beat, MEMORY_AT, peak_bytes(), self._allocated, self._reserved)

    def in_child(self) -> None:
        """In a forked child (a loader's worker): its stacks go to a file of its own; it counts nothing."""
        self._beat = None
        try:
            self.attend(self.rank or 0)
        except OSError:
            faulthandler.unregister(SIGNAL)  # then none is sent


RECORDER = Recorder()


def begin() -> None:
    """Start recording if this process is a rank; else wait until it becomes one."""
    RECORDER.folder = folder_in(os.environ)
    rank = os.environ.get("RANK", "")
    if rank.isdigit():
        _start(int(rank))
    import _mgpu_raised  # type: ignore[import-not-found]

    _mgpu_raised.begin(RECORDER)
    sys.meta_path.insert(0, Hooks(_hooks()))


def folder_in(environ: Any) -> str:
    """Return the folder that the environment of a rank names."""
    named: str = environ[FOLDER]
    return named.replace(NODE, environ.get("SLURMD_NODENAME", "node"))


def make_own(folder: str) -> None:
    """Create a folder below /tmp, where other users may have created one of this name. Raises OSError."""
    import stat

    for path in (os.path.dirname(folder), folder):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(f"{path} is not a folder of this user alone")


def _start(rank: int) -> None:
    if RECORDER.rank is not None:
        return
    RECORDER.prepare_folder()
    RECORDER.attend(rank)
    import _mgpu_children  # type: ignore[import-not-found]

    os.register_at_fork(after_in_child=RECORDER.in_child)
    _mgpu_children.begin(RECORDER)


# --- hooks into torch, added when the script imports it ---


class Hooks:
    """A finder that finds nothing of its own, but adds a hook to a few modules of torch after they are imported."""

    def __init__(self, wanted: dict[str, Callable[[Any], None]]) -> None:
        self._wanted = wanted
        self._looking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """Return what the other finders find, with the hook behind its execution."""
        if name not in self._wanted or name in self._looking:
            return None
        self._looking.add(name)  # another finder may ask all of them for this module
        try:
            spec = self._find(name, path, target)
        finally:
            self._looking.discard(name)
        guarded(lambda: self._add_hook(name, spec))
        return spec

    def _find(self, name: str, path: Any, target: ModuleType | None) -> Any:
        others = (one for one in sys.meta_path if one is not self and hasattr(one, "find_spec"))
        return next((spec for one in others if (spec := one.find_spec(name, path, target)) is not None), None)

    def _add_hook(self, name: str, spec: Any) -> None:
        """Call the hook after the module is executed. `importlib.util.find_spec` alone executes nothing."""
        loader: Any = getattr(spec, "loader", None)
        if not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            hook = self._wanted.pop(name, None) if module.__name__ == name else None
            if hook is not None:
                guarded(lambda: hook(module))

        loader.exec_module = exec_module  # some loaders have fixed attributes


def _hooks() -> dict[str, Callable[[Any], None]]:
    return {
        "torch.optim.optimizer": _hook_optimizer,
        "torch.utils.data.dataloader": _hook_loader,
        "torch.distributed.distributed_c10d": _hook_groups,
        "torch.serialization": _hook_saving("save"),
        "safetensors.torch": _hook_saving("save_file"),
        "multiprocessing.util": _hook_workers,
        "torch._utils": _hook_wrapped,
        **dict.fromkeys(_FINITE, _hook_finite),
    }


def guarded(function: Callable[[], object]) -> None:
    """Call it; an error in it must not affect the training."""
    try:
        function()
    except Exception:
        if os.environ.get("MGPU_DEBUG"):
            import traceback

            traceback.print_exc()


def peak_bytes() -> int:
    """Return the peak of this process's resident memory. Not ru_maxrss, which includes the process that started it."""
    with open("/proc/self/status", "rb") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith(b"VmHWM:")), 0)


def _hook_optimizer(module: Any) -> None:
    if hasattr(module, "register_optimizer_step_pre_hook"):
        module.register_optimizer_step_pre_hook(RECORDER.steps_now)
    module.register_optimizer_step_post_hook(RECORDER.stepped)


def _hook_finite(module: Any) -> None:
    import _mgpu_finite  # type: ignore[import-not-found]

    _mgpu_finite.hook(RECORDER, module)


def _hook_workers(module: Any) -> None:
    import _mgpu_children

    _mgpu_children.hook(RECORDER, module)


def _hook_wrapped(module: Any) -> None:
    import _mgpu_raised

    _mgpu_raised.hook_wrapped(module)


def _hook_saving(name: str) -> Callable[[Any], None]:
    """Measure how long a function that writes files takes."""

    def hook(module: Any) -> None:
        import functools

        original = getattr(module, name)

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.monotonic()
            try:
                return original(*args, **kwargs)
            finally:
                RECORDER.saved += time.monotonic() - began

        setattr(module, name, timed)

    return hook


def _hook_loader(module: Any) -> None:
    """Measure how long the script waits for each batch."""
    kind = module._BaseDataLoaderIter
    following = kind.__next__

    def timed(self: Any) -> Any:
        began = time.monotonic()
        RECORDER.write(began)
        try:
            return following(self)
        finally:
            RECORDER.batch_at = now = time.monotonic()
            RECORDER.batches += 1
            RECORDER.waited += now - began
            RECORDER.write()

    kind.__next__ = timed


def _hook_groups(module: Any) -> None:
    """Once the process group exists, this is a rank, and can be asked for its collectives."""
    import functools

    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        guarded(lambda: _joined(module.get_rank()))
        return found

    module.init_process_group = init_process_group


def _joined(rank: int) -> None:
    """Count from now on, and start the thread that writes the flight recorder. torch has threads of its own by now."""
    _start(rank)
    if not RECORDER.open_beat():
        return
    import atexit
    import threading

    atexit.register(guarded, RECORDER.write_memory)
    ask = RECORDER.path("ask")
    os.mkfifo(ask, 0o600)
    threading.Thread(target=_answer, args=(ask,), name=THREAD, daemon=True).start()


def _answer(ask: str) -> None:
    """Write the flight recorder, or the stacks, on each request through the FIFO."""
    import threading

    with contextlib.suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name:
        name.write(THREAD)  # so that mgpu finds it
    with contextlib.suppress(OSError):
        pipe = os.open(ask, os.O_RDWR)  # for reading and writing, so that it never ends
        while request := os.read(pipe, 1):
            if request == ASK_STACKS:
                RECORDER.dump_stacks()
                continue
            try:
                text = _flight()
            except Exception as error:
                text = f'{{"error": "{type(error).__name__}"}}'
            with contextlib.suppress(OSError):  # the disk is full; it may not be at the next request
                RECORDER.store("flight", text)


def _flight() -> str:
    """Return the last collectives of this rank as JSON, each with the Python frames that called it."""
    import json
    import pickle

    groups = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    dump = next((getattr(groups, name) for name in _DUMPS if hasattr(groups, name)), None)
    if dump is None:
        return '{"error": "this torch has no flight recorder"}'
    found = pickle.loads(dump(True, True, False))  # collectives, Python stacks, also the completed ones
    entries = found.get("entries", [])[-_MOST_ENTRIES:]
    for entry in entries:
        frames = entry.get("frames", [])[:_MOST_FRAMES]
        entry["frames"] = [[one.get("filename", ""), one.get("line", 0), one.get("name", "")] for one in frames]
    return json.dumps({"entries": entries, "version": found.get("version")}, default=str)
