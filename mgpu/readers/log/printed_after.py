"""Did a program print ordinary text after an error that it had caught and reported in words of its own?

"Error loading model: CUDA out of memory ..." and then the answers of a model: there is no traceback, and the program
went on with what it had. Advice, an apology and the lines with which a program ends do not show that.
"""

from __future__ import annotations

import re

from mgpu.readers.log.line import parse_line

_MOST_LINES = 200  # of the end of the log
_FEWEST = 3  # lines of ordinary text
_FEWEST_WORDS = 4
_REPORT = re.compile(
    r"(?!.{0,40}\b(?:training|running|main|execution|run)\b)"  # of the whole program: what follows is its end
    r"\W{0,6}(?:(?:error|failure|exception|problem) (?:while |during |when |in |at )?\w+(?:ing|ion)\b|"
    r"(?:failed|unable|could not|couldn't|cannot) (?:to )?\w+)[^:]{0,40}:\s",
    re.I,
)
_NOT_ORDINARY = re.compile(
    r"\b(?:errors?|exceptions?|failed|failures?|fatal|cannot|can't|could ?n[o']t|unable|abort\w*|exit\w*|quit\w*|"
    r"terminat\w*|killed|shut\w*|clean\w*|stop\w*|please|try|tip|hint|note|use|using|set|reduce|increase|lower|"
    r"smaller|make sure|ensure|check|see|consider|install|run|usage|help|memory|GPUs?|CUDA|jobs?|nodes?|"
    r"wall ?clock|walltime|elapsed|epilog\w*|requested|ranks?|peers?|gloo|compile with|goodbye|thanks?|ended|ending|"
    r"out of|traceback|"
    r"warnings?|core dumped|saved? (?:log|partial)|sorry|log|report)\b|https?://|--\w|^\s*File \"|^\S+: line \d",
    re.I,
)
_WORD = re.compile(r"[A-Za-z]{2,}")


def is_report(text: str) -> bool:
    """Whether a line says first what the program could not do, and then why: it caught the exception."""
    return bool(_REPORT.match(text))


def line_before(tail: str, lines: int) -> int | None:
    """Return the number of the last line that can belong to an error, if enough ordinary text follows it.

    `tail`: the end of the file. `lines`: the number of its last line.
    """
    ordinary = 0
    raw = tail.removesuffix("\n").split("\n")[-_MOST_LINES:]
    for number, line in zip(range(lines, 0, -1), reversed(raw), strict=False):
        text = parse_line(line.rpartition("\r")[2]).text
        if _NOT_ORDINARY.search(text):
            return number if ordinary >= _FEWEST else None
        ordinary += len(_WORD.findall(text)) >= _FEWEST_WORDS
    return None
