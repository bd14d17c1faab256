"""What was one rank still doing while the others waited for it? The last lines before a timeout show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mgpu.readers.log.counters import OF_DATASET, SEARCHED, counter, training_step, unnamed_total
from mgpu.readers.log.line import parse_start, shown_text
from mgpu.snapshot import LoneWork

LINES = 60  # before the timeout
# What a rank prints when it has waited without success.
TIMED_OUT = re.compile(
    rb"Watchdog caught collective|Timed out waiting \d+ms for|store->get|failed to pass monitoredBarrier|"
    rb"wait timeout after \d+ms|Socket Timeout|Caught collective operation timeout|in store based barrier on rank"
)
_MESSAGE = re.compile(rb"\[rank\d{1,5}\]:|\[E |\[Rank \d")
_LIMIT = re.compile(rb"(?:Timeout\(ms\)=|Timed out waiting |wait timeout after |in )(\d{1,12})(?: ?ms\b|[,) ])")
_SAVED = re.compile(
    r"\b(?:checkpoint|model|state)s? (?:(?:was|is|successfully) )?(?:saved|written)\b"
    r"(?! in \S+\.(?:json|bin|safetensors))|"
    r"\b(?:successfully|finished|done) (?:saved|saving)\b|\bsaved (?:the )?(?:checkpoint|model|state)|"
    r"\bsaving (?:is )?(?:done|finished|complete)|\b(?:saved|saving)\b.{0,60}\b(?:took|in) \d",
    re.I,
)
_MAPPED = (
    r"map|filter|running tokenizer|tokeniz\w*|generating \w+ (?:split|examples)|saving the dataset|group\w* texts|"
)
# By kind: what a line says, or the function in which the ranks wait. Lines of a finished bar do not count.
_LINES = {
    "data": re.compile(
        rf"\b(?:{_MAPPED}packing|flattening|casting|concatenating|pre-?process\w*)\b[^|]*?(?:\d%\||\.\.\.|:\s*$|examples/s)|"
        r"\b(?:tokenizing|pre-?processing|preparing|building|creating|indexing|loading|shuffling)\b(?: \w+){0,3} "
        rf"(?:data(?:set)?s?|corpus|index\w*|features|samples|examples|embeddings|cache)\b|{OF_DATASET.pattern}",
        re.I,
    ),
    "download": re.compile(r"\b(?:downloading\b|fetching \d+ files\b[^|]*\d%\|)", re.I),
    "load": re.compile(r"\bloading (?:the )?(?:checkpoint shards|pipeline components|model|weights)\b", re.I),
    "save": re.compile(
        r"\b(?:saving|writing|dumping|consolidating|gathering)\b(?: \S+){0,4}? ?"
        r"(?:checkpoints?|model|state|optimizer|weights|adapter|snapshot|\S+\.(?:pt|pth|bin|safetensors|ckpt))\b|"
        r"\b(?:start(?:ing|ed)?|begin(?:ning)?) (?:to )?(?:save|saving)\b|"
        r"state[_ ]dict\b.{0,40}\b(?:took|retrieved|retrieving|gather)|"
        r"\bretrieving\b.{0,40}\bstate[_ ]dict|\b(?:model weights|configuration|tokenizer config file) saved in\b",
        re.I,
    ),
    "evaluate": re.compile(
        r"\*{3,} ?running (?:evaluation|prediction|validation)|\b(?:evaluating|validating|validation|evaluation|"
        r"predicting|generating|processed prompts|computing metrics)\b[^|]*?(?:\d%\||\.\.\.|:?\s*$)",
        re.I,
    ),
}
_FRAME = re.compile(r'^\s*File "[^"]+", line \d+, in (?P<function>\w+)')
_FUNCTIONS = {
    "save": re.compile(r"^_?(?:save|dump)(?:_\w+)?$"),
    "evaluate": re.compile(r"^_?(?:evaluate|validate|eval|validation|predict)(?:_(?:step|loop|epoch|model))?$"),
    "data": re.compile(
        r"^_?(?:load_dataset|get_dataset|prepare_data(?:set)?|build_\w*data\w*|preprocess\w*|tokenize\w*|"
        r"\w*main_process_first|main_first|local_first)$"
    ),
}
# What a program says of something that has taken seconds; `choose` compares them with the timeout.
_LASTED = re.compile(
    r"(?<![a-z])(?:done|finished|completed?|ended)\b.{0,20}\b(?:after|in|took)[: ]+(?P<seconds>\d{2,7})(?:\.\d+)? ?"
    r"s(?:ec\w*)?\b",
    re.I,
)
_RANK = re.compile(r"\brank[=: ]{1,2}(?P<rank>\d{1,5})\b", re.I)
_USUAL_TIMEOUT_S = 600  # NCCL's in torch since 2.2, if the log does not say it: torch/csrc/distributed/c10d/Types.hpp
_LONG_S = 60  # shorter than any timeout
FULL_BAR = re.compile(r"100%\|")
_LASTING = ("evaluate", "save")  # other bars can begin and end within it
_SKIPPED = re.compile(r"\bnot\b|\bskip|\bwill\b|\bevery\b|\bargs?\b|_steps|strategy|=\s*(?:True|False|None)\b", re.I)


@dataclass(frozen=True)
class Candidate:
    """Work that a file shows, and whether a timeout follows it in that file."""

    work: LoneWork
    before_timeout: bool


def find(lines: Sequence[tuple[int, bytes]], name: str, rank: int | None, *, before_timeout: bool) -> Candidate | None:
    """Return the work that the last of these numbered lines shows; None if the run still trained, or nothing shows it.

    `rank`: of the file, if it is one rank's.
    """
    lines = lines[-LINES:]
    bars: set[float] = set()  # totals of the bars without a name after the line in question
    complete: set[str] = set()
    for place in range(len(lines) - 1, -1, -1):
        number, raw = lines[place]
        line = parse_start(raw)
        line = replace(line, text=line.text[:SEARCHED], whole=line.text)
        frame = _FRAME.match(line.text)
        if frame:
            kind = _kind_of(_FUNCTIONS, frame["function"])
            if kind:
                work = LoneWork(kind, shown_text(line.whole), name, number, None, frame["function"])
                return Candidate(work, before_timeout)
            continue
        if lasted := _lasting(line.text):
            named = _RANK.search(line.text)
            of = line.rank if line.rank is not None else int(named["rank"]) if named else rank
            return Candidate(LoneWork("long", shown_text(line.whole), name, number, of, took_s=lasted), before_timeout)
        if _SAVED.search(line.text):
            return None
        kind = kind_of_work(line.text)
        title = (counter(line.text) or ("",))[0]
        if kind and (FULL_BAR.search(line.text) or title in complete):
            complete.add(title)
            continue
        if kind:
            if (complete and kind not in _LASTING) or (bars and not _within(bars, lines[:place])):
                return None
            of = line.rank if line.rank is not None else rank
            return Candidate(LoneWork(kind, shown_text(line.whole), name, number, of), before_timeout)
        total = unnamed_total(line.text)
        if total is None and training_step(line.text):
            return None
        bars |= {total} if total is not None else set()
    return None


def _lasting(text: str) -> float | None:
    """Return the seconds that a line says something has taken, if it is long enough for a timeout."""
    found = _LASTED.search(text) if not training_step(text) else None
    return float(found["seconds"]) if found and int(found["seconds"]) >= _LONG_S else None


def _within(bars: set[float], before: Sequence[tuple[int, bytes]]) -> bool:
    """Whether bars without a name belong to the work before them: the training's bar has another total."""
    counted = (counter(parse_start(raw).text[:SEARCHED]) for _, raw in before)
    totals = {found[2] for found in counted if found and found[2] is not None}
    return bool(totals) and not bars & totals


