"""Put back the user's files that a rehearsed script has overwritten, moved or deleted.

The ranks kept them in `kept` in the run's folder, before they changed them (_mgpu_kept_files.py). The guard does this
too, if mgpu itself is killed. It can be repeated: a file that was put back has no copy any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from mgpu import file_reading
from mgpu.errors import reason
from mgpu.recorder.inject._mgpu_kept_files import FOLDER, INDEX
from mgpu.secrets_masking import masked
from mgpu.snapshot import KeptFile
from mgpu.text import clean

_MOST_BYTES = 1 << 30  # of the index
_LONGEST_TEXT = 1000


def put_back(run: Path) -> tuple[KeptFile, ...]:
    """Put each file back, and return them. Files that are as they were are left out."""
    folder = run / FOLDER
    try:
        lines = file_reading.read_part(folder / INDEX, most=_MOST_BYTES, start=0).splitlines()
    except OSError:
        return ()
    found = [one for line in lines if (one := _file(folder, line)) is not None]
    if all(one.why is None or one.refused for one in found):
        shutil.rmtree(folder, ignore_errors=True)
    return tuple(found)


def _file(folder: Path, line: bytes) -> KeptFile | None:
    """Put back the file of a line of the index; None if there is nothing to put back."""
    try:
        record = json.loads(line)
        path, at = str(record["path"]), record.get("line")
        known = KeptFile(_shown(path), _shown(at) if isinstance(at, str) else None)
        if "refused" in record:
            size = record.get("size")
            size = size if isinstance(size, int) else None
            return KeptFile(known.path, known.line, why=_shown(str(record["refused"])), refused=True, size_bytes=size)
        link = str(record["link"]) if "link" in record else None
        if link is None and "copy" not in record:
            return None  # there was no file
        copy = folder / Path(str(record.get("copy"))).name
    except (ValueError, KeyError, TypeError):
        return None
    try:
        if not (_put_link_back(link, path) if link is not None else _put_file_back(copy, path, record)):
            return None
    except (OSError, LookupError, TypeError, ValueError) as error:
        where = f"a link to {link}" if link is not None else str(copy)
        return KeptFile(known.path, known.line, why=_shown(reason(error)), copy=_shown(where))
    return KeptFile(known.path, known.line, late=record.get("late") is True)


def _shown(text: str) -> str:
    return masked(clean(text[:_LONGEST_TEXT]))


def _put_link_back(target: str, path: str) -> bool:
    with contextlib.suppress(OSError):
        if os.readlink(path) == target:
            return False
    beside = _beside(path)
    os.symlink(target, beside)
    os.replace(beside, path)
    return True


def _put_file_back(copy: Path, path: str, record: dict[str, Any]) -> bool:
    """Put a file back, with its mode and times. Return whether it had been changed. Raises OSError."""
    if not copy.exists():
        return False
    now = _stat(path)
    if now is not None and [now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns] == record["of"]:
        copy.unlink()
        return False
    same = now is not None and [now.st_dev, now.st_ino] == record["of"][:2]
    if same and record["links"] > 1:  # it has other names, which have this content, too
        with copy.open("rb") as source, open(path, "r+b") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.truncate()
        shutil.copystat(copy, path)
        copy.unlink()
        return True
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.replace(copy, path)
    except OSError:  # on another file system
        beside = _beside(path)
        try:
            shutil.copy2(copy, beside)
            os.replace(beside, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
        copy.unlink()
    return True


def _stat(path: str) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _beside(path: str) -> str:
    """Return the name of a new file in the same folder."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return f"{path}.mgpu-{os.getpid()}"
