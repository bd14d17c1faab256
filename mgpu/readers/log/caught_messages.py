"""Is the program's last message that of an exception, which a script or a command caught and printed by itself?

Without its traceback and its type: "Model setup failed: only 4-bit weights", "command error: '...'!", also in Chinese,
Japanese and Korean. A usage text can follow it. Only the end of the log is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mgpu.readers.log.bare_exceptions import read_bare
from mgpu.readers.log.course import is_exit, is_handled
from mgpu.readers.log.line import looks_labelled, parse_line, shown_text
from mgpu.readers.log.own_error import OF_OTHERS
from mgpu.readers.log.torchrun_table import FAILURE_REPORT
from mgpu.snapshot import OwnError

_TAIL_CHARS = 1 << 14
_LOOKED_BACK = 30  # lines
_SEARCHED = 1000  # characters of a line
_WRAPPED = re.compile(
    r"(?:\b(?:command error|(?:error|exception) (?:occu(?:rr|r)ed|raised|caught|happened|encountered)"
    r"(?: (?:while|during|in|when|at) [^:]{1,60})?|(?:caught|got|unexpected|unhandled|uncaught) (?:an )?"
    r"(?:error|exception)|(?<!\d )(?:failed|crashed|aborted)(?: (?:with|due to|because of)(?: (?:error|exception))?)?|"
    r"failed to \w[^:]{1,60})|"
    r"(?:^\W{0,4}|(?<=[\]|-] ))(?:error|exception)|"  # elsewhere it is often a metric: "mean absolute error: 0.3"
    r"失败|错误|异常|报错|出错|失敗|錯誤|異常|エラー|例外|실패|오류|예외)\s?[:：]\s*(?P<message>\S.{5,})",
    re.I,
)
_LEVEL = re.compile(r"\b(?:INFO|DEBUG|WARN(?:ING)?|Warning|warning)\b|警告")
_NO_MESSAGE = re.compile(r"\d%\||Traceback|^\s*[{(]|^\s*File |frame #|://\S+$")
_USAGE = re.compile(r"(?i)^\W*usage:|\bsyntax\b|\barguments received\b|--help\b")
_OF_USAGE = re.compile(r"\s|$|.*\b(?:WARNING|ERROR|INFO)\b\W*$|usage:")
_WORDS = re.compile(r"[A-Za-z_]{2,}|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_FEWEST_WORDS = 3
_ERRNO = re.compile(r"\[Errno (\d{1,3})\]")
_OF_ERRNO = {1: "PermissionError", 2: "FileNotFoundError", 13: "PermissionError", 17: "FileExistsError"}
_TYPES = (("No module named ", "ModuleNotFoundError"), ("cannot import name ", "ImportError"))
_UNKNOWN = ("RuntimeError", "ValueError")


def find(tail: str, file: str, lines: int) -> OwnError | None:
    """Return the last message, if it is one. `tail`: the end of the file. `lines`: how many the file has."""
    text = tail[-_TAIL_CHARS:]
    first = lines - text.count("\n") + text.endswith("\n")  # number of the text's first line
    report = FAILURE_REPORT.search(text)
    raw = (text[: report.start()] if report else text).split("\n")
    labelled, usage, skipped = looks_labelled(raw[-20:]), False, False
    for place in range(len(raw) - 1, max(-1, len(raw) - 1 - _LOOKED_BACK), -1):
        shown = raw[place].rpartition("\r")[2]
        line = parse_line(shown, labelled=labelled)
        if OF_OTHERS.search(line.text) or is_exit(line.text):
            continue
        usage = usage or bool(_USAGE.search(line.text))
        if _OF_USAGE.match(line.text):
            skipped = True
            continue
        if usage == skipped and (message := _message(line.text, usage=usage)):
            return OwnError(shown_text(line.text), file, first + place, line.rank, shown_text(message))
        return None
    return None


def _message(text: str, *, usage: bool) -> str | None:
    """Return the message that a line reports as an error; `usage`: a usage text followed it."""
    text = text[:_SEARCHED]
    if is_handled(text) or _NO_MESSAGE.match(text) or (_LEVEL.search(text) and not usage):
        return None
    found = _WRAPPED.search(text)
    while found and (inner := _WRAPPED.match(found["message"])):
        found = inner
    if found is None:
        return None
    message = found["message"].strip()
    said = bool(_ERRNO.search(message)) or len(_WORDS.findall(message)) >= _FEWEST_WORDS
    return message if said and not message[0].isdigit() and not _NO_MESSAGE.match(message) else None


def exceptions(message: str) -> Iterator[str]:
    """Yield the message as the exceptions that can have it show it, the most likely first."""
    bare, quoted = message.rstrip("! "), 0
    while len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"`":
        bare, quoted = bare[1:-1], quoted + 1
    yield bare
    if (number := _ERRNO.match(bare)) is not None:
        yield f"{_OF_ERRNO.get(int(number[1]), 'OSError')}: {bare}"
        return
    known = read_bare(bare)
    names = [known[0]] if known else [name for start, name in _TYPES if bare.startswith(start)]
    if quoted:
        names.append("KeyError")
    for name in names or _UNKNOWN:
        yield f"{name}: '{bare}'" if name == "KeyError" else f"{name}: {bare}"
