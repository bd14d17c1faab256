"""What a program, a terminal or a web page adds to the text of a log: line ends, colors, curly quotes."""

from __future__ import annotations

import re

_QUOTES = {"\u2018": b"'", "\u2019": b"'", "\u201c": b'"', "\u201d": b'"'}  # as web pages and mail programs change them
# A bar has no line break at its end: what the shell or another process prints next follows in the same line.
_AFTER_BAR = re.compile(rb"(\d(?:it/s|s/it)(?:, [^\]\r\n]{0,200})?\])(?=[A-Za-z\[])")
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")


def text(piece: bytes) -> bytes:
    """Return a piece with normal line ends and straight quotes, without colors, which can be within words."""
    if b"\r\n" in piece:
        piece = piece.replace(b"\r\n", b"\n")
    if b"\xe2\x80" in piece:
        for curly, straight in _QUOTES.items():
            piece = piece.replace(curly.encode(), straight)
    if b"/s" in piece or b"s/it" in piece:
        piece = _AFTER_BAR.sub(rb"\1\r", piece)
    return _ESCAPES.sub(b"", piece) if b"\x1b" in piece else piece


def lines(piece: bytes) -> list[bytes]:
    """Return the lines of a piece, also split at carriage returns, which progress bars use."""
    return piece.replace(b"\r", b"\n").split(b"\n")
