"""Did a program wait for a server that did not answer in time, and what did it wait for at last?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

# fmt: off
_FIXES = (
    Fix("Read the output of the process that was not ready, on its own node: it failed, still loads, or waits for "
        "another one.", ("mgpu doctor --log SERVER.log",)),
    Fix("Ask it directly, from this node.", ("curl -i http://HOST:PORT/health",)),
    Fix("If it was still loading (a large model, compilation, a slow disk), start it first, or wait longer for it."),
)
# fmt: on


def _waited_for(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name what the program said at last while it waited; None if it said nothing of that kind."""
    if raised is None or not raised.said_before:
        return None
    return Meaning(
        f"a server did not answer in time: {groups['what']}",
        f'This program only waits for it. What it printed before it gave up: "{raised.said_before}". The reason is in '
        "the output of the process that was not ready, not in this one.",
        _FIXES,
    )


# fmt: off
ROWS = (
    Row("log_server_not_up_in_time", "secondary", "timeout",
        r"(?P<what>[Ss]erver (?:https?://\S+ )?failed to start (?:in \d+ ?s\b|within the timeout period|in time))",
        ("RuntimeError: Server http://127.0.0.1:8300/health failed to start in 1200s",
         "TimeoutError: Server failed to start within the timeout period.",
         "RuntimeError: Server failed to start in time."),
        "a server did not answer in time: {what}",
        "This program only waits for it, at its health address. The reason is in the output of the server: it failed, "
        "still loads its model, listens elsewhere, or waits for another process.",
        _FIXES, "https://github.com/sgl-project/sglang/blob/main/python/sglang/test/test_utils.py",
        summary="A server did not answer in time.", explain=_waited_for),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
