"""Which Python exceptions are in a log? Interleaved tracebacks of several ranks are separated by rank.

Chained exceptions ("During handling of the above exception ...") count as one: the last one terminated the rank, and
the first one is its cause. Standard library only; processes one line at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mgpu.known_launchers import OTHERS
from mgpu.readers.log.learned_prefixes import HEAD
from mgpu.readers.log.line import LONGEST_TEXT, Line
from mgpu.readers.log.torchrun_table import STARTED
from mgpu.secrets_masking import masked
from mgpu.snapshot import UncaughtException

_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_RICH_FRAME = re.compile(r"(?P<file>/\S+|\S+\.py):(?P<line>\d+) in (?P<function>\S+)$")
_ENDS = re.compile(
    # lower case only with a module (socket.timeout), because "loss: 0.53" is not an exception
    r"(?P<type>(?:[A-Za-z_]\w*\.)*_*[A-Z]\w*|(?:[A-Za-z_]\w*\.)+(?!py:)[a-z_]\w*)"
    r"(?:: (?P<message>.*)|(?<=Error):|(?<=Exception):)?$"
)
# What the C++ library prints for an uncaught exception.
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>[\w:]+)")
_WHAT = re.compile(r"\s*what\(\):\s+(?P<message>.*\S)")
# A line that is nothing but an exception: all that is left of a traceback in a shortened log.
_BARE = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*_*[A-Z]\w*(?:Error|Exception|NotFound|Refused|Timeout|Expired)): (?P<message>.*\S)$"
)
# IPython: "ValueError      Traceback (most recent call last)", then "File /x/train.py:41, in main(batch)" or, before
# version 8, "/x/train.py in main(batch)".
_IPYTHON_HEAD = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)\s{2,}Traceback")
_IPYTHON_FRAME = re.compile(
    r"(?:File )?(?P<file>/?[\w./~+-]+\.py|<ipython-input[^>]*>|Cell In ?\[\d+\])(?:(?::|, line )(?P<line>\d+))?,? in "
    r"(?P<function>\w+|<[^>]*>)"
)
# Lines before tracebacks that do not terminate the process.
_HARMLESS = (
    "Exception ignored in",
    "Exception ignored while",
    "Error in atexit._run_exitfuncs",
    "Exception in thread ",
)
_GROUP = re.compile(r"[ |+-]*[|+] ?")  # in front of each line of an exception group's traceback
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Files that do not belong to the user.
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen |<string>|/lib64/python\d")
_QUOTED_FILE = re.compile(r"<(?:string|stdin|unknown|input|ast|exec|eval)>$|/tmp/(?!.*(?:torchinductor|site-packages))")
_INSTALLED = re.compile(r"(?:site|dist)-packages[/\\](?P<package>\w+)")
# Frames that pass on the arguments of their own caller: decorators, and the parsers that build an object of a config.
_PASSES_ON = re.compile(
    r"(?:^|[/\\])(?:_?deprecation|hf_argparser|_contextlib|import_utils)\.py$"
    r"|packages[/\\](?:hydra|jsonargparse|fire|click|typer|tyro|draccus|dacite|omegaconf)[/\\]"
)
_DECORATORS = frozenset({"wrapped_func", "wrapped", "wrapper", "inner_f", "inner", "_inner", "_inner_fn", "new_init"})
_PACKAGES = 8  # of the innermost frames
_LONGEST = 4000  # maximum lines of a traceback
_MASKED_CHARS = 4096  # of a message, searched for secrets; far fewer are kept
_MESSAGE_LINES = 30  # maximum lines of a message
_BARE_KEPT = 50
_FRAME_INDENT = 2  # of "File" in a traceback
_BLANK_LINES = 2  # between the links of a chain
_KEPT = 300  # different exceptions
_SWEPT_LINES = 1000  # interval for dropping incomplete tracebacks, left by ranks killed while printing
_LAUNCHER = re.compile("|".join(frame for known in OTHERS for frame in known.frames))
_RANK_BY_TORCH = re.compile(r"\[rank\d+\]:")


_Writer: TypeAlias = "int | str | None"  # a rank, else the prefix of a process, else not known


@dataclass
class _Open:
    """A traceback whose end has not been read."""

    number: int
    line: Line
    last: int = 0  # the number of its latest line
    frames: int = 0
    place: str | None = None  # of the deepest frame in one of the user's files
    deepest: str | None = None  # of the deepest frame in any file
    cause: str | None = None
    rich: bool = False
    length: int = 0
    harmless: bool = False
    loader: bool = False
    launcher: bool = False
    group: bool = False
    ipython: str = ""  # the type in IPython's head
    quoted: bool = True  # so far: no frame is in a file of its own
    code: str = ""  # the latest line of source code
    tail: str = ""  # the text after the latest frame, if it can be an exception without its type
    indent: int = 0  # of the whole traceback
    packages: tuple[str, ...] = ()


@dataclass
class _Ended:
    """An exception whose message can continue."""

    found: UncaughtException
    left: int = _MESSAGE_LINES
    unfinished: bool = False  # the first line of its message ends with a colon: the next one belongs to it
    signatures: list[str] = field(default_factory=list)


class Tracebacks:
    """Collects the exceptions of one file, line by line.

    `rows_of`: the signatures that match a text. `of_others`: those of launchers, Slurm and the kernel, whose lines can
    follow an exception without belonging to its message.
    """

    def __init__(self, file: str, rows_of: Callable[[str], tuple[str, ...]], of_others: Collection[str] = ()) -> None:
        self.file, self._rows_of, self._of_others = file, rows_of, of_others
        self._open: dict[_Writer, _Open] = {}
        self._ended: dict[_Writer, _Ended] = {}
        self._chained: dict[_Writer, tuple[str, tuple[str, ...]]] = {}
        self._thrown: dict[_Writer, str] = {}
        self._harmless: int | None = None  # number of the line that marks the next traceback as harmless
        self._swept = 0
        self.found: list[UncaughtException] = []  # in the order of their last lines
        self.ended = 0  # exceptions read so far; their messages can continue
        self.bare: list[UncaughtException] = []  # lines that look like the end of a traceback that is missing

    @property
    def waiting(self) -> bool:
        """Whether the next lines can belong to a traceback."""
        return bool(self._open or self._ended)

    def take(self, line: Line, number: int) -> None:
        """Process the next line that can belong to a traceback; all lines while one is open."""
        if number - self._swept >= _SWEPT_LINES:
            self._sweep(number)
        key = self._key_of(line)
        text = line.text
        if text.startswith(_HARMLESS):
            self._close(key)
            self._harmless = number
            return
        if thrown := _THROWN.match(text):
            self._thrown[key] = thrown["type"]
        elif (what := _WHAT.match(text)) and key in self._thrown:
            self._close(key)
            self._ended[key] = _Ended(self._exception(self._thrown.pop(key), what["message"], line, number))
            self._ended[key].signatures += self._rows_of(line.text)
            return
        if HEAD in text:
            self._close(key)
            harmless = self._harmless is not None and number - self._harmless <= _BLANK_LINES
            group = "Exception Group" in text
            rich = not group and ("─" in text or text.startswith(("+-", "╭")))
            indent = len(text) - len(text.lstrip()) if not text.partition(HEAD)[0].strip() else 0
            self._open[key] = _Open(number, line, number, rich=rich, harmless=harmless, group=group, indent=indent)
            if head := _IPYTHON_HEAD.match(text):
                self._open[key].ipython = head["type"].rpartition(".")[2]
            return
        if key in self._open:
            self._within(self._open[key], key, line, number)
        elif key in self._ended:
            self._read_after(self._ended[key], key, line)
        elif frame := _FRAME.match(text):  # a syntax error has no head
            indent = max(0, len(text) - len(text.lstrip()) - _FRAME_INDENT)
            self._open[key] = _Open(number, line, number, 1, _place(frame), _place(frame), indent=indent)
        elif len(self.bare) < _BARE_KEPT and (bare := _BARE.match(text)):
            alone = self._exception(bare["type"], bare["message"], line, number)
            self.bare.append(replace(alone, bare=True, signatures=self._rows_of(line.text)))

    def _key_of(self, line: Line) -> _Writer:
        """Return who wrote a line. A rank named only in the text ("nan on rank 1") is not reliable."""
        known = self._open.keys() | self._ended.keys()
        if line.rank is not None and line.text == line.whole and line.rank not in known and len(known) == 1:
            return next(iter(known))
        return line.source if line.rank is None else line.rank

    def _exception(self, name: str, message: str, line: Line, number: int) -> UncaughtException:
        """Return an exception of which the log has no traceback."""
        self.ended += 1
        of_launcher = name.rpartition(".")[2] == "CalledProcessError" and bool(STARTED.match(message))
        return UncaughtException(
            name,
            masked(message[:_MASKED_CHARS])[:LONGEST_TEXT],
            self.file,
            number,
            line.rank,
            line.at,
            ranks=() if line.rank is None else (line.rank,),
            of_launcher=of_launcher,
        )

    def end(self) -> None:
        """Finish the file, after its last line."""
        for key, one in list(self._open.items()):
            if one.tail and not one.harmless and not one.launcher:  # a printed message, without the exception's type
                ends = re.match("(?P<type>)(?P<message>.*)", one.tail)
                assert ends is not None
                self._add_exception(one, key, ends, one.line, one.last)
        self._open.clear()
        for key in list(self._ended):
            self._close(key)

    def _sweep(self, number: int) -> None:
        """Drop stale tracebacks, because every line is read while one is open."""
        self._swept = number
        for key in [key for key, one in self._open.items() if number - one.last > _LONGEST]:
            del self._open[key]
        for key in [key for key, one in self._ended.items() if number - one.found.line > _LONGEST]:
            self._close(key)

    def _within(self, one: _Open, key: _Writer, line: Line, number: int) -> None:
        text = line.text
        one.length += 1
        one.last = number
        if one.length > _LONGEST:
            del self._open[key]
            return
        if one.indent and not text[: one.indent].strip():
            text = text[one.indent :]
        if one.group:
            text = _GROUP.sub("", text, count=1) if text.lstrip().startswith("|") else text
        if one.rich:
            text = text.strip("│|").rstrip() if text.startswith(("│", "|")) else text
            if text.startswith(("╰", "+-")):
                one.rich = False
                return
            if frame := _RICH_FRAME.search(text.strip()):
                self._frame(one, frame)
            return
        if frame := _FRAME.match(text) or (_IPYTHON_FRAME.match(text) if one.ipython else None):
            self._frame(one, frame)
        elif one.ipython:
            ends = _ENDS.match(text)
            if ends and ends["type"].rpartition(".")[2] == one.ipython:
                self._add_exception(one, key, ends, line, number)
        elif text and not text[0].isspace() and one.frames and (ends := _ENDS.match(text)):
            self._add_exception(one, key, ends, line, number)
        elif text[:1].isspace() and text.strip(" ^~"):
            one.code = text.strip()
        elif text and not text[0].isspace() and one.length > 40 * (one.frames + 1):
            del self._open[key]  # the rest is missing
        elif text and not text[0].isspace() and one.frames and not one.tail:
            one.tail = text

    @staticmethod
    def _frame(one: _Open, frame: re.Match[str]) -> None:
        one.frames += 1
        one.tail = ""
        one.quoted &= bool(_QUOTED_FILE.match(frame["file"]))
        one.deepest = _place(frame)
        one.loader |= frame["file"].endswith("torch/utils/data/dataloader.py")
        one.launcher |= bool(_LAUNCHER.search(frame["file"]))
        if not _FOREIGN.search(frame["file"]):
            one.place = one.deepest
        installed = _INSTALLED.search(frame["file"])
        if installed and (frame["function"] in _DECORATORS or _PASSES_ON.search(frame["file"])):
            return
        if installed or not _FOREIGN.search(frame["file"]):
            package = installed["package"] if installed else ""
            if one.packages[-1:] != (package,):
                one.packages = (*one.packages, package)[-_PACKAGES:]

    def _add_exception(self, one: _Open, key: _Writer, ends: re.Match[str], line: Line, number: int) -> None:
        del self._open[key]
        if one.harmless:
            return
        text = ends["message"] or (one.code if one.code.startswith("assert ") else "")
        message = masked(text[:_MASKED_CHARS])[:LONGEST_TEXT]
        called = ends["type"].rpartition(".")[2] == "CalledProcessError"
        prefix = line.whole[: len(line.whole) - len(line.text)]
        of_text = line.text == line.whole  # a rank in such a line is part of its message
        known = key if isinstance(key, int) else None
        rank = known if of_text else line.rank if line.rank is not None else one.line.rank
        cause, signatures = self._chained.pop(key, (one.cause, ()))
        found = UncaughtException(
            ends["type"] or "Exception",
            message,
            self.file,
            number,
            rank,
            line.at or one.line.at,
            one.place or one.deepest,
            ranks=() if rank is None else (rank,),
            cause=cause,
            loader=one.loader,
            by_torch=bool(_RANK_BY_TORCH.search(prefix)),
            quoted=one.quoted,
            bare=not ends["type"],
            of_launcher=called and (one.launcher or bool(STARTED.match(text))),
            packages=one.packages,
        )
        self.ended += 1
        unfinished = line.text.rstrip().endswith(":")
        self._ended[key] = _Ended(found, unfinished=unfinished, signatures=[*signatures, *self._rows_of(line.text)])

    def _read_after(self, one: _Ended, key: _Writer, line: Line) -> None:
        """Process a line after the exception's first: more of its message, or the link to the next in a chain."""
        if line.text.startswith(_CHAINED):
            first = one.found
            began = first.cause or f"{first.type}: {first.message}".rstrip(": ")
            self._chained[key] = (began, tuple(one.signatures))
            del self._ended[key]
            return
        if one.unfinished and line.text.strip() and not line.at:
            joined = f"{one.found.message} {line.text.strip()}".strip()
            one.found = replace(one.found, message=masked(joined[:_MASKED_CHARS])[:LONGEST_TEXT])
            one.unfinished = joined.endswith(":")
        one.left = one.left - 1 if line.text else min(one.left - 1, _BLANK_LINES)
        if line.at or one.left <= 0 or "ChildFailedError" in line.text:
            self._close(key)
        elif one.left > _BLANK_LINES:
            one.signatures += [row for row in self._rows_of(line.text) if row not in self._of_others]

    def _close(self, key: _Writer) -> None:
        one = self._ended.pop(key, None)
        if one is None:
            return
        self.found.append(replace(one.found, signatures=tuple(dict.fromkeys(one.signatures))))
        if len(self.found) > _KEPT:
            del self.found[_KEPT // 2]  # the first and the last ones matter most


def _place(frame: re.Match[str]) -> str:
    name = frame["file"].replace("\\", "/").rpartition("/")[2]
    function = frame["function"]
    where = f"{name}:{frame['line']}" if frame["line"] else name
    return where if not function or function.startswith(("<module", "<cell")) else f"{where} in {function}"
