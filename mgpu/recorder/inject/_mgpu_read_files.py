"""Which file did a failed line read, and where in it is what could not be read?

Only regular files that the failed line names, that a call in it has opened, or whose content is what the exception
holds. Runs with any Python from 3.8 on.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, TracebackType

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject import _mgpu_loops, _mgpu_values
    from mgpu.recorder.inject._mgpu_counts import stored
    from mgpu.recorder.inject._mgpu_own_code import is_of_python, is_users
else:
    import _mgpu_loops
    import _mgpu_values
    from _mgpu_counts import stored
    from _mgpu_own_code import is_of_python, is_users

_MOST_BYTES = 64 << 20  # of a file that is searched
_MOST_FRAMES, _MOST_FILES, _MOST_NAMES, _MOST_ROWS = 3, 4, 200, 1000
_LONGEST = 1024  # characters of a path
_CODE = (".py", ".pyc", ".so")
# Exceptions of those that read a format, and of what others raise then, the beginnings of the messages.
_FORMATS = re.compile(
    r"(?:JSONDecode|UnicodeDecode|Unpickling|Safetensor|UnidentifiedImage|LZMA|Scanner|Parser|Composer|Constructor|"
    r"Reader|Read|EmptyData|TOMLDecode|EOF)Error|Bad(?:Gzip|Zip)File|ArrowInvalid"
)
_MESSAGES = re.compile(
    r"PytorchStreamReader failed|unexpected EOF, expected|Invalid magic number; corrupt|storage has wrong |"
    r"EOF: reading |cannot reshape array of size |Cannot load file containing pickled|Not a gzipped file|"
    r"image file is truncated|broken data stream when reading image|the number of columns changed from|"
    r"This file contains pickled|Failed to read all data for array|could not convert string|"
    r"magic string is not correct|buffer size must be a multiple"
)
_OF_ROWS = (ValueError, KeyError, IndexError, TypeError, AssertionError)  # in a loop over the lines of a file
_STARTS = (
    (b"version https://git-lfs", "a Git LFS pointer"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x93NUMPY", "a NumPy file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    *((bytes((0x80, protocol)), "a pickle") for protocol in range(2, 6)),
)
_HTML = re.compile(rb"\s*<(?:!doctype html|html|head)", re.I)


def of_failure(trace: TracebackType | None, error: BaseException) -> tuple[str, int, dict[str, Any]] | None:
    """Return the user's innermost file and line, and what was read there; None if that is not certain.

    "path", "size", "form" (by its first bytes), "line" of it (None: not known), and "fault": "invalid" if the file
    could not be read there; "invalid_row" or "blank" if the line was read by itself, and could not; "" if it was.
    """
    own, inner = _frames(trace)
    if not own:
        return None
    found = None
    if _is_of_format(error):
        named = _Files([*_named(own[0]), *(path for frame in inner for path in _locals(frame.tb_frame))])
        around = _Files([path for one in own for path in _locals(one.tb_frame)])
        found = _by_content(error, [*named.paths, *around.paths])
        if found is None and len(named.paths) == 1 and _may_be_any(error, named.paths[0]):
            found = _facts(named.paths[0])
    of_python = all(is_of_python(one.tb_frame.f_code.co_filename) for one in inner)  # no model is in the loop
    if found is None and of_python and (isinstance(error, _OF_ROWS) or type(error).__name__ == "Error"):
        found = next((row for one in own if (row := _row(one))), None)
    return (own[0].tb_frame.f_code.co_filename, own[0].tb_lineno, found) if found else None


def _frames(trace: TracebackType | None) -> tuple[list[TracebackType], list[TracebackType]]:
    """Return the user's innermost frames, the innermost first, and those of packages within these."""
    own: list[TracebackType] = []
    inner: list[TracebackType] = []
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            own.insert(0, trace)
            inner = []
        else:
            inner.append(trace)
        trace = trace.tb_next
    return own[:_MOST_FRAMES], inner


