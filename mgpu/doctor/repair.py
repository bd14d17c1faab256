"""What can `mgpu doctor --fix` repair?

Only things that belong to the user and can be undone, or that no process owns: it renames a default config, removes
files of dead processes in /dev/shm and unused locks, and writes variables to a file that the user can source. Nothing
needs another user's permissions. Each repair checks again right before it acts, and reports what it did.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpu import file_reading, files
from mgpu.command_line import shell
from mgpu.engine import Outcome
from mgpu.errors import MgpuError, reason
from mgpu.planning.requirements import BATON_TORCH, version_numbers
from mgpu.quantities import gib
from mgpu.snapshot import LeftFile, Leftovers, Snapshot
from mgpu.text import counted
from mgpu.version import __version__

ENV_FILE = "mgpu.env"
SHM = Path("/dev/shm")

_MOST_ENV = 64 << 10  # bytes of a file that mgpu wrote
# A large build (flash-attn) takes tens of minutes. A lock whose folder has not changed for this long is a leftover.
_QUIET_S = 3600.0
# A newer segment may still be in a queue between the process that made it and the one that will use it.
_SETTLED_S = 60.0
_COMPILERS = frozenset({"ninja", "nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "c++", "g++", "clang", "clang++"})

# Variables that may be set for a run; never those of the loader or the interpreter.
_MAY_SET = ("NCCL_", "TORCH_", "PYTORCH_", "GLOO_", "CUDA_", "OMP_", "MKL_", "HF_", "ACCELERATE_", "UCX_", "FI_")
_NEVER = ("LD_", "PYTHON")
_EXPORT = re.compile(r"""export ([A-Z][A-Z0-9_]*)=([\w.,:/=+@%^~-]*|'[^']*'|"[^"$`\\]*")""")
_UNSET = re.compile(r"unset ([A-Za-z_][A-Za-z0-9_]*(?: [A-Za-z_][A-Za-z0-9_]*)*)")


@dataclass(frozen=True)
class Repair:
    """One possible repair: its description, the equivalent command, and the function that performs it."""

    id: str
    title: str
    command: str
    act: Callable[[], str]  # performs it and returns what was done; raises MgpuError if it is no longer safe


@dataclass(frozen=True)
class Result:
    """The result of a repair."""

    repair: Repair
    done: bool
    text: str


def find_repairs(
    snapshot: Snapshot,
    outcomes: Sequence[Outcome],
    look_again: Callable[[], Leftovers | None],
    *,
    folder: Path | None = None,
    shm: Path = SHM,
) -> list[Repair]:
    """Return the possible repairs. `look_again` reads the leftovers of this machine again."""
    found = [
        _default_config(snapshot),
        _shm_files(snapshot, look_again, shm),
        _locks(snapshot, look_again),
        _environment(outcomes, folder or Path.cwd()),
    ]
    return [repair for repair in found if repair is not None]


def offer(repairs: Sequence[Repair], say: Callable[[str], None], *, yes: bool, dry_run: bool) -> tuple[Result, ...]:
    """Ask about each repair, or perform all (`yes`) or none (`dry_run`), and return the results."""
    results = []
    if not repairs:
        say("Nothing to fix automatically.")
    for one in repairs:
        say(f"{'Would' if dry_run else 'Can'} {one.title}:\n  {one.command}")
        if dry_run:
            results.append(Result(one, False, "not done: --dry-run"))
        elif not yes and not _confirm():
            results.append(Result(one, False, "not done: declined"))
        else:
            results.append(perform(one))
            say(f"  {'Done' if results[-1].done else 'NOT done'}: {results[-1].text}")
    return tuple(results)


