"""Opens a log and yields its bytes in pieces of whole lines: a file, a compressed file, or stdin."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import os
import re
import shlex
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.readers.log.row_matching import LONGEST_LINE

# rank3.log, log_3.txt, worker-3.err, slurm-123_3.out; torchrun's folder …/attempt_0/3/stderr.log
_RANK_IN_NAME = re.compile(
    r"(?:rank|log|worker|task|proc|stderr|stdout)[_.-]?(\d{1,5})(?=\D|$)|^slurm-\d+[_.](\d{1,5})(?=\D)"
)
_RANK_IN_PATH = re.compile(r"attempt_\d+/(\d+)/(?:stdout|stderr)\.log$")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PIECE = 1 << 20
_LONGEST_HOLE = 64 << 20
# Logs compress by a factor of 10 to 20; a line repeated endlessly, by 1000.
_MOST_UNPACKED = 128 << 20  # bytes that are always read
_MOST_RATIO = 50
_BINARY_BYTES = bytes({*range(1, 32)} - {*b"\b\t\n\v\f\r\x1b"})


@contextlib.contextmanager
def open_log(path: Path) -> Iterator[tuple[io.RawIOBase | BinaryIO, int]]:
    """Yield a file's bytes, decompressed if its name ends in .gz, and the year of its prefixes' dates."""
    if str(path) == "-":
        if sys.stdin is None:
            raise MgpuError("--log -: stdin is closed", errors.USAGE)
        yield sys.stdin.buffer, time.gmtime().tm_year
        return
    try:
        if path.is_dir():
            raise MgpuError(f"{path} is a folder. Specify its files", errors.USAGE)
        handle = file_reading.open_checked(path)
        os.set_blocking(handle, True)  # an inherited pipe, whose writer can be slow
    except OSError as error:
        why = error.strerror or reason(error)
        raise MgpuError(f"cannot read the log {path}: {why}", errors.USAGE) from None
    with open(handle, "rb") as raw:
        about = os.fstat(handle)
        stream: io.RawIOBase | BinaryIO = raw
        if path.suffix == ".gz":
            stream = _Unpacked(str(path), gzip.GzipFile(fileobj=raw), about.st_size)
        yield stream, time.gmtime(about.st_mtime).tm_year


class _Unpacked(io.RawIOBase):
    """A compressed file, decompressed up to a maximum size."""

    def __init__(self, name: str, stream: gzip.GzipFile, size: int) -> None:
        self._name, self._stream = name, stream
        self._left = max(_MOST_UNPACKED, size * _MOST_RATIO)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise MgpuError(
                f"{self._name} decompresses to more than {_MOST_UNPACKED >> 20} MiB and more than {_MOST_RATIO} times "
                "its size. To read only its end:\n"
                f"  zcat {shlex.quote(self._name)} | tail -c 100M | mgpu doctor --log -",
                errors.USAGE,
            )
        return data


def pieces(stream: io.RawIOBase | BinaryIO, name: str, skip: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the file in pieces that end at a line end. UTF-16 (PowerShell's `>`) is converted to UTF-8.

    Only the beginning of a very long line is read; `skip` is called with the number of bytes skipped. Zero bytes at the
    beginning are skipped, too.
    """
    rest, decoder, hole = b"", None, 0
    first = True
    while True:
        try:
            data = stream.read(_PIECE) or b""
        except (OSError, EOFError, zlib.error) as error:
            raise MgpuError(f"cannot read the log {name}: {reason(error)}", errors.USAGE) from None
        if first and data[:1] == b"\0":  # emptied while a program still wrote to it: a hole is before the text
            text = data.lstrip(b"\0")
            hole += len(data) - len(text)
            if not text and hole < _LONGEST_HOLE:
                continue
            skip(hole)
            data = text or data
        if first and data[:2] in UTF_16:
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
        elif first and _is_binary(data[:4096]):
            raise MgpuError(f"{name} is not a log: it contains binary data", errors.USAGE)
        first = False
        if decoder:
            data = decoder.decode(data, not data).encode("utf-8", "replace")
        if not data:
            break
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            kept = data[: max(0, LONGEST_LINE - len(rest))]
            rest += kept
            skip(len(data) - len(kept))
    if rest:
        yield rest


def _is_binary(data: bytes) -> bool:
    """Whether this is the beginning of a binary file. Control bytes of terminals count as text."""
    strange = len(data) - len(data.translate(None, _BINARY_BYTES))
    return data.count(0) > len(data) // 10 or strange > len(data) // 20


def rank_in_name(path: Path) -> int | None:
    """Return the rank in a file's name, if there is one file per rank."""
    if found := _RANK_IN_PATH.search(str(path)):
        return int(found[1])
    if found := _RANK_IN_NAME.search(path.name):
        return int(found[1] or found[2])
    return None
