"""What did the program print last, before its launcher reported that a rank had failed, or before it was killed?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgpu.readers.log.counters import progress, training_step
from mgpu.readers.log.line import parse_line, shown_text
from mgpu.readers.log.lone_work import FULL_BAR, kind_of_work
from mgpu.readers.log.torchrun_table import FAILURE_REPORT
from mgpu.snapshot import FailedRank

_WORDS = re.compile(r"^(?!.*(?:Setting OMP_NUM_THREADS|closing signal SIG)).*\w")
# The first line that reports a process that a signal stopped, or memory that was refused.
_KILLED = re.compile(
    r"SIGKILL|[Kk]illed process \d|oom[-_]kill|exitcode\s*:? ?-9\b|return code = -9\b|on signal 9\b|"
    r"line \d+: +\d+ Killed |^Killed$|exit(?:ed with)? (?:code|status) 137\b|"
    r"due to memory pressure|node running low on memory|"
    r"OOMKilled|invoked oom-killer|[Oo]ut [Oo]f [Mm]emory: Kill|: Out Of Memory$|^MemoryError|_ArrayMemoryError|"
    r"DefaultCPUAllocator|std::bad_alloc|[Cc]annot allocate memory|Sending process \d+ closing signal|"
    r"Killing subprocess \d|signal: Killed|got signal: \d|Received \S+ death signal|"
    r"CUDA out of memory|CUDA error: out of memory|OutOfMemoryError",
    re.M,
)
_OFFLOADS = re.compile(
    r"see_memory_usage\]|stage(?:3|_1_and_2)\.py:\d+:__init__|creating fp(?:16|32) partitions|\bcpu_adam\b|"
    r"initializing optimizer states|Parameter Offload:|Adam Optimizer #\d+ is created"
)
# What C++ prints before it aborts a process. The other ranks may print more before the launcher reports it.
_TERMINATED = re.compile(r"terminate called (?:without an active exception|after throwing|recursively)")
_OF_OTHERS = 20  # lines
_SETTLED_STEPS = 5  # after these, each step needs the same memory for batches of the same size
_LOOKED_BACK = 25  # lines before the kill, without those of a traceback
# The result of an evaluation: "test/loss: 4.04", "Validation accuracy 0.91", "eval_loss=1.2".
_EVALUATED = re.compile(
    r"(?<![A-Za-z])(?:val|valid|validation|test|eval|evaluation)"
    r"(?:[ _/-](?:set|loss|acc\w*|ppl|perplexity|\w*score|m?iou|map|psnr|f1|error)){1,2}[\"']?\s{0,3}[:=]?\s{0,3}-?\d|"
    r"(?<![A-Za-z])(?:loss|acc\w*)[/_ ](?:val\w*|test|eval)\W{1,3}-?\d",
    re.I,
)
_BAR = re.compile(r"\d%\||(?:it/s|s/it)\]")
_OF_TRACEBACK = re.compile(r"\s(?!\s*\d{1,3}%\|)|Traceback |[╭│╰]|[-=]{5}")


def last_words(tail: str, fallen: Iterable[FailedRank]) -> str | None:
    """Return the program's last line before its launcher reported a failed rank. `tail`: the end of the log.

    Lines with the prefix of another rank are not the last words of the one that failed first. A line of the C++
    runtime about the end of a process is, also if the others printed lines after it.
    """
    first = {one.rank for one in fallen if one.first}
    text = tail.replace("\r", "\n")
    of_launcher = FAILURE_REPORT.search(text)
    lines = [line for line in text[: of_launcher.start() if of_launcher else 0].split("\n") if _WORDS.search(line)]
    parsed = [parse_line(line) for line in reversed(lines)]
    own = [one for one in parsed if one.rank is None or not first or one.rank in first]
    last = next((one for one in own[:_OF_OTHERS] if _TERMINATED.match(one.text)), own[0] if own else None)
    return shown_text(last.text) or None if last else None


def last_work(tail: str) -> str | None:
    """Return what the end of a log showed last before a process was killed: see `Log.last_work`."""
    text = tail.replace("\r", "\n")
    killed = _KILLED.search(text)
    if not killed:
        return None
    lines = [line for line in text[: killed.start()].split("\n") if line.strip()]
    parsed = (parse_line(line).text for line in reversed(lines))
    shown = [line for line in parsed if line and not _OF_TRACEBACK.match(line)]
    for place, line in enumerate(shown[:_LOOKED_BACK]):
        if _OFFLOADS.search(line):
            return "offload"
        if _EVALUATED.search(line) and not _BAR.search(line) and any(map(_is_later_step, shown[place + 1 :])):
            return "evaluated"
        kind = kind_of_work(line)
        if kind and (kind == "load" or not FULL_BAR.search(line)):
            return kind
        if training_step(line):
            return "train" if _is_later_step(line) else None
    return None


def _is_later_step(line: str) -> bool:
    """Whether several steps had been made, so the first optimizer step was one of them."""
    name, at, _ = progress(line) or ("", 0.0, None)
    return training_step(line) and (at >= _SETTLED_STEPS or "epoch" in name)