def before_message(raw: bytes) -> bytes:
    """Return what a line has before the message of the rank that waited."""
    return _MESSAGE.split(raw, maxsplit=1)[0] if b"%|" in raw else b""


def limit_of(timeout: bytes) -> float | None:
    """Return the seconds that a rank waited, from the line that reports it."""
    found = _LIMIT.search(timeout)
    return int(found[1]) / 1000 if found else None


def choose(found: Iterable[Candidate], waiting: Iterable[int | None], timeout_s: float | None) -> LoneWork | None:
    """Return the work of a rank that is not among the waiting ones; nothing if no rank waited, or rank 0 did.

    A line without a rank is taken for rank 0's, which prints for all in most programs.
    """
    found, ranks = list(found), set(waiting)
    if not any(one.before_timeout for one in found) and not ranks:
        return None
    for one in found:
        work = one.work
        if work.took_s is not None and work.took_s < (timeout_s or _USUAL_TIMEOUT_S):
            continue
        if work.function or (work.rank not in ranks if work.rank is not None else 0 not in ranks):
            return replace(work, timeout_s=timeout_s)
    return None


def kind_of_work(text: str) -> str | None:
    """Return the kind of work that a line shows: save, data, download, load, evaluate; None if it shows none."""
    return None if _SKIPPED.search(text) else _kind_of(_LINES, text)


def _kind_of(kinds: dict[str, re.Pattern[str]], text: str) -> str | None:
    return next((kind for kind, pattern in kinds.items() if pattern.search(text)), None)