def _is_of_format(error: BaseException) -> bool:
    kind = type(error)
    if _FORMATS.fullmatch(kind.__name__) or (kind.__module__, kind.__name__) == ("zlib", "error"):
        return True
    text = error.args[0] if error.args else ""
    return isinstance(error, (ValueError, RuntimeError, OSError)) and type(text) is str and bool(_MESSAGES.match(text))


def _may_be_any(error: BaseException, path: str) -> bool:
    """Whether the only file that the line names must be what was read: the exception does not hold what was read."""
    if type(error).__name__ == "JSONDecodeError":
        return stored(error).get("doc") == "" and not os.path.getsize(path)
    return not isinstance(error, UnicodeDecodeError)


class _Files:
    """The regular files among paths, each once."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths: list[str] = []
        known = set()
        for path in paths:
            with contextlib.suppress(OSError, ValueError):
                found = os.stat(path)
                if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in known:
                    known.add((found.st_dev, found.st_ino))
                    self.paths.append(path)
            if len(self.paths) >= _MOST_FILES:
                break


def _named(trace: TracebackType) -> Iterator[str]:
    """Yield the paths that the failed expression names."""
    frame = trace.tb_frame
    for name, steps in _mgpu_values.chains(_mgpu_values.failed_code(trace)):
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        path = _path(_mgpu_values.follow(name, value, steps)[1])
        if path:
            yield path


def _locals(frame: FrameType) -> Iterator[str]:
    """Yield the paths that a frame's variables hold."""
    for value in list(frame.f_locals.values())[:_MOST_NAMES]:
        path = _path(value)
        if path:
            yield path


def _path(value: Any) -> str:
    """Return the path that a value is, or that an open file has; "" if it is something else."""
    kind = type(value)
    text = ""
    if kind is str:
        text = value if "." in value or os.sep in value else ""
    elif kind.__module__.startswith("pathlib") and kind.__name__ in ("PosixPath", "WindowsPath"):
        text = str(value)
    else:
        opened = opened_file(value)
        if opened is None:
            name = stored(value).get("name") if kind.__module__ in ("gzip", "bz2", "lzma") else None
        else:
            name = opened.name
        text = name if type(name) is str else ""
    fits = 0 < len(text) <= _LONGEST and text.isprintable() and not text.endswith(_CODE)
    return text if fits else ""


def opened_file(value: Any) -> Any:
    """Return the io.FileIO of a file that is open for reading only; None if it is not one."""
    with contextlib.suppress(Exception):  # it was closed, or detached
        value = value.buffer if type(value) is io.TextIOWrapper else value
        value = value.raw if type(value) is io.BufferedReader else value
        return value if type(value) is io.FileIO and (value.closed or value.mode == "rb") else None
    return None


def _by_content(error: BaseException, paths: list[str]) -> dict[str, Any] | None:
    """Return the file that holds exactly what the exception has, with the line of it."""
    kind, held = type(error).__name__, stored(error)
    for path in paths:
        fault = "invalid"
        if kind == "JSONDecodeError" and type(held.get("doc")) is str:
            line, fault = _line_of_json(path, held["doc"], held.get("lineno"))
        elif type(error) is UnicodeDecodeError:
            line = _line_of_bytes(path, error)
        elif type(held.get("problem_mark")).__module__.startswith("yaml"):
            line = _line_of_yaml(path, stored(held["problem_mark"]))
        else:
            return None
        if line:
            return {**_facts(path), "line": line, "fault": fault}
    return None


def _line_of_json(path: str, text: str, line: Any) -> tuple[int, str]:
    """Return the line of a file that a JSON text has, and its fault. 0: it is not in the file."""
    content, wanted = _content(path), text.replace("\r\n", "\n").strip().encode("utf-8", "replace")
    if wanted and content.replace(b"\r\n", b"\n").strip() == wanted:
        return line if isinstance(line, int) else 0, "invalid"
    lines = content.rstrip(b"\n").split(b"\n")
    found = next((number for number, one in enumerate(lines, 1) if one.strip() == wanted), 0)
    if not wanted and not _are_json(lines[: found - 1][:_MOST_ROWS]):
        return 0, ""  # many files have empty lines: it may be the answer of a server
    return found, "invalid_row" if wanted else "blank"


