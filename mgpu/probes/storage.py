"""Where will the run write, where are its caches, and do those file systems respond?

A dead file server blocks every access indefinitely, and signals have no effect. So each folder is read in its own
thread: a hung one loses only its own result. Standard library only; the mount table is an argument, so recorded ones
can be replayed.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# A healthy server responds in milliseconds. Shorter than the child's deadline, so a hung folder can still be reported.
_PATIENCE_S = 3.0
_MODELS_COUNTED = 1000


def probe(
    named: Sequence[str] = (),
    outputs: Sequence[str] = (),
    mounts: str = "/proc/self/mountinfo",
    lustre: Sequence[str] = ("/sys/fs/lustre/health_check", "/proc/fs/lustre/health_check"),
    patience_s: float = _PATIENCE_S,
) -> Iterator[dict[str, Any]]:
    """Yield the fact storage.

    `named`: more folders, specified by the user. `outputs`: folders that the script writes to, from its arguments.
    """
    folders = [*_usual(), *(("named", path) for path in named), *(("output", path) for path in outputs)]
    yield {"asking": ", ".join(dict.fromkeys(path for _, path in folders))}
    hub = next(path for role, path in folders if role == "hf_cache")
    questions: list[Callable[[], Any]] = [
        *(lambda role=role, path=path: _folder(role, path, mounts) for role, path in folders),
        lambda: _models(hub),
        lambda: _first_line(lustre),
    ]
    *answers, models, health = _ask(questions, patience_s)
    found = [
        answer
        or {"role": role, "path": path, "exists": None, "answered": False, "error": f"no answer in {patience_s:g} s"}
        for (role, path), answer in zip(folders, answers, strict=True)
    ]
    yield {"storage": {"folders": found, "hf_cache_models": models, "lustre_health": health}}


def _ask(questions: Sequence[Callable[[], Any]], patience_s: float) -> list[Any]:
    """Run functions in parallel and return their results, in order; None for one that raised or timed out."""
    answers: list[Any] = [None] * len(questions)
    answered = [_thread.allocate_lock() for _ in questions]

    def ask(place: int) -> None:
        try:
            answers[place] = questions[place]()
        except Exception:  # a folder that cannot be read must not affect the others
            answers[place] = None
        finally:
            answered[place].release()

    for place, lock in enumerate(answered):
        lock.acquire()
        _thread.start_new_thread(ask, (place,))
    end = time.monotonic() + patience_s
    for lock in answered:
        lock.acquire(timeout=max(0.0, end - time.monotonic()))
    return list(answers)


def _usual() -> list[tuple[str, str]]:
    """Return role and path of the folders every run uses, by the rules of the programs that use them."""
    env = os.environ
    home = os.path.expanduser("~")
    cache = env.get("XDG_CACHE_HOME") or f"{home}/.cache"
    temporary = next((env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)), "/tmp")
    hf_home = env.get("HF_HOME") or f"{cache}/huggingface"
    users = (env.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME"))  # in the order of getpass.getuser()
    user = next((name for name in users if name), os.path.basename(home))
    paths = [
        ("current", _current()),
        ("temporary", temporary),
        ("home", home),
        ("hf_cache", env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or f"{hf_home}/hub"),
        ("torch_cache", env.get("TORCH_HOME") or f"{cache}/torch"),
        ("triton_cache", env.get("TRITON_CACHE_DIR") or f"{env.get('TRITON_HOME') or home}/.triton/cache"),
        (
            "inductor_cache",
            env.get("TORCHINDUCTOR_CACHE_DIR") or f"{temporary}/torchinductor_{user}",
        ),
        ("extensions", env.get("TORCH_EXTENSIONS_DIR") or f"{cache}/torch_extensions"),
    ]
    return [(role, os.path.expanduser(path)) for role, path in paths]


def _current() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed, or its file system disappeared
        return os.environ.get("PWD") or "."


def _folder(role: str, path: str, mounts: str) -> dict[str, Any]:
    """Return one folder. If it does not exist, the values are those of the nearest existing parent."""
    found: dict[str, Any] = {"role": role, "path": path, "exists": False, "answered": True}
    start = time.perf_counter()
    try:
        found["exists"] = os.path.isdir(path)
        here = os.path.realpath(path)
        while not os.path.isdir(here) and here != os.path.dirname(here):
            here = os.path.dirname(here)
        space = os.statvfs(here)
        read_only = bool(space.f_flag & os.ST_RDONLY)
        found["read_only"] = read_only
        found["writable"] = not read_only and os.access(here, os.W_OK | os.X_OK)
        if space.f_blocks:  # some pseudo and FUSE file systems report zero
            found["total_bytes"] = space.f_frsize * space.f_blocks
            found["free_bytes"] = space.f_frsize * space.f_bavail
        if space.f_files:
            found["free_inodes"] = space.f_favail
        found["filesystem"], found["mount"] = _mount(here, mounts)
    except OSError as error:
        found["error"] = error.strerror or str(error)
    found["stat_s"] = round(time.perf_counter() - start, 4)
    return found


def _mount(path: str, mounts: str) -> tuple[str | None, str | None]:
    """Return type and mount point of a resolved path: the longest match, and the last of equal ones."""
    best: tuple[str | None, str | None] = (None, None)
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                kind, place = mount_of(line)
                inside = path == place or path.startswith(place.rstrip("/") + "/")
                if kind and inside and len(place) >= len(best[1] or ""):
                    best = (kind, place)
    except OSError:
        return None, None
    return best[0], best[1].encode("utf-8", "replace").decode("utf-8") if best[1] else None


def mount_of(line: str) -> tuple[str, str]:
    """Return type and mount point in a line of the mount table; empty if it is not one."""
    # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    return (kind[0], _unescape(fields[4])) if len(fields) >= 5 and kind else ("", "")


def _unescape(text: str) -> str:
    r"""Decode the kernel's \040 \011 \012 \134 for blank, tab, newline and backslash."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _models(hub: str) -> int:
    """Count models and data sets in the hub's cache."""
    count = 0
    try:
        with os.scandir(hub) as entries:
            for entry in entries:
                count += entry.name.startswith(("models--", "datasets--"))
                if count >= _MODELS_COUNTED:
                    break
    except FileNotFoundError:
        return 0
    return count


def _first_line(paths: Sequence[str]) -> str | None:
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.readline().strip()[:80]
        except OSError:
            continue
    return None
