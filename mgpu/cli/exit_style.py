"""Which exit code has a `--exit-style` line that cannot be read? One that a scheduler or a monitor does not misread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgpu.exit_status import guarded

_UNREADABLE = {"prolog": 0, "nagios": 3}  # 2 would drain every node that has the typing error, or mean critical


def run(argv: Sequence[str], invoke: Callable[[], Any]) -> int:
    """The command's exit code; a line that cannot be read condemns no node."""
    style = next((style for style in _UNREADABLE if _asks(argv, style)), "")
    if not style:
        return guarded(invoke)
    read = False

    def told() -> Any:
        nonlocal read
        found = invoke()
        read = True
        return found

    code = guarded(told)
    if read or code == 0:  # 0: it was asked for its help
        return code
    if style == "nagios":
        guarded(lambda: print("MGPU UNKNOWN - mgpu could not be asked: see its standard error"))
    return _UNREADABLE[style]


def _asks(argv: Sequence[str], style: str) -> bool:
    words = list(argv)
    if words[:1] == ["launch"]:  # where it is an option of the script
        return False
    return f"--exit-style={style}" in words or ["--exit-style", style] in [words[n : n + 2] for n in range(len(words))]
