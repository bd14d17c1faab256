"""Do the last lines of a log show what a program writes once, after all of its epochs?

A test result, a saved report or the shell's prompt is the end of a run only if several epochs or steps stand before it,
and none of them is followed by such a line: otherwise the program writes it in each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.readers.log.counters import SEARCHED, counter
from mgpu.readers.log.line import parse_line

_LAST = 4  # lines in which it can be: a program writes several results
_BEFORE = 20  # lines before the shell's prompt that report no failure
_WRITTEN = r"(?:results?|metrics|report|curves?|plots?|history|summary|predictions|statistics|rewards)"
_RESULT = re.compile(
    r"\btest(?:ing)?[ _-]?(?:set )?(?:accuracy|acc|loss|f1|auc|score|mse|rmse|mae|bleu|ppl|perplexity|error|mean|map|"
    r"miou|dice)\b[^\w\n]{0,12}\d|"
    rf"\b{_WRITTEN}\b.{{0,60}}\b(?:saved|written|exported|dumped|stored)\b|"
    rf"\b(?:saved|wrote|written|exported|dumped)\b.{{0,60}}\b{_WRITTEN}\b|"
    r"^\W*next steps?:|\bsaved last checkpoint\b|\bclosing wandb\b|"
    # Chinese, Korean, Japanese, Russian: the training is complete, all is done, it ended with success
    r"(?:训练|学习|全部|所有).{0,12}(?:完成|结束|完毕)|(?:성공적으로|모든).{0,20}완료|학습.{0,8}완료|"
    r"(?:学習|訓練).{0,8}(?:完了|終了)|обучение (?:завершено|окончено)|успешно завершен",
    re.I,
)
_PROMPT = re.compile(r"(?:\([\w.-]+\) ?)*\[?[\w.-]+@[\w.-]+[: ][^$#\n]{0,200}[$#]\s*$")
_WRONG = re.compile(
    r"\berror\b|\w(?:Error|Exception)\b|\bexception\b|traceback|killed|failed|failure|abort|interrupt|core dumped|"
    r"signal",
    re.I,
)
_EPOCH = re.compile(r"\bepochs?\b[^\w\n]{0,6}(?P<epoch>\d{1,6})", re.I)
_FEWEST_STEPS = 3


def at_end(tail: str) -> str | None:
    """Return the last line of a log's tail that shows the end of a run; None if it shows none."""
    raw = [line.rstrip("\r").rpartition("\r")[2] for line in tail.split("\n")]
    lines = [parse_line(line).text for line in raw if line.strip()]
    if lines and _PROMPT.match(lines[-1]):
        return None if len(lines) <= _BEFORE or any(map(_WRONG.search, lines[-_BEFORE:])) else lines[-1]
    last = [line for line in lines[-_LAST:] if _RESULT.search(line)]
    if not last or any(map(_WRONG.search, lines[-_LAST:])) or any(map(_RESULT.search, lines[:-_LAST])):
        return None
    return last[-1] if _several(lines[:-1]) else None


def _several(lines: Sequence[str]) -> bool:
    """Whether the lines count several epochs, or several steps without a bar, which can be within one epoch."""
    epochs = {found["epoch"] for line in lines if (found := _EPOCH.search(line))}
    steps: dict[str, set[float]] = {}
    for line in lines:
        if "%|" not in line and (counted := counter(line[:SEARCHED])):
            steps.setdefault(counted[0], set()).add(counted[1])
    return len(epochs) > 1 or any(len(values) >= _FEWEST_STEPS for values in steps.values())
