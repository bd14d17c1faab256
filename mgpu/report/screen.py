"""How are outcomes told on a screen?

The only file with colour. Words come first: every status is a word, every problem names its cause and the command that
mends it. A screen is a list of lines of (text, style) spans; `rich` paints them in a terminal, elsewhere they are
written plain. Secrets are masked and control characters shown as escapes here, once, on the way out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

from mgpu import text as texts
from mgpu.check import Check, Crash, Fix, Ok, Problem, Skip
from mgpu.engine import Outcome, Status, consequences
from mgpu.engine.verdict import Verdict
from mgpu.messages import clean, one_line
from mgpu.report.document import counts, said
from mgpu.secrets_masking import masked
from mgpu.snapshot import Snapshot

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Style = Literal["", "bold", "ok", "warn", "fail", "crash", "title"]
Span: TypeAlias = tuple[str, Style]
Line: TypeAlias = list[Span]
Mark = Status | Literal["run", "wait"]  # what stands before a row; the last two only while something is going on

WIDTH_PLAIN = 80  # when there is no terminal to ask
WIDTH_MAX = 100  # longer lines are hard to read
_NARROW = 60  # below this a row's text goes under its label
_SHOWN_PROBLEMS = 5
REDRAW_S = 0.25  # between two pictures of a live screen

# The 16 ANSI names, so that the user's theme and contrast settings decide the shade.
_PAINT: dict[Style, str] = {
    "": "", "bold": "bold", "title": "bold", "ok": "cyan", "warn": "bold yellow", "fail": "bold bright_red",
    "crash": "bold magenta",
}  # fmt: skip
_WORD: dict[Mark, tuple[str, str, Style]] = {  # status -> word, UTF-8 glyph, style
    "ok": ("ok", "✓", "ok"),
    "info": ("info", "i", ""),
    "warn": ("warn", "!", "warn"),
    "fail": ("FAIL", "✗", "fail"),
    "skip": ("skip", "-", ""),
    "crash": ("crash", "?", "crash"),
    "run": ("run", ">", "bold"),
    "wait": ("", " ", ""),
}
_WORSE: tuple[Status, ...] = ("crash", "fail", "warn", "info", "ok", "skip")  # what a row says, the worst first

# The rows of the screen: a label and the areas (files in checks/) it stands for.
ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Driver", ("driver",)),
    ("GPUs", ("gpu", "ecc", "clocks", "memory", "mig", "xid", "cuda", "processes")),
    ("Visible", ("visibility",)),
    ("Links", ("links", "pcie")),
    ("PyTorch", ("pytorch", "libraries")),
    ("NCCL", ("nccl", "environ")),
    ("Accelerate", ("packages",)),
    ("Config", ("config",)),
    ("Host", ("limits", "kernel", "kernel_log", "storage", "container")),
    ("Network", ("network", "infiniband")),
    ("Slurm", ("slurm",)),
    ("Script", ("script",)),
    ("Job script", ("job",)),
    ("Nodes", ("fleet",)),
    ("Smoke test", ("smoke",)),
    ("Verified", ("stamp",)),
    ("Run", ("run", "work")),
    ("Log", ("log",)),
)


@dataclass(frozen=True)
class Screen:
    """Where lines go: how wide, which characters, in colour or not."""

    width: int
    glyphs: bool
    colour: bool
    stream: IO[str]
    live: bool = False  # a terminal on which lines can be painted again

    @classmethod
    def of(cls, stream: IO[str] | None = None, environ: Mapping[str, str] = os.environ) -> Screen:
        """The screen a stream is: a terminal in colour, a pipe plain."""
        stream = stream if stream is not None else sys.stdout
        if stream is None:  # started with stdout closed
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        terminal = is_terminal(stream)
        dumb = environ.get("TERM", "") in ("", "dumb")
        columns = _columns(stream, environ) if terminal or environ.get("COLUMNS") else WIDTH_PLAIN
        return cls(
            width=max(20, min(columns, WIDTH_MAX)),
            glyphs=terminal
            and not dumb
            and not environ.get("MGPU_ASCII")
            and _locale_is_utf8(environ)
            and _encodes(stream, "✓✗─"),
            colour=_colour(terminal and not dumb, environ),
            stream=stream,
            live=terminal and not dumb and not environ.get("MGPU_ACCESSIBLE"),
        )

    @property
    def narrow(self) -> bool:
        """Whether a row's text stands under its label."""
        return self.width < _NARROW

    def show(self, lines: Iterable[Line]) -> None:
        """Write the lines."""
        if self.colour:
            self._paint(lines)
            return
        for line in lines:
            self.stream.write("".join(text for text, _ in _shown(line)).rstrip() + "\n")
        self.stream.flush()

    def _paint(self, lines: Iterable[Line]) -> None:
        console = self.console(width=10_000)
        for line in lines:
            console.print(_painted(line), soft_wrap=True)

    def console(self, width: int | None = None) -> Console:
        """What paints on it."""
        from rich.console import Console

        return Console(
            file=self.stream,
            force_terminal=True,
            color_system="auto" if self.colour else None,
            highlight=False,
            width=width,
            legacy_windows=False,
        )

    def status(self, status: Mark) -> list[Span]:
        """The status word, padded; in a UTF-8 terminal with its glyph in front."""
        word, glyph, style = _WORD[status]
        return [(f"{glyph} {word:<6}" if self.glyphs else f"{word:<6}", style)]

    def rule(self, text: str) -> str:
        """A headline filled up with dashes to the screen's width."""
        dash = "─" if self.glyphs else "-"
        head = f"{dash * 3} {text} "
        return head + dash * max(0, min(self.width, WIDTH_PLAIN) - len(head))


