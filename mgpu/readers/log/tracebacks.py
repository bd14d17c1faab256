"""Which Python exceptions are in a log? Interleaved tracebacks of several ranks are separated by rank.

Chained exceptions ("During handling of the above exception ...") count as one: the last one terminated the rank, and
the first one is its cause. Standard library only; processes one line at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias

from mgpu.readers.log.bare_exceptions import code_above, is_frame_of_package, opens_another, read_bare, takes_frames
from mgpu.readers.log.chained_exceptions import after
from mgpu.readers.log.learned_prefixes import HEAD
from mgpu.readers.log.line import Line, shown_message
from mgpu.readers.log.message_lines import continues
from mgpu.readers.log.open_message import OpenMessage
from mgpu.readers.log.open_traceback import OpenTraceback, is_record
from mgpu.readers.log.torchrun_table import LAUNCHER_EXCEPTIONS, STARTED
from mgpu.readers.log.traceback_frames import FRAME, IPYTHON_CODE, IPYTHON_FRAME, IPYTHON_NEIGHBOR, RICH_FRAME
from mgpu.snapshot import CutTraceback, UncaughtException

# In a pasted log, with the indentation of the code above it, and perhaps bold in Markdown.
_INDENTED_END = re.compile(r"\s+(?:\*\*)?(?P<line>[A-Z]\w*(?:Error|Exception): .*?)(?:\*\*)?$")
_ENDS = re.compile(
    # lower case only with a module (socket.timeout), because "loss: 0.53" is not an exception
    r"(?P<type>(?:[A-Za-z_]\w*\.)*_*(?!(?:None|True|False|NaN|Node)\b)[A-Z]\w*|(?:[A-Za-z_]\w*\.)+(?!py:)[a-z_]\w*)"
    r"(?:: (?P<message>.*)|(?<=Error):|(?<=Exception):|(?<=Interrupt):)?$"
)
# What the C++ library prints for an uncaught exception.
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>[\w:]+)")
_WHAT = re.compile(r"\s*what\(\):\s+(?P<message>.*\S)")
# IPython: "ValueError      Traceback (most recent call last)", then "File /x/train.py:41, in main(batch)" or, before
# version 8, "/x/train.py in main(batch)".
_IPYTHON_HEAD = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)\s{2,}Traceback")
# Lines before tracebacks that do not terminate the process.
_IN_THREAD = ("Exception in thread ", "Thread HandlerThread:", "Thread SenderThread:", "Thread WriterThread:")  # wandb
_HARMLESS = (
    "Exception ignored in",
    "Exception ignored while",
    "Error in atexit._run_exitfuncs",
    "Error in sys.excepthook:",  # of what reports an exception, which Python prints after it
    "Could not load bitsandbytes native library",  # it goes on; a call of what is missing fails later
    *_IN_THREAD,
)
# Ray repeats a worker's exception in the process that waited for it: the worker's own frames and exception follow.
_REPEATED_BY_RAY = re.compile(
    r"(?:ray\.exceptions\.)?(?:RayTaskError\(\w+\)|\w+): (?:ray::|The actor died because of an error raised in its "
    r"creation task)"
)
# The prefix of a process, at which the log was cut: "(EngineCore_DP0 pid=4".
_CUT_PREFIX = re.compile(r"\([A-Za-z]\w*(?: (?:pid|rank|ip)?=?[\d.]*)?$")
# What is left of a message if several processes write their type and message to one file at the same time.
_TORN = re.compile(
    r": (?:[A-Z][a-z]{0,20}Error){0,9}(?P<message>[^\s:].*?)(?:(?:[A-Z][a-z]{0,20}Error)?(?:: ?){1,9})?$"
)
_ANY = "?"  # in place of the type, if IPython's head is missing
_GROUP = re.compile(r"[ |+-]*[|+] ?")  # in front of each line of an exception group's traceback
_DIRECT = "The above exception was the direct cause"
_CHAINED = ("During handling of the above exception", _DIRECT)
_LONGEST = 4000  # maximum lines of a traceback
_BARE_KEPT = 50
_FRAME_INDENT = 2  # of "File" in a traceback
_BLANK_LINES = 2  # between the links of a chain
_LINES_OF_THREADS = 60  # in which threads that end together print their tracebacks
_KEPT = 300  # different exceptions
_SWEPT_LINES = 1000  # interval for dropping incomplete tracebacks, left by ranks killed while printing
_RANK_BY_TORCH = re.compile(r"\[rank\d+\]:")


_Writer: TypeAlias = "int | str | None"  # a rank, else the prefix of a process, else not known


class Tracebacks:
    """Collects the exceptions of one file, line by line.

    `rows_of`: the signatures that match a text. `of_others`: those of launchers, Slurm and the kernel, whose lines can
    follow an exception without belonging to its message.
    """

    def __init__(self, file: str, rows_of: Callable[[str], tuple[str, ...]], of_others: Collection[str] = ()) -> None:
        self.file, self._rows_of, self._of_others = file, rows_of, of_others
        self._open: dict[_Writer, OpenTraceback] = {}
        self._ended: dict[_Writer, OpenMessage] = {}
        self._chained: dict[_Writer, tuple[OpenMessage, bool]] = {}  # with whether it is the direct cause of the next
        self._thrown: dict[_Writer, str] = {}
        self._process_of: dict[int, str] = {}  # which process raised the exception of a line, if a prefix names it
        self._by_process: Counter[str] = Counter()
        self._harmless: int | None = None  # number of the line that marks the next traceback as harmless
        self._in_thread = False  # that line names a thread
        self._cut_harmless: dict[_Writer, int] = {}  # a harmless one that another began within, and that line's number
        self.of_thread: UncaughtException | None = None  # the latest one that only ended a thread
        self._swept = 0
        self.above = b""  # the line of the file above the one to process
        self.found: list[UncaughtException] = []  # in the order of their last lines
        self.ended = 0  # exceptions read so far; their messages can continue
        self.ignored = False  # the latest line is an exception that Python ignored
        self.quotes_code = False  # the latest line shows source code: its strings are not messages
        self.cut: list[CutTraceback] = []  # whose exception is not in the log
        self.bare: list[UncaughtException] = []  # lines that look like the end of a traceback that is missing

    @property
    def waiting(self) -> bool:
        """Whether the next lines can belong to a traceback."""
        return bool(self._open or self._ended or self._cut_harmless)

    def take(self, line: Line, number: int) -> None:
        """Process the next line that can belong to a traceback; all lines while one is open."""
        self.quotes_code = self.ignored = False
        if number - self._swept >= _SWEPT_LINES:
            self._sweep(number)
        key = self._key_of(line)
        text = line.text
        if text.startswith(_HARMLESS):
            self._close(key)
            self._harmless, self._in_thread = number, text.startswith(_IN_THREAD)
            return
        if thrown := _THROWN.match(text):
            self._thrown[key] = thrown["type"]
        elif (what := _WHAT.match(text)) and key in self._thrown:
            self._close(key)
            self._ended[key] = OpenMessage(self._exception(self._thrown.pop(key), what["message"], line, number))
            self._ended[key].signatures += self._rows_of(line.text)
            return
        if HEAD in text:
            self._head(key, line, number)
            return
        if key in self._open:
            self._within(self._open[key], key, line, number)
            return
        if key in self._ended and self._ended[key].alone and opens_another(text):
            self._close(key)
        if key in self._ended:
            self._read_after(self._ended[key], key, line)
        else:
            self._without_head(key, line, number)

    def _head(self, key: _Writer, line: Line, number: int) -> None:
        """Process the first line of a traceback."""
        text = line.text
        self._close(key)
        harmless = self._harmless is not None and number - self._harmless <= _BLANK_LINES
        group = "Exception Group" in text
        rich = not group and ("─" in text or text.startswith(("+-", "╭")))
        indent = len(text) - len(text.lstrip()) if not text.partition(HEAD)[0].strip() else 0
        first = self._open[key].first if key in self._open else None  # another process writes into this one
        if harmless and key in self._open and self._open[key].harmless:
            self._cut_harmless[key] = number
        self._open[key] = OpenTraceback(
            number,
            line,
            number,
            rich=rich,
            harmless=harmless,
            group=group,
            indent=indent,
            first=first,
            logged=is_record(self.above),
        )
        if head := _IPYTHON_HEAD.match(text):
            self._open[key].ipython = head["type"].rpartition(".")[2]

    def _without_head(self, key: _Writer, line: Line, number: int) -> None:
        """Process a line of a traceback whose head is not in the log, or an exception without its traceback."""
        text = line.text
        if frame := FRAME.match(text):  # a syntax error has no head
            harmless = self._cut_harmless.pop(key, None) is not None
            indent = max(0, len(text) - len(text.lstrip()) - _FRAME_INDENT)
            self._open[key] = self._head_of_logger(line, number) or OpenTraceback(
                number, line, number, indent=indent, harmless=harmless
            )
            self._open[key].add_frame(frame)
        elif is_frame_of_package(text) and (frame := IPYTHON_FRAME.match(text)):
            self._open[key] = OpenTraceback(number, line, number, ipython=_ANY)
            self._open[key].add_frame(frame)
        elif len(self.bare) < _BARE_KEPT and (bare := read_bare(text)):
            alone = replace(self._exception(*bare, line, number), bare=True, code=code_above(self.above))
            self._ended[key] = OpenMessage(alone, signatures=list(self._rows_of(line.text)), alone=True)

    def _head_of_logger(self, line: Line, number: int) -> OpenTraceback | None:
        """Return the traceback whose head is the line above, to which only a logger gave its prefix."""
        for key, one in self._open.items():
            if line.source is None and one.line.rank is None and (one.number, one.frames) == (number - 1, 0):
                return self._open.pop(key)
        return None

    def _key_of(self, line: Line) -> _Writer:
        """Return who wrote a line. A rank named only in the text ("nan on rank 1") is not reliable."""
        known = self._open.keys() | self._ended.keys()
        if line.rank is not None and line.text == line.whole and line.rank not in known and len(known) == 1:
            return next(iter(known))
        return line.source if line.rank is None else line.rank

    def _exception(self, name: str, message: str, line: Line, number: int) -> UncaughtException:
        """Return an exception of which the log has no traceback."""
        self.ended += 1
        return UncaughtException(
            name,
            shown_message(message),
            self.file,
            number,
            line.rank,
            line.at,
            ranks=() if line.rank is None else (line.rank,),
            of_launcher=_is_of_launcher(name, message),
        )

    def end(self) -> None:
        """Finish the file, after its last line."""
        for one in self._open.values():
            if self.bare and takes_frames(self.bare[-1], one.number) and not one.tail:  # pasted below their message
                above = self.bare.pop()
                if not _REPEATED_BY_RAY.match(f"{above.type}: {above.message}"):  # else the worker's own one is cut
                    self.bare.append(replace(above, more=None, place=one.place or one.deepest, **one.facts()))
        for key, one in list(self._open.items()):
            if one.tail and not one.harmless and not one.launcher:  # a printed message, without the exception's type
                typed = _ENDS.match(one.tail)
                ends = typed or re.match("(?P<type>)(?P<message>.*)", one.tail)
                assert ends is not None
                self._add_exception(one, key, ends, replace(one.line, text=one.tail) if typed else one.line, one.last)
        for key, (first, _) in self._chained.items():  # the log ends before the next exception of the chain
            self._ended.setdefault(key, first)
        cut = [one.as_cut(self.file) for key, one in self._open.items() if key not in self._ended]
        self.cut = [one for one in cut if one is not None]
        self._open.clear()
        for key in list(self._ended):
            self._close(key)
        self.found = [
            replace(self._with_ranks(one), by_one=self._by_process[self._process_of.get(one.line, "")] or 1)
            for one in self.found
        ]

    def _with_ranks(self, one: UncaughtException) -> UncaughtException:
        """Add the ranks of which the log has only the same last line, as in a shortened log."""
        alike = [bare for bare in self.bare if (bare.type, bare.message) == (one.type, one.message)]
        return replace(one, ranks=tuple(sorted({*one.ranks, *(rank for bare in alike for rank in bare.ranks)})))

    def _sweep(self, number: int) -> None:
        """Drop stale tracebacks, because every line is read while one is open."""
        self._swept = number
        for key in [key for key, one in self._open.items() if number - one.last > _LONGEST]:
            del self._open[key]
        for key in [key for key, one in self._ended.items() if number - one.found.line > _LONGEST]:
            self._close(key)
        self._cut_harmless = {key: at for key, at in self._cut_harmless.items() if number - at <= _LONGEST}

    def _within(self, one: OpenTraceback, key: _Writer, line: Line, number: int) -> None:
        text = line.text
        one.length, one.last = one.length + 1, number
        if one.length > _LONGEST:
            del self._open[key]
            return
        if one.indent and not text[: one.indent].strip():
            text = text[one.indent :]
        if one.group and text.lstrip().startswith("|"):
            text = _GROUP.sub("", text, count=1)
        if one.rich:
            text = text.strip("│|").rstrip() if text.startswith(("│", "|")) else text
            if text.startswith(("╰", "+-")):
                one.rich = False
                return
            if frame := RICH_FRAME.search(text.strip()):
                one.add_frame(frame)
            self.quotes_code = not frame
            return
        self.quotes_code = bool(one.frames) and text[:1].isspace() and not FRAME.match(text)
        if self.quotes_code and one.code and not one.ipython:
            one.add_below(text)
        if frame := FRAME.match(text) or (IPYTHON_FRAME.match(text) if one.ipython else None):
            one.add_frame(frame)
        elif one.frames and one.expects_code and (code := _code(text, ipython=bool(one.ipython))):
            one.add_code(code, text)
        elif one.ipython:
            ends = _ENDS.match(text)
            if ends and (ends["type"].rpartition(".")[2] == one.ipython or (one.ipython == _ANY and read_bare(text))):
                self._add_exception(one, key, ends, line, number)
        elif _REPEATED_BY_RAY.match(text):
            one.code = ""
        elif text and not text[0].isspace() and one.frames and (ends := _ENDS.match(text)):
            self._add_exception(one, key, ends, line, number)
        elif text and not text[0].isspace() and one.length > 40 * (one.frames + 1):
            del self._open[key]  # the rest is missing
        elif text and not text[0].isspace() and one.frames and not one.tail and not _CUT_PREFIX.match(text):
            one.tail = text
        elif one.frames and not one.tail and (ends := _INDENTED_END.match(text)):
            one.tail, self.quotes_code = ends["line"], False

    def _add_exception(self, one: OpenTraceback, key: _Writer, ends: re.Match[str], line: Line, number: int) -> None:
        del self._open[key]
        if one.harmless and not self._in_thread:
            self.ignored = True
            self._chained.pop(key, None)
            return
        of_assert = one.code.startswith("assert ") and ends["type"] == "AssertionError"  # Python shows nothing more
        text = ends["message"] or (one.code if of_assert else "")
        rank = _rank(one, key, line)
        earlier = self._chained.get(key)
        cause, signatures, direct = self._began_with(key, ends["type"] or "") or (one.cause, (), False)
        found = UncaughtException(
            ends["type"] or "Exception",
            shown_message(text),
            self.file,
            number,
            rank,
            line.at or one.line.at,
            one.place or one.deepest,
            ranks=() if rank is None else (rank,),
            cause=cause,
            loader=one.loader,
            by_torch=bool(_RANK_BY_TORCH.search(line.whole.removesuffix(line.text))),
            quoted=one.quoted,
            bare=not ends["type"],
            of_launcher=_is_of_launcher(ends["type"] or "", text, in_launcher=one.launcher),
            direct=direct,
            logged=one.logged,
            **one.facts(),
        )
        found = after(earlier[0], found, one.facts(), direct=direct) if earlier else found
        if one.harmless or self._of_another_thread(found, one):
            self.of_thread = replace(found, signatures=self._rows_of(line.text))
            return
        self.ended += 1
        if isinstance(key, str):
            self._by_process[key] += 1
            self._process_of[number] = key
        signatures = (*signatures, *self._rows_of(line.text))
        self._ended[key] = OpenMessage(found, signatures=list(signatures))

    def _of_another_thread(self, found: UncaughtException, one: OpenTraceback) -> bool:
        """Whether a thread raised the same just before: several ended together, and cut each other's first lines."""
        thread = self.of_thread
        if thread is None or one.place or found.line - thread.line > _LINES_OF_THREADS:
            return False
        return (found.type, found.message) == (thread.type, thread.message)

    def _began_with(self, key: _Writer, kind: str) -> tuple[str, tuple[str, ...], bool] | None:
        """Return how the chain of the next exception began: text, signatures, whether it is the direct cause."""
        chained, direct = self._chained.pop(key, (None, False))
        if chained is None:
            return None
        first = chained.whole()
        itself = f"{first.type}: {first.message}".rstrip(": ")
        if direct and kind.startswith("triton.") and not first.direct:  # before it, its cache had no such kernel
            return itself, tuple(chained.signatures), True
        began = first.cause or itself
        return began, tuple(chained.signatures), direct and (first.direct or not first.cause)

    def _read_after(self, one: OpenMessage, key: _Writer, line: Line) -> None:
        """Process a line after the exception's first: more of its message, or the link to the next in a chain."""
        if line.text.startswith(_CHAINED):
            self._chained[key] = self._ended.pop(key), line.text.startswith(_DIRECT)
            return
        if not one.found.message and not one.more and (torn := _TORN.match(line.text)):
            one.found = replace(one.found, message=shown_message(torn["message"]))
            one.signatures += self._rows_of(one.found.message)
            return
        if one.in_layers(line) or one.in_advice(line):
            one.signatures += self._rows_of(one.found.message)
            return
        if one.in_converted(line):
            one.signatures += self._rows_of(line.text)
            return
        one.read(line)
        one.left = one.left - 1 if line.text else min(one.left - 1, _BLANK_LINES)
        if line.at or one.left <= 0 or "ChildFailedError" in line.text:
            self._close(key)
        elif one.left > _BLANK_LINES and (not one.alone or continues(line.text)):
            one.signatures += [row for row in self._rows_of(line.text) if row not in self._of_others]

    def _close(self, key: _Writer) -> None:
        one = self._ended.pop(key, None)
        if one is None:
            return
        (self.bare if one.alone else self.found).append(one.whole())
        if len(self.found) > _KEPT:
            self._process_of.pop(self.found.pop(_KEPT // 2).line, None)  # the first and the last ones matter most


def _code(text: str, *, ipython: bool) -> str:
    """Return the source line of a frame that a line shows."""
    if ipython and (marked := IPYTHON_CODE.match(text)):
        return marked["code"].strip()
    return text.strip() if text[:1].isspace() and not (ipython and IPYTHON_NEIGHBOR.match(text)) else ""


def _rank(one: OpenTraceback, key: _Writer, line: Line) -> int | None:
    if line.text == line.whole:  # a rank in such a line is part of its message
        return key if isinstance(key, int) else None
    return line.rank if line.rank is not None else one.line.rank


def _is_of_launcher(name: str, message: str, *, in_launcher: bool = False) -> bool:
    """Whether a launcher raised it because a process of the run failed. `in_launcher`: one of its frames is."""
    short = name.rpartition(".")[2]
    started = short == "CalledProcessError" and (in_launcher or bool(STARTED.match(message)))
    return started or short in LAUNCHER_EXCEPTIONS
