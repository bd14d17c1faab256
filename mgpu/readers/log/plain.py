"""What a program, a terminal or a web page adds to the text of a log: line ends, colors, curly quotes."""

from __future__ import annotations

import re

_QUOTES = {"\u2018": b"'", "\u2019": b"'", "\u201c": b'"', "\u201d": b'"'}  # as web pages and mail programs change them
# A bar has no line break at its end: what the shell or another process prints next follows in the same line.
_AFTER_BAR = re.compile(rb"(\d(?:it/s|s/it)(?:, [^\]\r\n]{0,200})?\])(?=[A-Za-z\[])")
# A frame of a traceback that rich, or a terminal, has broken at spaces, which it left at the ends of the lines or not.
_MAYBE_BROKEN = re.compile(rb'File ?\n"|", ?\nline |", line ?\n\d|, ?\nin ')
_BROKEN_FRAME = re.compile(
    rb'^([ \t]*)File ?(\n?)"([^"\n]{1,300})", ?(\n?)line ?(\n?)(\d+), ?(\n?)in ?(\n?)(\S[^\n]*)$', re.MULTILINE
)
# How VS Code marks the numbers of lines in a traceback of a notebook.
_LINKED_NUMBER = re.compile(rb"<a href='vscode-notebook-cell:[^'\n]*'>(\d+)</a>")
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
    if b"vscode-notebook-cell" in piece:
        piece = _LINKED_NUMBER.sub(rb"\1", piece)
    if b"\x1b" in piece:
        piece = _ESCAPES.sub(b"", piece)
    return _BROKEN_FRAME.sub(_joined, piece) if b'", ' in piece and _MAYBE_BROKEN.search(piece) else piece


def _joined(broken: re.Match[bytes]) -> bytes:
    """Return a frame in one line, with as many line ends as it had: they count for the numbers of the lines."""
    indent, _, file, _, _, line, _, _, function = broken.groups()
    ends = broken[0].count(b"\n") * b"\n"
    return b'%sFile "%s", line %s, in %s%s' % (indent, file, line, function, ends)


def lines(piece: bytes) -> list[bytes]:
    """Return the lines of a piece, also split at carriage returns, which progress bars use."""
    return piece.replace(b"\r", b"\n").split(b"\n")
