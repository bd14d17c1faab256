"""The exit code of an invalid command line with `--exit-style`: one that a scheduler or a monitor does not misread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgpu.exit_status import guarded

_INVALID = {"prolog": 0, "nagios": 3}  # 2 would drain every node that has the typing error, or mean CRITICAL


def run(argv: Sequence[str], invoke: Callable[[], Any]) -> int:
    """Run a command and return its exit code. An invalid command line drains no node."""
    style = next((style for style in _INVALID if _has_style(argv, style)), "")
    if not style:
        return guarded(invoke, argv)
    finished = False

    def attempt() -> Any:
        nonlocal finished
        result = invoke()
        finished = True
        return result

    code = guarded(attempt, argv)
    if finished or code == 0:  # 0: --help
        return code
    if style == "nagios":
        guarded(lambda: print("MGPU UNKNOWN - mgpu did not run: see its stderr"))
    return _INVALID[style]


def _has_style(argv: Sequence[str], style: str) -> bool:
    words = list(argv)
    if words[:1] == ["launch"]:  # there it is an option of the script
        return False
    return f"--exit-style={style}" in words or ["--exit-style", style] in [words[n : n + 2] for n in range(len(words))]
