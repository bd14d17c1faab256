"""How is text of others shown, and how does mgpu itself say something on stderr?"""

from __future__ import annotations

import contextlib
import os
import sys

from mgpu import text as texts
from mgpu.secrets_masking import masked


def clean(text: object) -> str:
    """Text of others as it may be shown: without secrets, colors and control characters. Lines stay."""
    return masked(texts.clean(text))


def one_line(text: object) -> str:
    """The same for a part of a line: a newline in it, of a file's name, is shown as \\n."""
    return clean(text).replace("\n", "\\n")


def notice(text: str) -> None:
    """A message of mgpu's own on stderr. The names of files in it are those of the command line."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"mgpu: {message(text)}", file=sys.stderr, flush=True)


def message(text: str) -> str:
    """A message with names of files in it, as it may be shown."""
    return clean(texts.with_visible(text, [*sys.argv, *_here()]))


def _here() -> list[str]:
    try:
        return [os.getcwd()]
    except OSError:
        return []
