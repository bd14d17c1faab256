"""Do the last lines of a log show what a program writes once, after all of its epochs?

A test result or a saved report is the end of a run only if several epochs are before it in the same part of the log,
and none of them is followed by such a line: otherwise the program writes it in each. It never shows that an error was
survived.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.readers.log.counters import ANNOUNCED
from mgpu.readers.log.line import parse_line

_LAST = 4  # lines in which it can be: a program writes several results
_FEWEST_EPOCHS = 3
_WRITTEN = r"(?:results?|metrics|report|curves?|history|summary|predictions|statistics|rewards)"
_RESULT = re.compile(
    r"\btest(?:ing)?[ _-]?(?:set )?(?:accuracy|acc|loss|f1|auc|score|mse|rmse|mae|bleu|ppl|perplexity|error|mean|map|"
    r"miou|dice)\b[^\w\n]{0,12}\d|"
    rf"\b{_WRITTEN}\b.{{0,60}}\b(?:saved|written|exported|dumped|stored)\b|"
    rf"\b(?:saved|wrote|written|exported|dumped)\b.{{0,60}}\b{_WRITTEN}\b|"
    # Chinese and Korean: the training is complete; it ended with success
    r"训练(?:已|全部)?(?:完成|结束|完毕)|성공적으로 완료",
    re.I,
)
_WRONG = re.compile(
    r"\berror\b|\w(?:Error|Exception)\b|\bexception\b|traceback|killed|failed|failure|abort|interrupt|core dumped|"
    r"signal|sig(?:term|int|kill|usr|hup)|out of memory|no space|quota|no such|can'?t open|not found|timed? ?out|"
    r"time.?limit|exceeded|cancel|preempt|requeue|terminated|stopped|stopping|broken pipe|disconnect|\bnan\b|"
    # of a part only, and what is read before the training
    r"\b(?:epoch|fold|step|trial|task|batch|shard|iteration)s?[ _#:=-]{0,3}\d|加载|读取|下载|第|로드|데이터",
    re.I,
)
_EPOCH = re.compile(r"\bepoch\b[^\w\n]{0,6}(?P<epoch>\d{1,6})", re.I)


def at_end(tail: str) -> str | None:
    """Return the last line of a log's tail that shows the end of a run; None if it shows none."""
    raw = [line.rstrip("\r").rpartition("\r")[2] for line in tail.split("\n")]
    lines = [parse_line(line).text for line in raw if line.strip()]
    last = [line for line in lines[-_LAST:] if _RESULT.search(line)]
    if not last or any(map(_RESULT.search, lines[:-_LAST])):
        return None
    after = lines[max(at for at, line in enumerate(lines) if _EPOCH.search(line)) + 1 :] if _epochs(lines) else []
    return last[-1] if last[-1] in after and not any(map(_WRONG.search, after[-_LAST:])) else None


def _epochs(lines: Sequence[str]) -> bool:
    """Whether the lines count enough epochs, one after the other."""
    seen = [int(found["epoch"]) for line in lines if (found := _EPOCH.search(line)) and not ANNOUNCED.search(line)]
    return len({*seen}) >= _FEWEST_EPOCHS and seen == sorted(seen)
