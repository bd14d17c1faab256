"""Is the program's last message an error message of its own, as sys.exit("text") leaves it?

Lines with which launchers, Slurm, shells and torch follow it do not count. Only the end of the log is read.
"""

from __future__ import annotations

import re

from mgpu.readers.log.course import is_exit, is_handled
from mgpu.readers.log.line import Line, looks_labelled, parse_line, shown_text
from mgpu.readers.log.torchrun_table import FAILURE_REPORT
from mgpu.snapshot import Log, OwnError

_TAIL_CHARS = 1 << 15
_SKIPPED_LINES = 40  # most lines of others after the message
# What launchers, Slurm, shells, trackers and torch print after a program's last message.
OF_OTHERS = re.compile(
    r"^\s*$|^(?:srun|slurmstepd|salloc|sbatch|mpirun|make|wandb|mgpu)\b|^\$ |^\++ |^[=*#-]{3,}|closing signal SIG|"
    r"destroy_process_group|resource_tracker|^warnings\.warn|semaphore|(?:WARNING|INFO)\b.*torch|^Command exited|"
    r"^\S+@\S+[:~].*[$#]|^\['/\S*python[\d.]*', "  # DeepSpeed shows the command of a rank that failed
)
# A line that begins as an error message.
_ERROR = re.compile(
    r"(?:[\w./()-]{1,60}: )?(?:error|ERROR|Error|fatal|FATAL|Fatal|CRITICAL|fatal error|FATAL ERROR)\s?[:!]\s*"
    r"(?P<text>\S.{5,})|[\W_]{1,3}(?:ERROR|FATAL|CRITICAL)\W{1,4}(?P<other>\w.{5,})|"
    r"\[(?:[Ee]rror|[Ff]atal|FAILED|FAIL|[Ff]ailed)\]:?\s+(?P<bracket>\w.{5,})|"
    # A cross or a stop sign; in evaluations, also before wrong answers.
    "[\u274c\u26d4\U0001f6a8\U0001f6d1]\\ufe0f?\\s*(?!(?i:.*\\b(?:tests?|cases?|samples?|answers?|expected|incorrect|wrong|"
    "reward|problem|question|task)\\b))(?=(?i:.*\\b(?:errors?|failed|failure|exception|cannot|could not|missing|"
    "not found|invalid|aborted|denied|does not)\\b))(?P<sign>\\w.{5,})"
)
# A last line that refuses something. Only if a launcher, Slurm or a shell reports that the program failed, or if
# nothing else was pasted.
_REFUSES = re.compile(
    r"\b(?:must (?:be|have|set|specify|provide|not)|"
    r"(?:is|are) (?:required|missing|not (?:found|set|supported|available))|"
    r"not found|does not exist|cannot|can't|could not|unable to|invalid|unsupported|no such|"
    r"expected .{1,60} (?:but|got)|"
    r"please (?:set|provide|specify|install|use|run|check|pass)|failed to|aborting|exiting)\b",
    re.I,
)
# A last line that says why the program leaves, also as a warning.
_LEAVES = re.compile(
    r"[.;,:!]\s+(?:(?:now |program |script |training )?(?:exiting|aborting|quitting|giving up)(?: now)?|"
    r"(?:the )?(?:program|script) (?:will )?(?:exits?|aborts?|stops?))\W*$",
    re.I,
)
_REASON = re.compile(
    r"\b(?:must|cannot|can't|could (?:not|n't)|not found|missing|required|requires|invalid|unsupported|failed|unable|"
    r"error|not (?:set|supported|available|enough|exist|installed|valid)|does not|doesn't|needs? to be|"
    r"no \w+(?: \w+)? (?:found|given|available|specified))\b",
    re.I,
)
_SHORTEST_REASON = 12  # characters
# Good ends, and values of the training, in the words of a reason.
_GOOD = re.compile(
    r"\b(?:(?:does|did|could|can|has|is|was) ?(?:not|n't)|failed to|no longer) (?:be )?improv\w*|"
    r"\breached (?:the |its |a )?required\b|\brequired .{1,40} (?:is|was|has been|were)? ?reached\b|"
    r"\bnothing to do\b.*|\bno (?:\w+ ){0,3}missing\b|\bno errors?\b|\berror rates?\b|"
    r"\berror\s*(?:is |was |of |[=:])?\s*\d+(?:\.\d|\s?%)",
    re.I,
)
_FAILS = re.compile(r"\b(?:errors?|fail\w*|exceptions?|crash\w*|kill\w*|lost|out of|not|no)\b", re.I)
_NO_MESSAGE = re.compile(
    r"^\s|\d+%\||Traceback|Error executing job with overrides|^\{|"
    r"\b(?:INFO|DEBUG|WARNING|Warning)\b|^File |ncclUnique|frame #"
)


def own_error(tail: str, log: Log, lines: int) -> OwnError | None:
    """Return the program's last message, if it reports an error.

    `tail`: the end of the last file. `lines`: how many lines that file has.
    """
    failed = log.failed is not None or bool(log.fallen)
    text = tail[-_TAIL_CHARS:]
    first = lines - text.count("\n") + text.endswith("\n")  # number of the text's first line
    report = FAILURE_REPORT.search(text)
    before = text[: report.start()] if report else text
    raw = before.split("\n")
    labelled = looks_labelled(raw[-20:])
    for place in range(len(raw) - 1, max(-1, len(raw) - 1 - _SKIPPED_LINES), -1):
        line = parse_line(raw[place].rpartition("\r")[2], labelled=labelled)
        if OF_OTHERS.search(line.text) or is_exit(line.text):
            continue
        return _error(line, log.files[-1], first + place, failed=failed, alone=lines <= 1)
    return None


def _error(line: Line, file: str, number: int, *, failed: bool, alone: bool) -> OwnError | None:
    leaves = _LEAVES.search(line.text)
    why = line.text[: leaves.start()] if leaves else ""
    if len(why) >= _SHORTEST_REASON and _REASON.search(_GOOD.sub(" ", why)) and not is_handled(why):
        return OwnError(shown_text(line.text), file, number, line.rank)
    if is_handled(line.text) or _NO_MESSAGE.search(line.text):
        return None
    found = _ERROR.match(line.text) or (_ERROR.search(line.whole) if line.whole != line.text else None)
    if found and found[0].startswith("CRITICAL") and not (_REFUSES.search(found[0]) or _FAILS.search(found[0])):
        found = None  # some programs log their milestones with it
    if found and line.whole[: found.start()][-1:].isalnum():
        found = None  # of the name of an exception
    if found or ((failed or alone) and _REFUSES.search(line.text)):
        return OwnError(shown_text(line.text), file, number, line.rank)
    return None
