"""Does the log have messages of mgpu: why the run made no progress, and that mgpu stopped it?

A log that was copied has no hang.json beside it. mgpu writes what it finds in a hang into the run's log, too.
"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Tag, check
from mgpu.command_line import shell
from mgpu.signature import Row, signatures
from mgpu.snapshot import Log

_SOURCE = "mgpu: what it wrote into the run's log when the ranks made no progress"
# What mgpu says of a run that may still go on by itself. A test compares them with the checks of checks/hang/.
UNCERTAIN = ("hang_rank_in_debugger", "hang_others_unknown", "hang_rank_works", "hang_stacks_unknown")
_SAID = re.compile(r"^mgpu: no progress for (?P<quiet>[^:]{1,40}): (?P<title>.+?)\.(?: (?P<why>.*))?$")
_ID = re.compile(r"\s*\[(hang_\w+)\]$")


def _row(name: str, pattern: str, *samples: str, latest: bool = False) -> Row:
    unused = Fix("No action needed.", ())
    tags: tuple[Tag, ...] = ("keeps_latest",) if latest else ()
    return Row(name, "context", "timeout", pattern, samples, "", "", unused, _SOURCE, tags=tags)


# fmt: off
ROWS = (
    _row("mgpu_found_hang",
         rf"^mgpu: no progress for [^:]{{1,40}}: .{{1,3000}}\[(?!{'|'.join(UNCERTAIN)})hang_\w+\]$",
         "mgpu: no progress for 17 s: rank 1 sleeps at t_hang.py:61. Rank 0 waits in broadcast #37 (t_hang.py:62). "
         "The line is: time.sleep(1e6) [hang_rank_sleeps]", latest=True),
    _row("mgpu_progress_again", r"^mgpu: the run makes progress again$", "mgpu: the run makes progress again"),
    _row("mgpu_stopped_run", r"^mgpu: SIG[A-Z]{1,6} to the launcher: --",
         "mgpu: SIGTERM to the launcher: --on-hang stop", "mgpu: SIGTERM to the launcher: --timeout 60 s reached"),
)
# fmt: on


@check(Severity.ERROR, source=_SOURCE, role="root", kind="timeout", tags=("precise", "silent_rank"))
def log_run_hung(log: Log) -> Answer:
    """The run made no progress, and mgpu wrote into its log which rank kept the others waiting.

    Why: The other ranks wait for that rank. How the run was stopped afterwards is a consequence.

    Fix: Change what the message names, so that every rank reaches the same collectives.
    """
    shows = {one.name: one for one in log.shows}
    hang, again, stopped = (shows.get(name) for name in ("mgpu_found_hang", "mgpu_progress_again", "mgpu_stopped_run"))
    if hang is None:
        return Ok("mgpu reported no hang in the log")
    if again is not None and again.file == hang.file and again.last > hang.last:
        return Ok("mgpu reported that the run made progress again")
    text = hang.latest or hang.text
    named, said = _ID.search(text), _SAID.match(_ID.sub("", text))
    title, why, quiet = (said["title"], said["why"] or "", said["quiet"]) if said else (text, "", "")
    sent = f' mgpu stopped the run ("{stopped.text.removeprefix("mgpu: ")}").' if stopped else ""
    explained = (shell("mgpu doctor --explain {:id}", named[1]),) if named else ()
    return Problem(
        title,
        f"{f'{why}.' if why and why[-1] not in '.)' else why} mgpu reported it while the run made no progress"
        f"{f' for {quiet}' if quiet else ''}.{sent}".strip(),
        Fix("Change that line, or what it waits for: every rank must reach the same collectives.", explained),
        {"line": text},
        place=Place(hang.file, hang.last),
    )


CHECKS = signatures(__name__, ROWS)
