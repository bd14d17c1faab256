"""Which problem did the program report in its last lines before an exception? Often it is the reason for it.

"error in sample 17: list index out of range" for each sample, then an exception about an empty batch. Only the end of
the log is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from mgpu.readers.log.course import is_handled
from mgpu.readers.log.learned_prefixes import HEAD
from mgpu.readers.log.line import parse_line, shown_text
from mgpu.readers.log.own_error import OF_OTHERS

_LINES = 8  # that are not empty, before the traceback
_TRACEBACK_LINES = 400  # most lines between the head of a traceback and its exception
_PROBLEM = re.compile(
    r"\b(?:errors?|failed|failure|exception|not found|missing|cannot|can't|could ?n[o']t|unable|invalid|"
    r"unsupported|unrecogni[sz]ed|is unknown|^unknown \w+|skip(?:ping|ped)?|empty|mismatch\w*|no such|does not|is not|"
    r"ignor(?:ed|ing)|corrupt\w*|truncated|unexpected|"
    r"(?:no|0|zero|found no) (?:\w+ )?(?:samples?|images?|files?|batch(?:es)?|rows?|examples?|records?|checkpoints?|"
    r"labels?|data|datasets?|valid)|length (?:is |of )?0|not (?:supported|available|exist|initialized))\b",
    re.I,
)
# Said again with the exception, or settled: the program does something else instead.
_SETTLED = re.compile(
    r"Error executing job with|Exception during training|\bwill (?:use|be)\b|\busing\b|\binstead\b|\bdefault|"
    r"Some weights of|This IS (?:NOT )?expected if you|"
    r"\bSkipping (?:import|monkey|the)\b|frozen to produce an executable|\bfrom scratch\b|"
    r"\bno (?:missing|unexpected|errors?)\b|\bpassed\b",
    re.I,
)
# What libraries print in every run, launchers, tracebacks, bars, code, options and the values of a step.
_OTHERS = re.compile(
    r"^[\u2500-\u257f]|"
    r"(?-i:[a-z]Warning\b)|warnings?\.warn|\bDEBUG\b|/(?:site|dist)-packages/|^\s|^[-=*#+_~^]{3}|\d%\||\bit/s\b|"
    r"^File \"|Traceback|During handling|direct cause|^[\w.]+(?:Error|Exception)\b|^wandb\b|"
    r"\btensorflow/\w+/\S+\.cc:\d+\]|"
    r"\b(?:absl|TF-TRT|oneDNN|cuDNN factory|OMP_NUM_THREADS|"
    r"tokenizers|deprecat\w+|weights_only)\b|^[{\[(]|^\w+\s*[=:]\s*\S+$|^[-.\w]+=|^--|"
    r"\b(?:loss|acc(?:uracy)?|lr|error(?: rate)?)\s*[=:]?\s*-?\d|^(?:raise|return|assert|with|if|for|def)\b.*[:)]$",
    re.I,
)
# An exception of a program that waited, and what such a program prints each time it looks.
_WAITED = re.compile(
    r"timeout|timed? ?out|\bin time\b|(?:start|ready|become|come|connect|reach|respond)\w* (?:up )?"
    r"(?:in|within|after|for) \d|maximum number of (?:retries|attempts)|"
    r"\b(?:retries|attempts)\b.*\b(?:exceeded|exhausted)|\bwait(?:ed|ing)?\b",
    re.I,
)
_NOT_YET = re.compile(
    r"\b(?:not|isn't|aren't)\b(?: \w+)? (?:ready|up|running|available|reachable|healthy|responding|alive|started|"
    r"connected|found|there)\b|\bnot yet\b|\b(?:still|retrying|waiting)\b.*\b(?:for|on|to)\b",
    re.I,
)
_WAIT_LINES, _TIMES = 80, 3
_WORDS = re.compile(r"[A-Za-z]{2,}")
# A shell, a tool or another script, which the job script starts after the program: "run.sh: line 9: x: command not
# found", "mv: cannot stat ...". Messages of a program begin with a name only if it is a level ("error: ").
_OF_NEXT_COMMAND = re.compile(
    r"(?!(?:error|warning|critical|info|debug|exception|note):)[/.~\w-]*[a-z][\w.+-]*(?:\[\d+\])?: |"
    r"\S+: (?:line )?\d+: |\S+\.(?:sh|py|sbatch|slurm): |.*\bcommand not found|.*: No such file or directory$"
)
_FEWEST_WORDS = 3


def find(
    lines: Sequence[str], last: int, rank: int | None, is_noise: Callable[[str], bool], first: str | None = None
) -> str | None:
    """Return the latest such line of the same rank.

    `lines`: of the end of the log. `last`: the place of the exception among them. `is_noise`: whether a text is known
    as no problem. `first`: the first exception of its chain.
    """
    head = first_head(lines, last)
    if head is None:
        return None
    if _WAITED.search(f"{lines[last]}\n{first}") and (waited := _waited_for(lines[:head], rank)):
        return shown_text(waited)
    said = [one for raw in reversed(lines[max(0, head - 5 * _LINES) : head]) if (one := parse_line(raw)).text.strip()]
    texts = [one.text.rstrip() for one in said[:_LINES] if one.rank is None or rank is None or one.rank == rank]
    found = next((text.strip() for text in texts if _is_problem(text) and not is_noise(text.strip())), None)
    return shown_text(found) if found else None


def _waited_for(before: Sequence[str], rank: int | None) -> str | None:
    """Return what the program printed several times at last while it waited; None if nothing of that kind.

    A line that names what is not ready comes before one that only says that the program waits.
    """
    lines = map(parse_line, before[-_WAIT_LINES:])
    texts = [one.text.strip() for one in lines if one.rank is None or rank is None or one.rank == rank]
    times = Counter(text for text in texts if _NOT_YET.search(text) and not _OTHERS.search(text))
    often = [text for text in dict.fromkeys(reversed(texts)) if times[text] >= _TIMES]
    return next((text for text in often if " not " in text), often[0] if often else None)


def find_after(lines: Sequence[str], last: int, rank: int | None, is_noise: Callable[[str], bool]) -> str | None:
    """Return the latest such line at the end of the log: output in a buffer is written when the process ends.

    Parameters as in `find`. None if another exception follows. What later commands of the job script print is left out.
    """
    if any(HEAD in raw for raw in lines[last + 1 :]):
        return None
    below = [parse_line(raw) for raw in lines[last + 1 :][-5 * _LINES :]]
    others = (OF_OTHERS.search(one.text) or _OF_NEXT_COMMAND.match(one.text.strip()) for one in below)
    said = [one for one, other in zip(below, others, strict=True) if not other][-_LINES:]
    texts = [one.text.strip() for one in reversed(said) if one.rank is None or rank is None or one.rank == rank]
    found = next((text for text in texts if _is_problem(text) and not is_noise(text)), None)
    return shown_text(found) if found else None


def first_head(lines: Sequence[str], last: int) -> int | None:
    """Return where the traceback of an exception begins, or the first one of its chain. `last`: as in `find`."""
    heads = (at for at in range(last, max(-1, last - _TRACEBACK_LINES), -1) if HEAD in lines[at])
    head = next(heads, None)
    while head is not None and (above := next(heads, None)) is not None and _are_one(lines, above, head):
        head = above  # the exceptions of a chain
    return head


def _are_one(lines: Sequence[str], above: int, head: int) -> bool:
    return any("exception occurred:" in line or "direct cause" in line for line in lines[max(above, head - 4) : head])


def _is_problem(text: str) -> bool:
    if _OTHERS.search(text) or _SETTLED.search(text) or is_handled(text) or len(_WORDS.findall(text)) < _FEWEST_WORDS:
        return False
    return bool(_PROBLEM.search(text))
