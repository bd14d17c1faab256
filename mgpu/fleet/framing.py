"""Send messages of any size over srun's stdin, which all nodes receive, and its stdout, to which all nodes write.

Messages are compressed JSON in base64. A command to all nodes is one line; answers are split into short lines. Slurm
forwards lines of up to 1024 bytes unbroken (SLURM_IO_MAX_MSG_LEN,
source=https://github.com/SchedMD/slurm/blob/master/src/common/io_hdr.h), but may mix the pieces of longer ones with
other nodes' output. Modules, shell start-up files and containers may print anything, with or without a newline.
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
_PIECE = 600  # characters of the message in one line
_LINE = re.compile(rf"{_MARK} (\d+) (\d+)/(\d+) ([A-Za-z0-9+/=]+)\s*$")
_LARGEST = 64 << 20  # bytes of a message that are read; a machine with 16 GPUs takes 0.2 MiB
_LONGEST = 16 << 20  # characters of a line that are read; the cards of 1,000 nodes take under 0.1 million


def encode_message(message: Any) -> str:
    """Encode a message as one word."""
    return base64.b64encode(zlib.compress(json.dumps(message).encode())).decode("ascii")


def decode_message(text: str) -> Any:
    """Decode a message; None if it is damaged or not one of ours."""
    try:
        return json.loads(zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _LARGEST))
    except (ValueError, binascii.Error, zlib.error):
        return None


def whole_lines(stream: IO[str]) -> Iterator[str]:
    """Yield the lines of a stream as they arrive, except truncated and overlong ones."""
    inside = False  # an overlong line
    while line := stream.readline(_LONGEST):
        ended = line.endswith("\n")
        if ended and not inside:
            yield line.rstrip("\n")
        inside = not ended


def lines(number: int, message: Any) -> Iterator[str]:
    """Yield the lines of one message; `number` distinguishes the messages of one writer."""
    text = encode_message(message)
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    for place, piece in enumerate(pieces, 1):
        yield f"{_MARK} {number} {place}/{len(pieces)} {piece}\n"


def is_piece(line: str) -> bool:
    """Whether a line is a piece of a message."""
    return _LINE.search(line) is not None


class Reader:
    """Reassembles the messages of one writer."""

    def __init__(self) -> None:
        self._pieces: dict[int, dict[int, str]] = {}

    def take(self, line: str) -> Any | None:
        """Return the message that this line completes; None if there is none yet or the line is not one of ours."""
        found = _LINE.search(line)
        if not found:
            return None
        number, place, count, piece = int(found[1]), int(found[2]), int(found[3]), found[4]
        pieces = self._pieces.setdefault(number, {})
        pieces[place] = piece
        if len(pieces) < count:
            return None
        del self._pieces[number]
        return decode_message("".join(pieces[place] for place in sorted(pieces)))