def _shown(line: Line) -> Line:
    """A line without what must not be shown. A secret that two parts make together is masked in the whole line."""
    parts: Line = [(one_line(text), style) for text, style in line]
    if len(parts) < 2:
        return parts
    together = "".join(text for text, _ in parts)
    hidden = masked(together)
    return parts if hidden == together else [(hidden, parts[0][1])]


def _painted(line: Line) -> Text:
    from rich.text import Text

    text = Text()
    for part, style in _shown(line):
        text.append(part, style=_PAINT[style])
    text.rstrip()
    return text


class Live:
    """Lines at the end of a terminal that are painted again in place; what was painted last stays.

    Never the alternate screen. The terminal is asked for its width each time, so that it may be resized.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live as Painted

        self.screen, self.clock = screen, clock
        self.painted_at: float | None = None
        self.live = Painted(
            console=screen.console(), auto_refresh=False, redirect_stdout=False, redirect_stderr=False,
            vertical_overflow="crop",
        )  # fmt: skip

    @property
    def due(self) -> bool:
        """Whether it is time for the next picture."""
        return self.painted_at is None or self.clock() - self.painted_at >= REDRAW_S

    def paint(self, lines: Iterable[Line]) -> None:
        """Put these lines in the place of the last ones."""
        from rich.text import Text

        self.painted_at = self.clock()
        self.live.start()
        text = Text("\n", no_wrap=True, overflow="crop").join(_painted(line) for line in lines)
        self.live.update(text, refresh=True)

    def end(self) -> None:
        """Leave the last lines where they are, and the terminal as it was."""
        self.live.stop()


def _columns(stream: IO[str], environ: Mapping[str, str]) -> int:
    """COLUMNS, else how wide the stream's own terminal is: stdout may be a pipe where stderr is none."""
    if not environ.get("COLUMNS"):
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(stream.fileno()).columns or WIDTH_PLAIN
    return shutil.get_terminal_size((WIDTH_PLAIN, 24)).columns


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal; False for a closed or missing one."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def can_ask(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody is there to answer: stdin and stdout are terminals, and nobody forbade it."""
    forbidden = environ.get("CI") or environ.get("MGPU_NO_INPUT")
    return is_terminal(sys.stdin) and is_terminal(sys.stdout) and not forbidden


def _locale_is_utf8(environ: Mapping[str, str]) -> bool:
    """What the user's locale asks for. Python itself writes UTF-8 under LC_ALL=C as well (PEP 540), unasked."""
    named = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "C"
    return named.lower().replace("-", "").endswith("utf8")


