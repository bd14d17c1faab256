"""What are the text, rank, time and number of a log line?

Removes the prefixes that torch, launchers, Slurm, NCCL and Python's logging add. Pure.
"""

from __future__ import annotations

import bisect
import functools
import re
from dataclasses import dataclass

from mgpu.secrets_masking import masked

LONGEST_TEXT = 400  # characters kept of a line
_END_CHARS = 100  # of a long message: what it asks for, and the values of this run, are often at its end
_MASKED_CHARS = 4096  # of a text, searched for secrets; far fewer are kept
_MOST_DIGITS = 40  # of a number in a group: 2**64 has 20
_DIGITS = re.compile(rf"\d{{{_MOST_DIGITS},}}")
_AROUND = 4096  # characters around a match that are searched for secrets
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[rank(?P<rank>\d{1,9})\]:\s?",
        r"std(?:err|out): ?",  # accelerate test
        # Ray: (WorkerDict pid=123, ip=10.0.0.1), (pid=123); SkyPilot: (worker1, rank=1, pid=2000, ip=10.0.0.2); vLLM:
        # (EngineCore_0 pid=123), (VllmWorker TP0 pid=124)
        r"(?P<source>\((?:[\w.-]+(?:\([\w.]+\))?(?: (?:[A-Z]P\d+_?)+)?,? )?(?:rank=(?P<rank>\d{1,9}),? )?pid=\d+"
        r"(?:, ip=[\w.:]+)?\)) ?",
        r"(?P<source>\[pod/[^\]\s]+\]) ?",  # kubectl logs --prefix
        r"(?P<source>(?!\d+[ \t])[\w.-]+)[ \t]+\| ",  # docker compose: trainer-1  | …, not "622 | loss 2.8"
        r"\[\d+,(?:mpirank:)?(?P<rank>\d{1,9})(?:,[\w.-]+)?\]<std(?:err|out)>: ?",  # mpirun --tag-output
        r"\[[A-Za-z_]+?(?P<rank>\d{1,9})\]:\s?",  # torchrun --tee: [default0]: (role and local rank)
        # c10's: [rank3]:[E1121 10:12:01.408123456 ProcessGroupNCCL.cpp:607] …; older: [E ProcessGroupNCCL.cpp:475] …
        r"\[[EWIF](?P<month>\d\d?)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d+)?) \S+:\d+\]\s?",
        r"\[[EWIF] \S+:\d+\]\s?",
        # torch's Python loggers: E1121 10:12:01.408000 4711 torch/distributed/elastic/…:833] …
        r"[EWIFV](?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d+)?) "
        r"(?:\d+ )?\S+:\d+\]\s?(?:\[[\d/]+\]\s?)*",
        # [2026-11-21 10:12:01,408] torch.distributed.run: [WARNING] …; DeepSpeed: [2026-…] [INFO] [engine.py:1:f] …
        r"\[(?P<date>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?\][^\S\n]?"
        r"(?:(?<=\s)\s*(?=\[|[\w.]+: \[))?"
        r"(?:\[Rank (?P<rank>\d{1,9})\]\s*)?(?:[\w.]+: (?=\[))?(?:\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]\s*)?"
        r"(?:\[\S+?:\d+(?::\w+)?\]\s*)?(?:\[Rank (?P<rank_after>\d{1,9})\]\s*)?",
        # node7:4711:4820 [3] NCCL WARN …; newer with a date in front, and NCCL's file and line
        r"[\w.-]+:\d+:\d+ \[(?P<rank>\d{1,9})\] (?:\S+\.\w+:\d+ (?=NCCL))?",
        # 2026-11-21 10:12:01,408 - INFO - …, 11/21/2026 10:12:01 - INFO - __main__ - …
        r"(?P<date>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)"
        r"(?:[ ]?[|:-]+ \w+ ?[|:-]+ (?:[\w.]+(?::\w+)*(?::\d+)? - )?|\s)",
        r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]+:\d+\] ?",  # vLLM
        # kubectl logs --timestamps, GitHub Actions; containerd: 2026-11-21T10:12:01.123456789Z stderr F …
        r"(?P<date>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)"
        r"(?: std(?:err|out) [FP])?(?: |$)",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w./-]+(?:\[\d+\])?: ",  # syslog, journalctl
        r"(?P<american>\d\d/\d\d/\d{4}) (?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)(?: - \w+ - (?:[\w.]+ - )?|\s)",
    )
)
_LABEL = re.compile(r"\s{0,4}(?P<rank>\d{1,5}):(?: |$)")  # srun --label
_PDSH = re.compile(
    r"(?![\w.]*(?:Error|Exception|Warning|Interrupt)\b)[\w.-]+: (?=\[rank\d|\[20\d\d-|\S+:\d+:\d+ \[\d+\] NCCL)"
)
# Ray prints equal lines of several processes once.
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
_BARE_COLOR = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3}){0,4})m")  # copied from a terminal, without its escape character
_IN_TEXT = re.compile(r"\[Rank (\d{1,9})\]|\bon rank (\d{1,9})\b")


