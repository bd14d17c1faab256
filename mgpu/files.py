"""How is a file written so that nothing is ever lost?

Atomically (a temporary file in the same folder, then a rename), with a backup that never overwrites an older backup. A
project file is never written through a symbolic link that leaves its folder (a cloned repository may contain any
link). A path given by the user may be the user's own link. Links that another user placed in a shared folder such as
/tmp are never followed (the rule of the kernel's fs.protected_symlinks, also applied where that is off).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from mgpu.errors import NOT_READY, REFUSED, MgpuError, reason
from mgpu.file_reading import HANDED_OVER, Unreadable, kind, read

_MOST_BACKED_UP = 64 << 20  # bytes; what mgpu replaces has at most 1 MiB
_NOBODY = 65534  # the owner of files that a user namespace does not map (kernel.overflowuid)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def write(path: Path, text: str, *, mode: int | None = None) -> None:
    """Replace a file of the project, or of mgpu's own folders, in one step.

    A link is followed only to a target in the same folder or below. The mode of the user's old file is kept. A new file
    gets `mode` (None: by the umask). Raises MgpuError, with exit code 5 if it refuses a link or another user's file.
    """
    _put(target_inside(path), text, mode)


def write_named(path: Path, text: str | bytes, *, mode: int | None = None) -> None:
    """Write to a path given by the user (--output, --save). Raises MgpuError.

    Like `write`, but the path may also be the user's own link, a pipe or /dev/stderr.
    """
    refuse_strangers_links(path)
    try:
        resolved = path if str(path).startswith(HANDED_OVER) else path.resolve()
        about = resolved.stat() if resolved.exists() else None
        if about is not None and kind(about.st_mode) not in ("", "a folder"):
            if about.st_uid not in (os.getuid(), 0) and _shared(resolved.parent):
                raise MgpuError(f"cannot write {path}: it belongs to another user", REFUSED)
            resolved.write_bytes(_encoded(text))
            return
    except (OSError, RuntimeError, ValueError) as error:
        raise MgpuError(f"cannot write {path}: {reason(error)}", NOT_READY) from None
    _put(resolved, text, mode)


def target_inside(path: Path) -> Path:
    """Return the path itself, or the target of a link within its folder.

    Raises MgpuError (5) for a link that leaves the folder, and for another user's link in a shared folder.
    """
    refuse_strangers_links(path)
    try:
        if not path.is_symlink():
            return path
        target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    except (OSError, ValueError) as error:
        raise MgpuError(f"cannot write {path}: {reason(error)}", NOT_READY) from None
    if target.is_symlink() or not target.is_relative_to(folder):
        raise MgpuError(
            f"{path} is a symbolic link to {target}, outside its folder: mgpu does not write through it.\n"
            f"  Remove the link, or give the path of the file it points to.",
            REFUSED,
        )
    return target


def refuse_strangers_links(path: Path) -> None:
    """Raise MgpuError (5) if any part of the path is a link that another user placed in a folder open to everyone."""
    me = os.getuid()
    whole = Path(os.path.abspath(path))
    for part in (*reversed(whole.parents), whole):
        try:
            about = part.lstat()
            if not stat.S_ISLNK(about.st_mode) or about.st_uid == me:
                continue
            folder = part.parent.stat()
        except (OSError, ValueError):
            return  # it does not exist: the system's own message will report that
        if folder.st_mode & stat.S_IWOTH and about.st_uid != folder.st_uid:
            raise MgpuError(f"{part} is another user's symbolic link in a shared folder: not followed", REFUSED)


def back_up(path: Path) -> Path:
    """Copy a file to the first free name of `NAME.bak`, `NAME.bak.2`, ...

    Raises MgpuError, also for a link that leaves the folder (the copy would bring a file from elsewhere into the
    project).
    """
    source = target_inside(path)
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak.{number}")
        try:
            handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, source.stat().st_mode & 0o777)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise MgpuError(f"cannot back up {path}: {reason(error)}", NOT_READY) from None
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(read(source, most=_MOST_BACKED_UP))
        except OSError as error:
            copy.unlink(missing_ok=True)
            raise MgpuError(f"cannot back up {path}: {reason(error)}", NOT_READY) from None
        return copy


def _encoded(text: str | bytes) -> bytes:
    return text.encode("utf-8") if isinstance(text, str) else text


def _put(path: Path, text: str | bytes, mode: int | None) -> None:
    """Write a temporary file in the folder of `path`, which is not a link, and rename it."""
    folder = None
    temporary = f".{path.name[:100]}.{os.urandom(4).hex()}.tmp"
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        mode = _mode_of(path, folder, mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_encoded(text))
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    except (OSError, ValueError) as error:
        raise MgpuError(f"cannot write {path}: {reason(error)}", NOT_READY) from None
    finally:
        if folder is not None:
            os.close(folder)


def _mode_of(path: Path, folder: int, mode: int | None) -> int:
    """The mode for the new file. Raises MgpuError if `path` is not a regular file, or is another user's file."""
    try:
        old = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return mode if mode is not None else 0o666 & ~_umask()
    if what := kind(old.st_mode) or ("a symbolic link" if stat.S_ISLNK(old.st_mode) else ""):
        raise MgpuError(f"cannot write {path}: it is {what}", REFUSED if "link" in what else NOT_READY)
    if old.st_uid != os.getuid():
        if os.fstat(folder).st_mode & stat.S_ISVTX:
            raise MgpuError(f"cannot write {path}: it belongs to another user", REFUSED)
        return mode if mode is not None else 0o666 & ~_umask()  # its mode was chosen by another user
    return mode if mode is not None else old.st_mode & 0o777


def _shared(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Folders of mgpu


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can read.

    Raises OSError: Unreadable if it is a link or belongs to another user.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        raise Unreadable(f"{path} is a symbolic link: not followed", errno.ELOOP)
    if about.st_uid != os.getuid():
        raise Unreadable(f"{path} belongs to another user", errno.EPERM)
    if about.st_mode & _OTHERS_WRITE:
        path.chmod(about.st_mode & 0o700)
    return path


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for the last verdict, drafts and the list of runs: $XDG_STATE_HOME/mgpu. Does not create it.

    Without HOME, the home folder comes from the user database. Raises OSError if there is none, or if another user
    owns a parent folder (as with sudo that keeps HOME): then no state is kept.
    """
    home = environ.get("HOME") or _home_of_user_database()
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # by the specification, a relative path is invalid and ignored
        base = f"{home}/.local/state" if home.startswith("/") else ""
    if not base:
        raise Unreadable("no home folder is known: set HOME or XDG_STATE_HOME", errno.ENOENT)
    for folder in (Path(base), *Path(base).parents):
        with contextlib.suppress(FileNotFoundError):
            _refuse_strangers_folder(Path(os.path.realpath(folder)))
    return Path(base) / "mgpu"


def _refuse_strangers_folder(folder: Path) -> None:
    about = folder.stat()
    if about.st_uid not in (os.getuid(), 0, _NOBODY):
        raise Unreadable(f"{folder} belongs to another user: no state is kept", errno.EPERM)
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        raise Unreadable(f"every user can write to {folder}: no state is kept", errno.EPERM)


def _home_of_user_database() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container that was started with a bare number
        return ""
