"""How do messages of any size travel over srun's stdout, on which all nodes write at once?

As short lines of one alphabet. Slurm hands lines on whole up to 1024 bytes (SLURM_IO_MAX_MSG_LEN,
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
from typing import Any

_MARK = "mgpu"
_PIECE = 600  # characters of a line's own text
_LINE = re.compile(rf"{_MARK} (\d+) (\d+)/(\d+) ([A-Za-z0-9+/=]+)\s*$")
_LARGEST = 64 << 20  # bytes of a message that are taken in; a machine of 16 GPUs has 0.2 MiB


def lines(number: int, message: Any) -> Iterator[str]:
    """The lines of one message; `number` tells the messages of one writer apart."""
    text = base64.b64encode(zlib.compress(json.dumps(message).encode())).decode("ascii")
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
        try:
            packed = base64.b64decode("".join(pieces[place] for place in sorted(pieces)), validate=True)
            return json.loads(zlib.decompressobj().decompress(packed, _LARGEST))
        except (ValueError, binascii.Error, zlib.error):
            return None