def _are_json(lines: list[bytes]) -> bool:
    """Whether each line is a JSON value, and there is one."""
    try:
        return bool([json.loads(one) for one in lines])
    except ValueError:
        return False


def _line_of_bytes(path: str, error: UnicodeDecodeError) -> int:
    content = _content(path)
    if len(error.object) < 2 or error.object not in content:
        return 0
    try:
        content.decode(error.encoding)
    except UnicodeDecodeError as again:
        return content.count(b"\n", 0, again.start) + 1 if again.reason == error.reason else 0
    return 0


def _line_of_yaml(path: str, mark: dict[str, Any]) -> int:
    text, line = mark.get("buffer"), mark.get("line")
    if type(line) is int and mark.get("name") == path:
        return line + 1
    if type(text) is not str or type(line) is not int:
        return 0
    return line + 1 if _content(path).decode("utf-8", "replace").strip() == text.rstrip("\0").strip() else 0


def _content(path: str) -> bytes:
    """Return what a file holds; nothing if that is too much, or cannot be read."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_size <= _MOST_BYTES:
            with open(path, "rb") as file:
                return file.read(_MOST_BYTES)
    return b""


def _facts(path: str) -> dict[str, Any]:
    size, start = os.stat(path).st_size, b""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        start = file.read(512)
    return {"path": path, "size": size, "form": _form(start), "line": None, "fault": ""}


def _form(start: bytes) -> str:
    """Return what a file is by its first bytes; "" if that is not known."""
    known = next((form for begin, form in _STARTS if start.startswith(begin)), "")
    if known or not start:
        return known
    if _HTML.match(start):
        return "an HTML page"
    if not any(start):
        return "zeros"
    readable = all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start)
    return "text" if readable else ""


def _row(trace: TracebackType) -> dict[str, Any] | None:
    """Return the file whose lines the loops around a failed line read, and the line that was read last."""
    frame = trace.tb_frame
    for loop in _mgpu_loops.around(trace):
        for name in loop.names:
            value = frame.f_locals.get(name)
            rows = _csv_reader(value)
            source = rows[0] if rows else value
            path = _path(source) if opened_file(source) is not None else ""
            if not path or not _Files([path]).paths:
                continue
            items = [frame.f_locals.get(one) for one in loop.targets]
            line = rows[1] if rows else _only_line(path, items)
            return {**_facts(path), "line": line} if line else None
    return None


def _csv_reader(value: Any) -> tuple[Any, int] | None:
    """Return what a csv.reader reads, and the number of lines that it has read."""
    csv = sys.modules.get("_csv")
    csv_module = sys.modules.get("csv")
    if csv is None or csv_module is None:
        return None
    if type(value) is csv_module.DictReader:
        value = stored(value).get("reader")
    if type(value).__module__ != "_csv" or type(value).__name__ != "reader":
        return None
    source = next((one for one in gc.get_referents(value) if type(one) is io.TextIOWrapper), None)
    return (source, value.line_num) if source is not None else None


def _only_line(path: str, items: list[Any]) -> int | None:
    """Return the number of the file's only line that is what the loop has: a text with its end, or the cells of it."""
    lines = _content(path).split(b"\n")
    for item in items:
        if type(item) is str and item.endswith("\n"):
            wanted = item.strip("\r\n").encode("utf-8", "replace")
            found = [number for number, one in enumerate(lines, 1) if one.rstrip(b"\r") == wanted]
        else:
            cells = list(dict.values(item)) if type(item) is dict else item if type(item) is list else []
            plain = len(cells) > 1 and all(type(cell) is str and not set(cell) & set("\"'\n") for cell in cells)
            wholes = {mark.join(cells).encode("utf-8", "replace") for mark in ",;\t"} if plain else set()
            found = [number for number, one in enumerate(lines, 1) if one.rstrip(b"\r") in wholes]
        if len(found) == 1:
            return found[0]
    return None
