"""What may `mgpu doctor --fix` mend by itself?

Only what belongs to the user and can be undone, or has no owner any more: a default config is renamed, files of dead
processes in /dev/shm and locks nobody holds are removed, variables are written to a file that the user may source.
Nothing needs another user's rights. Each repair looks again right before it acts, and says what it did.
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
from mgpu.planning.requirements import BATON_TORCH, numbers
from mgpu.quantities import gib
from mgpu.snapshot import LeftFile, Leftovers, Snapshot
from mgpu.text import counted
from mgpu.version import __version__

ENV_FILE = "mgpu.env"
SHM = Path("/dev/shm")

_MOST_ENV = 64 << 10  # bytes of a file that mgpu wrote
# A build of a large extension (flash-attn) takes tens of minutes; a lock whose folder nobody wrote to for this long is
# one that a killed build left.
_QUIET_S = 3600.0
# A segment may lie in a queue between its maker and its user; what is younger is nobody's leftover yet.
_SETTLED_S = 60.0
_COMPILERS = frozenset({"ninja", "nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "c++", "g++", "clang", "clang++"})

# What a run's environment may be given; loader and interpreter variables never.
_MAY_SET = ("NCCL_", "TORCH_", "PYTORCH_", "GLOO_", "CUDA_", "OMP_", "MKL_", "HF_", "ACCELERATE_", "UCX_", "FI_")
_NEVER = ("LD_", "PYTHON")
_EXPORT = re.compile(r"""export ([A-Z][A-Z0-9_]*)=([\w.,:/=+@%^~-]*|'[^']*'|"[^"$`\\]*")""")
_UNSET = re.compile(r"unset ([A-Za-z_][A-Za-z0-9_]*(?: [A-Za-z_][A-Za-z0-9_]*)*)")


@dataclass(frozen=True)
class Repair:
    """One thing that could be mended: what it would do, the same as a command, and the deed itself."""

    id: str
    title: str
    command: str
    act: Callable[[], str]  # does it and says what was done; raises MgpuError where it is not safe any more


@dataclass(frozen=True)
class Result:
    """What became of a repair."""

    repair: Repair
    done: bool
    text: str


def offered(
    snapshot: Snapshot,
    outcomes: Sequence[Outcome],
    look_again: Callable[[], Leftovers | None],
    *,
    folder: Path | None = None,
    shm: Path = SHM,
) -> list[Repair]:
    """What can be mended here. `look_again` asks the machine anew what is left over."""
    found = [
        _default_config(snapshot),
        _shm_files(snapshot, look_again, shm),
        _locks(snapshot, look_again),
        _environment(outcomes, folder or Path.cwd()),
    ]
    return [repair for repair in found if repair is not None]


def offer(repairs: Sequence[Repair], say: Callable[[str], None], *, yes: bool, dry_run: bool) -> tuple[Result, ...]:
    """Ask about each, or do all (`yes`), or none (`dry_run`); what became of them."""
    results = []
    if not repairs:
        say("Nothing here can be mended by mgpu itself.")
    for one in repairs:
        say(f"{'Would' if dry_run else 'Could'} {one.title}:\n  {one.command}")
        if dry_run:
            results.append(Result(one, False, "not done: --dry-run"))
        elif not yes and not _agreed():
            results.append(Result(one, False, "not done: the answer was no"))
        else:
            results.append(perform(one))
            say(f"  {'done' if results[-1].done else 'NOT done'}: {results[-1].text}")
    return tuple(results)


def _agreed() -> bool:
    sys.stdout.write("  Do it? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def perform(repair: Repair) -> Result:
    """Do it; one that is not safe any more, or fails, is told and not done."""
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
        f"rename {path} to {path.name}.bak, so that no launch reads it unasked",
        shell("mv -n {:path} {:path}", name, f"{name}.bak") or "rename it",
        lambda: _set_aside(path),
    )


def _set_aside(path: Path) -> str:
    """Rename to the first free NAME.bak, without ever replacing a file."""
    _mine(path)
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


def _mine(path: Path) -> os.stat_result:
    """The file's status. Raises MgpuError unless it is a plain file of this user."""
    try:
        seen = path.lstat()
    except OSError as error:
        raise MgpuError(f"{path}: {reason(error)}") from None
    if not stat.S_ISREG(seen.st_mode):
        raise MgpuError(f"{path} is not a plain file: left alone")
    if seen.st_uid != os.getuid():
        raise MgpuError(f"{path} belongs to another user: left alone")
    return seen


# ---- files of dead processes in /dev/shm


def _shm_files(snapshot: Snapshot, look_again: Callable[[], Leftovers | None], shm: Path) -> Repair | None:
    dead = [file for file in _left(snapshot, "shm") if _is_dead(file) and Path(file.path).parent == shm]
    if not snapshot.leftovers or not snapshot.leftovers.sees_all_processes:
        return None  # the owner may be in another container, or hidden: it only looks dead from here
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


def _left(snapshot: Snapshot, kind: str) -> list[LeftFile]:
    return [file for file in snapshot.leftovers.files if file.kind == kind] if snapshot.leftovers else []


def _is_mine(path: Path) -> bool:
    try:
        _mine(path)
    except MgpuError:
        return False
    return True


