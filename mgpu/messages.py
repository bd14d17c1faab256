"""How is untrusted text shown, and how does mgpu print its own messages to stderr?"""

from __future__ import annotations

import contextlib
import os
import sys

from mgpu import text as texts
from mgpu.secrets_masking import masked


def clean(text: object) -> str:
    """Return untrusted text without secrets, colors and control characters. Line breaks stay."""
    return masked(texts.clean(text))


def one_line(text: object) -> str:
    r"""Like `clean`, for a part of a line: a newline, as in a file name, is shown as \n."""
    return clean(text).replace("\n", "\\n")


def notice(text: str) -> None:
    """Print a message of mgpu on stderr. File names in it are those of the command line."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"mgpu: {message(text)}", file=sys.stderr, flush=True)


def message(text: str) -> str:
    """Return a message that contains file names in a form that is safe to show."""
    return clean(texts.with_visible(text, [*sys.argv, *_here()]))


def _here() -> list[str]:
    try:
        return [os.getcwd()]
    except OSError:
        return []