@dataclass(frozen=True)
class Line:
    """One line, split into text, rank and time."""

    text: str  # without prefixes
    whole: str  # with prefixes, without colors
    rank: int | None = None
    at: str | None = None
    source: str | None = None  # the process that wrote it, as its prefix names it


class LineNumbers:
    """Line numbers as in an editor, which does not count carriage returns."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece
        self._plain = b"\r" not in piece
        self._starts: list[int] | None = None

    def line_number(self, place: int) -> int:
        """Return the line number, from 1 within the piece."""
        if self._plain:
            return place + 1
        if self._starts is None:
            self._starts, at = [], 0
            for line in self._piece.split(b"\n"):
                self._starts.append(at)
                at += line.count(b"\r") + 1
        return bisect.bisect_right(self._starts, place)


def shown_text(text: str) -> str:
    """Return a text as evidence. Secrets are masked before it is clipped: a part of one is not recognized."""
    return masked(text.strip()[:_MASKED_CHARS])[:LONGEST_TEXT]


def shown_message(text: str) -> str:
    """Return the message of an exception as evidence: of a long one the beginning and the end, with secrets masked."""
    text = masked(text.strip()[:_MASKED_CHARS])
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[: LONGEST_TEXT - _END_CHARS - 5]} ... {text[-_END_CHARS:]}"


def clip_around_match(text: str, match: re.Match[str]) -> str:
    """Return a line as evidence: with secrets masked, then clipped around the match."""
    first = max(0, match.start() - _AROUND)
    text = masked(text[first : match.end() + _AROUND].strip())
    if len(text) > LONGEST_TEXT:
        at = max(0, text.find(match[0][:20]))
        start = max(0, min(at - 80, len(text) - LONGEST_TEXT))
        text = f"{'...' if start else ''}{text[start : start + LONGEST_TEXT - 6]}..."
    return text


def named_groups(match: re.Match[str]) -> dict[str, str]:
    """Return the groups that a match has, with secrets masked and digits that are no number of a program cut.

    Checks compute with them: int() refuses more than 4,300 digits, and a float holds 308.
    """
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    return {name: _DIGITS.sub(lambda digits: digits[0][:_MOST_DIGITS], masked(value)) for name, value in found.items()}


def strip_colors(text: str) -> str:
    """Return the text without escape sequences and control bytes."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "[" in text and "m" in text:
        text = _BARE_COLOR.sub("", text)
    return _CONTROL.sub("", text).rstrip()


def parse_line(raw: str, *, labelled: bool = False, year: int = 1970) -> Line:
    """Parse a raw log line. `year`: for prefixes that contain only month and day."""
    return (_parse_again if len(raw) <= LONGEST_TEXT else _parse)(raw, labelled, year)


def _parse(raw: str, labelled: bool, year: int) -> Line:
    whole = strip_colors(raw)
    text, rank, at, source = _REPEATED.sub("", whole) if whole.endswith((")", "]")) else whole, None, None, None
    if labelled and (label := _LABEL.match(text)):
        rank, text = int(label["rank"]), text[label.end() :]
    if found := _PDSH.match(text):
        text = text[found.end() :]
    for _ in range(5):
        for prefix in _PREFIXES:
            if text[:1] not in " \t" and (found := prefix.match(text)) and found.end():
                groups = found.groupdict()
                number = groups.get("rank") or groups.get("rank_after")
                rank = int(number) if rank is None and number else rank
                at = at or _time(groups, year)
                source = source or groups.get("source")
                text = text[found.end() :]
                break
        else:
            break
    if rank is None and (found := _IN_TEXT.search(text)):
        rank = int(found[1] or found[2])
    return Line(text, whole, rank, at, source)


_parse_again = functools.lru_cache(2048)(_parse)  # the end of a log is looked through for half a dozen things


def parse_start(raw: bytes) -> Line:
    """Parse the beginning of a line: enough to mask a secret in it before it is clipped."""
    return parse_line(raw[:_MASKED_CHARS].decode("utf-8", "replace"))


def looks_labelled(lines: list[str]) -> bool:
    """Whether these lines are from `srun --label`: nearly all begin with a number and a colon."""
    filled = [line for line in lines if line.strip()]
    return len(filled) >= 3 and sum(bool(_LABEL.match(line)) for line in filled) >= 0.9 * len(filled)


def _time(groups: dict[str, str | None], year: int) -> str | None:
    time = groups.get("time")
    if not time:
        return None
    time = time.replace(",", ".")[:12]
    if groups.get("date"):
        return f"{groups['date']}T{time}"
    if american := groups.get("american"):
        month, day, its_year = american.split("/")
        return f"{its_year}-{month}-{day}T{time}"
    return f"{year}-{int(groups['month'] or 0):02}-{groups['day']}T{time}"