def _remove_shm(paths: Sequence[Path], look_again: Callable[[], Leftovers | None]) -> str:
    """Remove those that are still there, still mine, still without an owner, and open in no process."""
    now = look_again()
    dead = {file.path for file in now.files if _is_dead(file)} if now and now.sees_all_processes else set()
    used = _in_use({path.name for path in paths})
    gone: list[str] = []
    kept: list[str] = []
    for path in paths:
        if str(path) not in dead:
            kept.append(f"{path.name} (not known to be ownerless any more)")
        elif path.name in used:
            kept.append(f"{path.name} (in use)")
        else:
            kept += _unlinked(path, gone)
    return _removed(gone, kept)


def _unlinked(path: Path, gone: list[str]) -> list[str]:
    """Remove one file of mine; why not, where it is not to be."""
    try:
        seen = _mine(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            now = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            if (now.st_ino, now.st_dev) != (seen.st_ino, seen.st_dev):
                return [f"{path.name} (changed meanwhile)"]
            os.unlink(path.name, dir_fd=folder)
        finally:
            os.close(folder)
    except MgpuError as error:
        return [error.message]
    except OSError as error:
        return [f"{path.name} ({reason(error)})"]
    gone.append(path.name)
    return []


def _removed(gone: Sequence[str], kept: Sequence[str]) -> str:
    if not gone:
        raise MgpuError(f"nothing removed: {'; '.join(kept)}")
    said = f"removed {', '.join(gone)}"
    return f"{said}; left alone: {'; '.join(kept)}" if kept else said


def _in_use(names: set[str], proc: Path = Path("/proc")) -> set[str]:
    """Which of these names a process that may be looked at has open or mapped."""
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


# ---- locks of builds that were killed


def _locks(snapshot: Snapshot, look_again: Callable[[], Leftovers | None]) -> Repair | None:
    if not snapshot.pytorch or not snapshot.pytorch.version or numbers(snapshot.pytorch.version)[:2] > BATON_TORCH:
        return None  # newer versions leave the file where it is, and hold it by a lock of the kernel
    old = [
        Path(file.path)
        for file in _left(snapshot, "lock")
        if not file.owner_alive and file.age_s >= _QUIET_S and _is_mine(Path(file.path))
    ]
    if not old:
        return None
    return Repair(
        "build_locks",
        f"remove {counted(len(old), 'lock')} that a killed build left: {', '.join(map(str, old))}",
        shell("rm {:path}", [str(path) for path in old]) or "remove them",
        lambda: _remove_locks(old, look_again),
    )


def _remove_locks(paths: Sequence[Path], look_again: Callable[[], Leftovers | None]) -> str:
    if compiler := _compiling():
        raise MgpuError(f"a build is running ({compiler}): locks left alone")
    now = look_again()
    still = {file.path for file in now.files if file.kind == "lock" and not file.owner_alive} if now else set()
    used = _in_use({os.path.realpath(path) for path in paths})
    gone: list[str] = []
    kept: list[str] = []
    for path in paths:
        if str(path) not in still or os.path.realpath(path) in used:
            kept.append(f"{path} (in use, or gone)")
        elif _newest(path.parent) > time.time() - _QUIET_S:
            kept.append(f"{path} (its folder was written to within the hour)")
        else:
            kept += _unlinked(path, gone)
    return _removed(gone, kept)


def _newest(folder: Path) -> float:
    """When anything in the folder was written last; now, where that cannot be told."""
    try:
        times = [folder.lstat().st_mtime]
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                times.append(path.lstat().st_mtime)
    except OSError:
        return time.time()
    return max(times)


def _compiling(proc: Path = Path("/proc")) -> str | None:
    """A compiler of this user that runs now."""
    for process in _processes(proc):
        with contextlib.suppress(OSError):
            name = (process / "comm").read_text("utf-8", "replace").strip()
            if name in _COMPILERS and process.stat().st_uid == os.getuid():
                return f"{name}, pid {process.name}"
    return None


# ---- variables


def environment_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """`export` and `unset` lines of the fixes, each under the problem it mends. What two problems want differently is
    taken from the graver."""
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
    """The variables a line sets or removes; none where it is anything but that, or not ours to touch."""
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
        f"# Written by mgpu {__version__} doctor --fix. No program can change the shell it was started from:",
        f"#     source {ENV_FILE}",
    ]
    text = "\n".join([*head, *lines]) + "\n"
    return Repair(
        "environment",
        f"write {counted(number, 'line')} for the environment to {path}, for you to source",
        "; ".join(line for line in lines if line.startswith(("export ", "unset "))),
        lambda: _write_env(path, text),
    )


def _text_of(path: Path) -> str | None:
    """The text of a file; None if it is too large to be one that mgpu wrote, or cannot be read."""
    try:
        return file_reading.read(path, most=_MOST_ENV).decode("utf-8", "replace")
    except OSError:
        return None


def _write_env(path: Path, text: str) -> str:
    kept = ""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise MgpuError(f"{path} is not a plain file: left alone")
    if path.exists() and _text_of(path) != text:
        kept = f"; the older one is {files.back_up(path).name}"
    files.write(path, text)
    return f"written{kept}. This shell is as it was; take them over:  source {ENV_FILE}"