def _confirm() -> bool:
    sys.stdout.write("  Apply? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def perform(repair: Repair) -> Result:
    """Perform a repair. The result has the reason if it failed or is no longer safe."""
    try:
        return Result(repair, True, repair.act())
    except MgpuError as error:
        return Result(repair, False, error.message)
    except OSError as error:
        return Result(repair, False, reason(error))


# ---- a default config that every `accelerate launch` without --config_file reads


def _default_config(snapshot: Snapshot) -> Repair | None:
    name = snapshot.python.accelerate_default_config if snapshot.python else None
    if not name or (snapshot.config and Path(snapshot.config.path).resolve() == Path(name).resolve()):
        return None
    path = Path(name)
    return Repair(
        "default_config",
        f"rename {path} to {path.name}.bak, so that no launch picks it up by accident",
        shell("mv -n {:path} {:path}", name, f"{name}.bak") or "rename it",
        lambda: _set_aside(path),
    )


def _set_aside(path: Path) -> str:
    """Rename to the first free NAME.bak, without ever replacing a file."""
    _own_status(path)
    number = 1
    while True:
        target = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak.{number}")
        try:
            os.link(path, target, follow_symlinks=False)
        except FileExistsError:
            number += 1
            continue
        path.unlink()
        return f"renamed to {target}"


def _own_status(path: Path) -> os.stat_result:
    """The file's status. Raises MgpuError unless it is a regular file of this user."""
    try:
        seen = path.lstat()
    except OSError as error:
        raise MgpuError(f"{path}: {reason(error)}") from None
    if not stat.S_ISREG(seen.st_mode):
        raise MgpuError(f"{path} is not a regular file: skipped")
    if seen.st_uid != os.getuid():
        raise MgpuError(f"{path} belongs to another user: skipped")
    return seen


# ---- files of dead processes in /dev/shm


def _shm_files(snapshot: Snapshot, look_again: Callable[[], Leftovers | None], shm: Path) -> Repair | None:
    dead = [file for file in _leftovers(snapshot, "shm") if _is_dead(file) and Path(file.path).parent == shm]
    if not snapshot.leftovers or not snapshot.leftovers.sees_all_processes:
        return None  # the owner may be hidden or in another container, and only seem dead
    mine = [file for file in dead if _is_mine(Path(file.path))]
    if not mine:
        return None
    size = gib(sum(file.size_bytes for file in mine))
    return Repair(
        "shm_files",
        f"remove {counted(len(mine), 'file')} of dead processes from {shm} ({size})",
        shell("rm {:path}", [file.path for file in mine]) or "remove them",
        lambda: _remove_shm([Path(file.path) for file in mine], look_again),
    )


def _is_dead(file: LeftFile) -> bool:
    return file.owner_alive is False and file.age_s >= _SETTLED_S


def _leftovers(snapshot: Snapshot, kind: str) -> list[LeftFile]:
    return [file for file in snapshot.leftovers.files if file.kind == kind] if snapshot.leftovers else []


def _is_mine(path: Path) -> bool:
    try:
        _own_status(path)
    except MgpuError:
        return False
    return True


def _remove_shm(paths: Sequence[Path], look_again: Callable[[], Leftovers | None]) -> str:
    """Remove the files that still exist, are this user's, have no live owner and are open in no process."""
    now = look_again()
    dead = {file.path for file in now.files if _is_dead(file)} if now and now.sees_all_processes else set()
    used = _in_use({path.name for path in paths})
    gone: list[str] = []
    kept: list[str] = []
    for path in paths:
        if str(path) not in dead:
            kept.append(f"{path.name} (may have an owner now)")
        elif path.name in used:
            kept.append(f"{path.name} (in use)")
        else:
            kept += _unlink(path, gone)
    return _removal_text(gone, kept)


def _unlink(path: Path, gone: list[str]) -> list[str]:
    """Remove one file of this user and add it to `gone`; return the reason if it is kept."""
    try:
        seen = _own_status(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            now = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            if (now.st_ino, now.st_dev) != (seen.st_ino, seen.st_dev):
                return [f"{path.name} (replaced in the meantime)"]
            os.unlink(path.name, dir_fd=folder)
        finally:
            os.close(folder)
    except MgpuError as error:
        return [error.message]
    except OSError as error:
        return [f"{path.name} ({reason(error)})"]
    gone.append(path.name)
    return []


def _removal_text(gone: Sequence[str], kept: Sequence[str]) -> str:
    if not gone:
        raise MgpuError(f"nothing removed: {'; '.join(kept)}")
    text = f"removed {', '.join(gone)}"
    return f"{text}; skipped: {'; '.join(kept)}" if kept else text


def _in_use(names: set[str], proc: Path = Path("/proc")) -> set[str]:
    """The names that a process has open or mapped, as far as this user can read its entry in /proc."""
    used = set()
    for process in _processes(proc):
        seen = []
        with contextlib.suppress(OSError):
            seen.append((process / "maps").read_text("utf-8", "replace"))
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    seen.append(os.readlink(handle))
        text = "\n".join(seen)
        # In maps the kernel writes a newline as \\012.
        used |= {name for name in names if name in text or name.replace("\n", "\\012") in text}
    return used


def _processes(proc: Path) -> Iterator[Path]:
    return (path for path in proc.iterdir() if path.name.isdecimal())


# ---- locks of killed builds


def _locks(snapshot: Snapshot, look_again: Callable[[], Leftovers | None]) -> Repair | None:
    if (
        not snapshot.pytorch
        or not snapshot.pytorch.version
        or version_numbers(snapshot.pytorch.version)[:2] > BATON_TORCH
    ):
        return None  # newer versions keep the file, and use a kernel lock on it
    old = [
        Path(file.path)
        for file in _leftovers(snapshot, "lock")
        if not file.owner_alive and file.age_s >= _QUIET_S and _is_mine(Path(file.path))
    ]
    if not old:
        return None
    return Repair(
        "build_locks",
        f"remove {counted(len(old), 'lock')} of a killed build: {', '.join(map(str, old))}",
        shell("rm {:path}", [str(path) for path in old]) or "remove them",
        lambda: _remove_locks(old, look_again),
    )


def _remove_locks(paths: Sequence[Path], look_again: Callable[[], Leftovers | None]) -> str:
    if compiler := _compiling():
        raise MgpuError(f"a build is running ({compiler}): locks kept")
    now = look_again()
    still = {file.path for file in now.files if file.kind == "lock" and not file.owner_alive} if now else set()
    used = _in_use({os.path.realpath(path) for path in paths})
    gone: list[str] = []
    kept: list[str] = []
    for path in paths:
        if str(path) not in still or os.path.realpath(path) in used:
            kept.append(f"{path} (in use, or already removed)")
        elif _newest(path.parent) > time.time() - _QUIET_S:
            kept.append(f"{path} (its folder changed within the last hour)")
        else:
            kept += _unlink(path, gone)
    return _removal_text(gone, kept)


def _newest(folder: Path) -> float:
    """The time of the latest change in the folder; the current time if it cannot be read."""
    try:
        times = [folder.lstat().st_mtime]
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                times.append(path.lstat().st_mtime)
    except OSError:
        return time.time()
    return max(times)


def _compiling(proc: Path = Path("/proc")) -> str | None:
    """A running compiler of this user, with its pid."""
    for process in _processes(proc):
        with contextlib.suppress(OSError):
            name = (process / "comm").read_text("utf-8", "replace").strip()
            if name in _COMPILERS and process.stat().st_uid == os.getuid():
                return f"{name}, pid {process.name}"
    return None


# ---- variables


def environment_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """The `export` and `unset` lines of the fixes, each below the problem it fixes.

    If two problems set the same variable, the more severe one decides.
    """
    from mgpu import messages
    from mgpu.report import findings

    lines: list[str] = []
    decided: set[str] = set()
    for outcome in findings.in_order(tuple(outcomes)):
        problem = outcome.problem
        fixes = [f for f in problem.fixes if f.who == "you" and f.kind == "fix"] if problem else []
        if not problem or not fixes:
            continue
        chosen = []
        for command in fixes[0].commands:
            names = _names(command)
            if names and not decided & names:
                decided |= names
                chosen.append(command)
        if chosen:
            lines += ["", f"# {outcome.check.id}: {messages.clean(problem.title)}", *chosen]
    return lines


def _names(command: str) -> set[str]:
    """The variables a line sets or removes; none if it is another kind of line, or a variable mgpu must not change."""
    if (found := _EXPORT.fullmatch(command)) and "..." not in found[2]:
        return {found[1]} if found[1].startswith(_MAY_SET) else set()
    if found := _UNSET.fullmatch(command):
        names = set(found[1].split())
        return set() if any(name.startswith(_NEVER) or name in ("PATH", "HOME") for name in names) else names
    return set()


def _environment(outcomes: Sequence[Outcome], folder: Path) -> Repair | None:
    lines = environment_lines(outcomes)
    if not lines:
        return None
    path = folder / ENV_FILE
    number = sum(line.startswith(("export ", "unset ")) for line in lines)
    head = [
        f"# Written by mgpu {__version__} doctor --fix. Load it into your shell:",
        f"#     source {ENV_FILE}",
    ]
    text = "\n".join([*head, *lines]) + "\n"
    return Repair(
        "environment",
        f"write {counted(number, 'line')} with environment variables to {path}, for you to source",
        "; ".join(line for line in lines if line.startswith(("export ", "unset "))),
        lambda: _write_env(path, text),
    )


def _text_of(path: Path) -> str | None:
    """The text of a file; None if it cannot be read, or is too large to be mgpu's."""
    try:
        return file_reading.read(path, most=_MOST_ENV).decode("utf-8", "replace")
    except OSError:
        return None


def _write_env(path: Path, text: str) -> str:
    kept = ""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise MgpuError(f"{path} is not a regular file: skipped")
    if path.exists() and _text_of(path) != text:
        kept = f" (backup: {files.back_up(path).name})"
    files.write(path, text)
    return f"written{kept}. To load it into this shell:  source {ENV_FILE}"
