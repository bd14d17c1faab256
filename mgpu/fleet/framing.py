"""How do messages of any size travel over srun's stdin, which it hands to all nodes, and over its stdout, on which all
nodes write at once?

Packed: JSON, compressed, in one alphabet. What all nodes are told is one line, what they answer are short ones. Slurm
hands lines on whole up to 1024 bytes (SLURM_IO_MAX_MSG_LEN,
source=https://github.com/SchedMD/slurm/blob/master/src/common/io_hdr.h), longer ones in pieces between which other
nodes' words may come; and a module, a shell's start-up file or a container may print what it likes, with a line's end
or without.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any

_MARK = "mgpu"
_PIECE = 600  # characters of a line's own text
_LINE = re.compile(rf"{_MARK} (\d+) (\d+)/(\d+) ([A-Za-z0-9+/=]+)\s*$")
_LARGEST = 64 << 20  # bytes of a message that are taken in; a machine of 16 GPUs has 0.2 MiB
_LONGEST = 16 << 20  # characters of a line that is taken in; the cards of 1,000 nodes are under 0.1 million


def packed(message: Any) -> str:
    """A message as one word."""
    return base64.b64encode(zlib.compress(json.dumps(message).encode())).decode("ascii")


def unpacked(text: str) -> Any:
    """The message; None: it is spoilt, or none of ours."""
    try:
        return json.loads(zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _LARGEST))
    except (ValueError, binascii.Error, zlib.error):
        return None


def whole_lines(stream: IO[str]) -> Iterator[str]:
    """The lines of a stream as they come; not one that is cut off, or that is longer than any of ours."""
    inside = False  # of one that is too long
    while line := stream.readline(_LONGEST):
        ended = line.endswith("\n")
        if ended and not inside:
            yield line.rstrip("\n")
        inside = not ended


def lines(number: int, message: Any) -> Iterator[str]:
    """The lines of one message; `number` tells the messages of one writer apart."""
    text = packed(message)
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    for place, piece in enumerate(pieces, 1):
        yield f"{_MARK} {number} {place}/{len(pieces)} {piece}\n"


class Reader:
    """The messages of one writer, put together again."""

    def __init__(self) -> None:
        self._pieces: dict[int, dict[int, str]] = {}

    def take(self, line: str) -> Any | None:
        """The message that this line completes; None: none yet, or the line is none of ours."""
        found = _LINE.search(line)
        if not found:
            return None
        number, place, count, piece = int(found[1]), int(found[2]), int(found[3]), found[4]
        pieces = self._pieces.setdefault(number, {})
        pieces[place] = piece
        if len(pieces) < count:
            return None
        del self._pieces[number]
        return unpacked("".join(pieces[place] for place in sorted(pieces)))
