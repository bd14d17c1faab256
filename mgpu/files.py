"""How is a file written so that nothing is ever lost?

Atomically (a temporary file beside it, then a rename), with a backup of what was there that never overwrites an older
backup. Folders of ours are 0700 and files 0600 unless they are meant for the project.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mgpu.errors import NOT_READY, MgpuError, reason


def write(path: Path, text: str, *, mode: int | None = None) -> None:
    """Replace a file's text in one step, following a symbolic link to its target. The old file's mode is kept; a new
    file gets `mode` (None: as the umask says). Raises MgpuError."""
    path = path.resolve() if path.is_symlink() else path
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/stderr, a pipe: written, never replaced
            path.write_text(text, "utf-8")
            return
        mode = path.stat().st_mode & 0o777 if mode is None and path.exists() else mode
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise MgpuError(f"cannot write {path}: {reason(error)}", NOT_READY) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode if mode is not None else 0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError):
            raise MgpuError(f"cannot write {path}: {reason(error)}", NOT_READY) from None
        raise


def back_up(path: Path) -> Path:
    """Copy a file to `NAME.bak`, or `NAME.bak.2` … : the first name that is free. Raises MgpuError."""
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak.{number}")
        try:
            handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, path.stat().st_mode & 0o777)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise MgpuError(f"cannot back up {path}: {reason(error)}", NOT_READY) from None
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(path.read_bytes())
        except OSError as error:
            copy.unlink(missing_ok=True)
            raise MgpuError(f"cannot back up {path}: {reason(error)}", NOT_READY) from None
        return copy


def private_folder(path: Path) -> Path:
    """Make a folder that only this user reads. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where mgpu remembers its last verdict: $XDG_STATE_HOME/mgpu."""
    home = environ.get("XDG_STATE_HOME") or (f"{environ['HOME']}/.local/state" if environ.get("HOME") else "")
    return Path(home or tempfile.gettempdir()) / ("mgpu" if home else f"mgpu-{os.getuid()}")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