def _encodes(stream: IO[str], text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _colour(terminal: bool, environ: Mapping[str, str]) -> bool:
    """MGPU_COLOR > NO_COLOR > FORCE_COLOR, CLICOLOR_FORCE > CLICOLOR > whether it is a terminal."""
    wish = environ.get("MGPU_COLOR", "")
    if wish in ("always", "never"):
        return wish == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return terminal and environ.get("CLICOLOR", "1") != "0"


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Text in lines of at most `width`, with a prefix for the first and for the others; words longer stay whole."""
    lines = textwrap.wrap(
        clean(text), max(width, len(rest) + 10), initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return lines or [first.rstrip()]


def unstyled(texts: Iterable[str]) -> list[Line]:
    """A line for each text, in no style."""
    return [[(text, "")] for text in texts]


def row_texts(
    outcomes: Sequence[Outcome], facts: Mapping[str, str], *, verbose: bool = False
) -> list[tuple[Status, str, str, Sequence[Outcome]]]:
    """A row for each group of areas: its status, label, text, and the outcomes behind it."""
    found: list[tuple[Status, str, str, Sequence[Outcome]]] = []
    told: set[str] = set()
    named = {area for _, areas in ROWS for area in areas}
    others = tuple(dict.fromkeys(o.check.area for o in outcomes if o.check.area not in named))
    for label, areas in (*ROWS, ("Other", others)):
        group = [o for o in outcomes if o.check.area in areas]
        if not group:
            continue
        worst = min(group, key=lambda o: _WORSE.index(o.status))
        nothing_here = worst.status == "skip" and label not in facts and not verbose
        if nothing_here and (label == "Slurm" or (label in ("Visible", "Links") and not any(o.unknown for o in group))):
            continue
        text = facts.get(label) or ""
        if worst.problem and (worst.status != "info" or not text):
            text = worst.problem.title
        elif worst.problem:
            text = f"{text}; {worst.problem.title}"
        elif isinstance(worst.answer, Crash):
            text = f"{worst.check.id} crashed: {worst.answer.error}"
        elif unknown := next((o for o in group if o.unknown and o.unsettling), None):
            worst = unknown
            reason = unknown.answer.reason if isinstance(unknown.answer, Skip) else ""
            if text and reason in told:  # another row says why
                reason = f"{sum(o.unsettling for o in group)} checks not possible"
            told.add(reason)
            text = f"{text}; {reason}" if text else reason
        elif not text:
            text = worst.answer.evidence if isinstance(worst.answer, Ok) else _reason(group)
        found.append((worst.status, label, text, group))
    return found


def rows(outcomes: Sequence[Outcome], facts: Mapping[str, str], screen: Screen, *, verbose: bool) -> list[Line]:
    """One line per group of areas; with `verbose` one line per check below it."""
    lines: list[Line] = []
    for status, label, text, group in row_texts(outcomes, facts, verbose=verbose):
        lines += row(screen, status, label, text)
        if verbose:
            for outcome in group:
                lines += row(screen, outcome.status, f"{outcome.check.id:<31} ", said(outcome), indent=8)
    return lines


def _reason(group: Sequence[Outcome]) -> str:
    skipped = next((o.answer for o in group if isinstance(o.answer, Skip)), None)
    return skipped.reason if skipped else ""


def row(screen: Screen, status: Mark, label: str, text: str, indent: int = 2) -> list[Line]:
    """`  ok    Driver      580.65.06 …`, wrapped under its own column; on narrow screens under the label."""
    pad = " " * indent if not screen.narrow else " " * (indent // 4)
    head: Line = [(pad, ""), *screen.status(status)]
    used = len(pad) + sum(len(part) for part, _ in screen.status(status))
    if screen.narrow:
        under = pad + "  "
        return [[*head, (label.rstrip(), "bold")], *unstyled(wrapped(text, screen.width, under, under))]
    column = used + max(12, len(label))
    if column + 20 > screen.width:
        return [[*head, (label, "")], *unstyled(wrapped(text, screen.width, " " * used, " " * used))]
    first, *others = wrapped(text, screen.width - column)
    return [[*head, (f"{label:<{column - used}}", ""), (first, "")], *unstyled(" " * column + line for line in others)]


def problems(
    outcomes: Sequence[Outcome], screen: Screen, *, command: str, show_all: bool, verbose: bool = False
) -> list[Line]:
    """A block for each problem worth acting on: why, fix, check. Consequences are folded under their cause."""
    found = [o for o in outcomes if o.status in ("fail", "warn", "crash")]
    roots = in_order(outcomes)
    shown = roots if show_all else roots[:_SHOWN_PROBLEMS]
    lines: list[Line] = []
    for number, outcome in enumerate(shown, 1):
        lines += [[], *_block(outcome, screen, f"{number} of {len(roots)}", command, verbose)]
        lines += also(outcome, found, screen)
    if len(roots) > len(shown):
        more = wrapped(f"+{len(roots) - len(shown)} more: {command} -v", screen.width)
        lines += [[], *([(line, "bold")] for line in more)]  # type: ignore[list-item]
    return lines


def in_order(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The problems worth acting on, without those that another one explains: failures before warnings, and first what
    explains most."""
    found = [o for o in outcomes if o.status in ("fail", "warn", "crash")]
    return sorted((o for o in found if not o.because_of), key=lambda o: (o.status == "warn", -_explains(o, found)))


def _explains(outcome: Outcome, found: Sequence[Outcome]) -> int:
    return sum(outcome.check.id in other.because_of for other in found)


def _block(outcome: Outcome, screen: Screen, position: str, command: str, verbose: bool) -> list[Line]:
    status = outcome.status
    word, _, style = _WORD[status]
    if isinstance(outcome.answer, Crash):
        lines: list[Line] = [[(screen.rule(f"{position}  {outcome.check.id}  {word}  a bug in mgpu"), style)]]
        trace = outcome.answer.trace.splitlines() if verbose else []
        lines += labelled("Why", f"The check itself failed: {outcome.answer.error}", screen)
        return lines + [[(" " * 9 + line, "")] for line in trace]
    problem = outcome.problem
    assert problem is not None
    who = problem.fixes[0].who
    head = f"{position}  {outcome.check.id}  {word}  who can fix it: {who}"
    lines = [[(line, style)] for line in wrapped(screen.rule(head).rstrip(), screen.width, "", "    ")]
    if problem.place and problem.place.line:
        where = f"{texts.visible(problem.place.file)}:{problem.place.line}:{problem.place.column or 1}"
        lines += labelled("Where", where, screen)
    lines += labelled("What", problem.title, screen)
    lines += details(problem, screen, verbose=verbose)
    of_a_job = outcome.check.area == "fleet" and not command.startswith("mgpu doctor")  # its nodes are asked once
    if outcome.check.family.of_a_run or of_a_job:
        lines += labelled("Explain", f"mgpu doctor --explain {outcome.check.id}", screen, whole=True)
    elif not problem.place:
        again = command if command.startswith("mgpu doctor") else "mgpu doctor"
        lines += labelled("Check", f"{again} {outcome.check.selection}", screen, whole=True)
    return lines


def details(problem: Problem, screen: Screen, *, verbose: bool = False) -> list[Line]:
    """Why a problem matters and how it is mended."""
    lines = labelled("Why", problem.cause, screen)
    if verbose and problem.evidence:
        read = ", ".join(f"{key} = {value}" for key, value in problem.evidence.items())
        lines += labelled("Read", read, screen)
    for fix in problem.fixes:
        lines += _fix(fix, problem.fixes[0].who, screen)
    return lines


def also(outcome: Outcome, outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """The consequences of a problem, a line each."""
    found = [o for o in outcomes if o.status in ("fail", "warn", "crash")]
    texts = [f"{one.check.id}: {said(one)}" for one in consequences(outcome, found)]
    return [line for text in texts for line in labelled("Also", text, screen)]


def _fix(fix: Fix, who: str, screen: Screen) -> list[Line]:
    label = "Stopgap" if fix.kind == "stopgap" else "Fix"
    text = fix.text if fix.who == who else f"({fix.who}) {fix.text}"
    if fix.caveat:
        text += f" ({fix.caveat})"
    lines = labelled(label, text, screen)
    # Commands paste: no prompt sign, no colour, never wrapped.
    return lines + [[(" " * 9 + command, "")] for command in fix.commands]


def labelled(label: str, text: str, screen: Screen, *, whole: bool = False) -> list[Line]:
    """`Fix      text`, wrapped under its own column; `whole`: never wrapped, so that it pastes."""
    if whole:
        return [[(f"{label:<9}", "bold"), (text, "")]]
    first, *others = wrapped(text, screen.width - 9)
    return [[(f"{label:<9}", "bold"), (first, "")], *unstyled(" " * 9 + line for line in others)]


def usable_gpus(snapshot: Snapshot) -> tuple[int, int]:
    """How many GPUs a run would get, of how many."""
    gpus, visible = snapshot.gpus or (), snapshot.visible
    lost = {gpu.index for gpu in gpus if gpu.lost}
    return sum(index not in lost for index in visible.gpus) if visible else 0, len(gpus)


def verdict_text(
    outcomes: Sequence[Outcome], verdict: Verdict, snapshot: Snapshot, seconds: float | None
) -> tuple[str, str]:
    """The verdict's word, and what it means in numbers: GPUs, problems, checks, and what could not be looked at."""
    number = counts(outcomes)
    made = sum(number.values()) - number["skip"]
    unknown, left_out = sum(o.unknown for o in outcomes), sum(o.not_asked for o in outcomes)
    gpus = ""
    if snapshot.gpus and snapshot.visible is not None and verdict in ("ready", "ready_with_warnings"):
        usable, there = usable_gpus(snapshot)
        gpus = f"{usable} of {there} GPU{'s' * (there > 1)} usable. "
    found = []
    for status, one in (("fail", "failure"), ("warn", "warning"), ("crash", "check crashed")):
        if count := number[status]:  # type: ignore[index]
            found.append(f"{count} {one}{'s' if count > 1 and status != 'crash' else ''}")
    trouble = f"{', '.join(found)}. " if found else ""
    missing = (f", {unknown} not possible" if unknown else "") + (f", {left_out} left out" if left_out else "")
    took = f", {seconds:.1f} s" if seconds is not None else ""
    return _VERDICT_WORD[verdict][0], f"{gpus}{trouble}{made} checks{missing}{took}."


def summary(
    outcomes: Sequence[Outcome], verdict: Verdict, snapshot: Snapshot, seconds: float | None, screen: Screen
) -> list[Line]:
    """The verdict."""
    word, text = verdict_text(outcomes, verdict, snapshot, seconds)
    return headed(word, _VERDICT_WORD[verdict][1], text, screen)


def headed(word: str, style: Style, text: str, screen: Screen) -> list[Line]:
    """A verdict: its word, and what it means, wrapped."""
    first, *rest = wrapped(text, screen.width, " " * (len(word) + 2))
    return [[(word, style), (first[len(word) :], "")], *unstyled(rest)]


_VERDICT_WORD: dict[Verdict, tuple[str, Style]] = {
    "ready": ("READY", "ok"),
    "ready_with_warnings": ("READY WITH WARNINGS", "warn"),
    "not_ready": ("NOT READY", "fail"),
    "unknown": ("COULD NOT TELL", "crash"),
    "no_gpu": ("NO GPU HERE", "bold"),
}


def topology(snapshot: Snapshot, screen: Screen) -> list[Line]:
    """The matrix of links, a sentence that reads it, and which GPU is which."""
    from mgpu.snapshot import topology as read

    gpus, table = snapshot.gpus or (), read.matrix(snapshot)
    lines: list[Line] = []
    if len(gpus) > 1 and table:
        shown = read.matrix_lines(gpus, table, screen.width)
        pad = " " * 8 if shown[0].startswith(" " * 8) else ""
        told = wrapped(f"Reading: {read.reading(gpus, table)}", screen.width, pad, pad)
        lines += [[], [(shown[0], "bold")], *unstyled(shown[1:]), *unstyled(told)]
    if gpus:
        first, *rest = read.address_lines(snapshot, screen.width)
        lines += [[], [(first, "bold")], *unstyled(rest)]
    return lines


def explain(check: Check, screen: Screen) -> list[Line]:
    """The documentation of one check."""
    lines: list[Line] = [[(check.id, "bold"), (f"   {check.severity.value}, area {check.area}", "")], []]
    for paragraph in check.doc.split("\n\n"):
        lines += [[(line, "")] for line in wrapped(" ".join(paragraph.split()), screen.width)]
        lines.append([])
    if check.because_of:
        lines += [[(line, "")] for line in wrapped(f"Explained by: {', '.join(check.because_of)}", screen.width)]
    lines.append([(f"Source: {check.source}", "")])
    return lines


def listing(checks: Sequence[Check], screen: Screen) -> list[Line]:
    """All checks by area: id, severity, what is wrong when it fires."""
    lines: list[Line] = []
    area = None
    for check in checks:
        if check.area != area:
            area = check.area
            lines += [[], [(area, "bold")]] if lines else [[(area, "bold")]]
        lines.append([(f"  {check.id}  ({check.severity.value})", "")])
        lines += [[(line, "")] for line in wrapped(check.summary, screen.width, "      ", "      ")]
    return [*lines, [], [(f"{len(checks)} checks. The whole text of one: mgpu doctor --explain ID", "")]]
