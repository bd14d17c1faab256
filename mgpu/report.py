"""How are outcomes told: on a screen, as JSON?

The only file with colour. Words come first: every status is a word, every problem names its cause and the command that
mends it. A screen is a list of lines of (text, style) spans; `rich` paints them in a terminal, elsewhere they are
written plain. Foreign text is stripped of control bytes here, once, on its way out.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeAlias

from mgpu import __version__, errors
from mgpu.check import Check, Crash, Fix, Ok, Skip
from mgpu.engine import Outcome, Status
from mgpu.snapshot import Snapshot

Style = Literal["", "bold", "ok", "warn", "fail", "crash", "title"]
Span: TypeAlias = tuple[str, Style]
Line: TypeAlias = list[Span]
Verdict = Literal["ready", "ready_with_warnings", "not_ready", "unknown", "no_gpu"]

WIDTH_PLAIN = 80  # when there is no terminal to ask
WIDTH_MAX = 100  # longer lines are hard to read
_NARROW = 60  # below this a row's text goes under its label
_SHOWN_PROBLEMS = 5

# The 16 ANSI names, so that the user's theme and contrast settings decide the shade.
_PAINT: dict[Style, str] = {
    "": "", "bold": "bold", "title": "bold", "ok": "cyan", "warn": "bold yellow", "fail": "bold bright_red",
    "crash": "bold magenta",
}  # fmt: skip
_WORD: dict[Status, tuple[str, str, Style]] = {  # status -> word, UTF-8 glyph, style
    "ok": ("ok", "✓", "ok"),
    "info": ("info", "i", ""),
    "warn": ("warn", "!", "warn"),
    "fail": ("FAIL", "✗", "fail"),
    "skip": ("skip", "-", ""),
    "crash": ("crash", "?", "crash"),
}
_WORSE: tuple[Status, ...] = ("crash", "fail", "warn", "info", "ok", "skip")  # what a row says, the worst first

# The rows of the screen: a label and the areas (files in checks/) it stands for.
ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Driver", ("driver",)),
    ("GPUs", ("gpu", "xid", "cuda", "processes")),
    ("Visible", ("visibility",)),
    ("Links", ("links",)),
    ("PyTorch", ("pytorch", "libraries")),
    ("NCCL", ("nccl", "environ")),
    ("Accelerate", ("packages",)),
    ("Config", ("config",)),
    ("Host", ("limits", "kernel", "storage", "container")),
    ("Network", ("network", "infiniband")),
    ("Slurm", ("slurm",)),
    ("Script", ("script",)),
    ("Smoke test", ("smoke",)),
    ("Verified", ("stamp",)),
    ("Log", ("log",)),
)


def clean(text: object) -> str:
    """Foreign text without control bytes, escape sequences or characters that cannot be written."""
    stripped = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?", "", str(text))
    stripped = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", "", stripped)
    return stripped.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True)
class Screen:
    """Where lines go: how wide, which characters, in colour or not."""

    width: int
    glyphs: bool
    colour: bool
    stream: IO[str]

    @classmethod
    def of(cls, stream: IO[str] | None = None, environ: Mapping[str, str] = os.environ) -> Screen:
        """The screen a stream is: a terminal in colour, a pipe plain."""
        stream = stream if stream is not None else sys.stdout
        if stream is None:  # started with stdout closed
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        terminal = is_terminal(stream)
        dumb = environ.get("TERM", "") in ("", "dumb")
        columns = (
            shutil.get_terminal_size((WIDTH_PLAIN, 24)).columns if terminal or environ.get("COLUMNS") else WIDTH_PLAIN
        )
        return cls(
            width=max(20, min(columns, WIDTH_MAX)),
            glyphs=terminal
            and not dumb
            and not environ.get("MGPU_ASCII")
            and _locale_is_utf8(environ)
            and _encodes(stream, "✓✗─"),
            colour=_colour(terminal and not dumb, environ),
            stream=stream,
        )

    def show(self, lines: Iterable[Line]) -> None:
        """Write the lines."""
        if self.colour:
            self._paint(lines)
            return
        for line in lines:
            self.stream.write("".join(clean(text) for text, _ in line).rstrip() + "\n")
        self.stream.flush()

    def _paint(self, lines: Iterable[Line]) -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console(file=self.stream, force_terminal=True, highlight=False, width=10_000, legacy_windows=False)
        for line in lines:
            text = Text()
            for part, style in line:
                text.append(clean(part), style=_PAINT[style])
            text.rstrip()
            console.print(text, soft_wrap=True)

    def status(self, status: Status) -> list[Span]:
        """The status word, padded; in a UTF-8 terminal with its glyph in front."""
        word, glyph, style = _WORD[status]
        return [(f"{glyph} {word:<6}" if self.glyphs else f"{word:<6}", style)]

    def rule(self, text: str) -> str:
        """A headline filled up with dashes to the screen's width."""
        dash = "─" if self.glyphs else "-"
        head = f"{dash * 3} {text} "
        return head + dash * max(0, min(self.width, WIDTH_PLAIN) - len(head))


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


def verdict_of(outcomes: Sequence[Outcome], snapshot: Snapshot) -> Verdict:
    """not_ready before unknown before no_gpu before ready (design: exit codes 1, 3, 4, 0)."""
    if any(o.status == "fail" for o in outcomes):
        return "not_ready"
    if any(o.check.severity.value == "error" and (o.status == "crash" or o.unsettling) for o in outcomes):
        return "unknown"
    expected = snapshot.plan.expect_gpus if snapshot.plan else None
    if snapshot.driver is None:
        return "unknown" if any(o.unknown for o in outcomes) else "ready"
    if not snapshot.driver.any_gpu and expected != 0:
        return "no_gpu"
    return "ready_with_warnings" if any(o.status == "warn" for o in outcomes) else "ready"


def exit_code(verdict: Verdict, *, strict: bool = False) -> int:
    """The process's exit code for a verdict."""
    if verdict == "ready_with_warnings":
        return errors.NOT_READY if strict else errors.READY
    return {
        "ready": errors.READY,
        "not_ready": errors.NOT_READY,
        "unknown": errors.UNKNOWN,
        "no_gpu": errors.NO_GPU,
    }[verdict]


def counts(outcomes: Iterable[Outcome]) -> dict[Status, int]:
    """How many outcomes bear each status."""
    number: dict[Status, int] = dict.fromkeys(("ok", "info", "warn", "fail", "skip", "crash"), 0)
    for outcome in outcomes:
        number[outcome.status] += 1
    return number


def rows(outcomes: Sequence[Outcome], facts: Mapping[str, str], screen: Screen, *, verbose: bool) -> list[Line]:
    """One line per group of areas; with `verbose` one line per check below it."""
    lines: list[Line] = []
    for label, areas in ROWS:
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
            text = f"{text}; {reason}" if text else reason
        elif not text:
            text = worst.answer.evidence if isinstance(worst.answer, Ok) else _reason(group)
        lines += row(screen, worst.status, label, text)
        if verbose:
            for outcome in group:
                lines += row(screen, outcome.status, f"{outcome.check.id:<31} ", _said(outcome), indent=8)
    return lines


def _reason(group: Sequence[Outcome]) -> str:
    skipped = next((o.answer for o in group if isinstance(o.answer, Skip)), None)
    return skipped.reason if skipped else ""


def _said(outcome: Outcome) -> str:
    match outcome.answer:
        case Ok(evidence):
            return evidence
        case Skip(reason):
            return reason
        case Crash(error, _):
            return error
        case problem:
            return problem.title


def row(screen: Screen, status: Status, label: str, text: str, indent: int = 2) -> list[Line]:
    """`  ok    Driver      580.65.06 …`, wrapped under its own column; on narrow screens under the label."""
    pad = " " * indent if screen.width >= _NARROW else " " * (indent // 4)
    head: Line = [(pad, ""), *screen.status(status)]
    used = len(pad) + sum(len(part) for part, _ in screen.status(status))
    if screen.width < _NARROW:
        under = pad + "  "
        return [[*head, (label.rstrip(), "bold")], *unstyled(wrapped(text, screen.width, under, under))]
    column = used + max(12, len(label))
    if column + 20 > screen.width:
        return [[*head, (label, "")], *unstyled(wrapped(text, screen.width, " " * used, " " * used))]
    first, *others = wrapped(text, screen.width - column)
    return [[*head, (f"{label:<{column - used}}", ""), (first, "")], *unstyled(" " * column + line for line in others)]


def problems(outcomes: Sequence[Outcome], screen: Screen, *, command: str, show_all: bool) -> list[Line]:
    """A block for each problem worth acting on: why, fix, check. Consequences are folded under their cause."""
    found = [o for o in outcomes if o.status in ("fail", "warn", "crash")]
    roots = in_order(outcomes)
    folded = [o for o in found if o.because_of]
    shown = roots if show_all else roots[:_SHOWN_PROBLEMS]
    lines: list[Line] = []
    for number, outcome in enumerate(shown, 1):
        lines += [[], *_block(outcome, screen, f"{number} of {len(roots)}", command)]
        mine = [o for o in folded if outcome.check.id in o.because_of]
        for consequence in mine:
            text = f"{consequence.check.id}: {_said(consequence)}"
            lines += _labelled("Also", text, screen)
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


def _block(outcome: Outcome, screen: Screen, position: str, command: str) -> list[Line]:
    status = outcome.status
    word, _, style = _WORD[status]
    if isinstance(outcome.answer, Crash):
        lines: list[Line] = [[(screen.rule(f"{position}  {outcome.check.id}  {word}  a bug in mgpu"), style)]]
        return lines + _labelled("Why", f"The check itself failed: {outcome.answer.error}", screen)
    problem = outcome.problem
    assert problem is not None
    who = problem.fixes[0].who
    head = f"{position}  {outcome.check.id}  {word}  who can fix it: {who}"
    lines = [[(line, style)] for line in wrapped(screen.rule(head).rstrip(), screen.width, "", "    ")]
    if problem.place and problem.place.line:
        where = f"{problem.place.file}:{problem.place.line}:{problem.place.column or 1}"
        lines += _labelled("Where", where, screen)
    lines += _labelled("What", problem.title, screen)
    lines += _labelled("Why", problem.cause, screen)
    for fix in problem.fixes:
        lines += _fix(fix, who, screen)
    if not problem.place:
        again = command if command.startswith("mgpu doctor") else "mgpu doctor"
        lines += _labelled("Check", f"{again} --only {outcome.check.id}", screen, whole=True)
    return lines


def _fix(fix: Fix, who: str, screen: Screen) -> list[Line]:
    label = "Stopgap" if fix.kind == "stopgap" else "Fix"
    text = fix.text if fix.who == who else f"({fix.who}) {fix.text}"
    if fix.caveat:
        text += f" ({fix.caveat})"
    lines = _labelled(label, text, screen)
    # Commands paste: no prompt sign, no colour, never wrapped.
    return lines + [[(" " * 9 + command, "")] for command in fix.commands]


def _labelled(label: str, text: str, screen: Screen, *, whole: bool = False) -> list[Line]:
    if whole:
        return [[(f"{label:<9}", "bold"), (text, "")]]
    first, *others = wrapped(text, screen.width - 9)
    return [[(f"{label:<9}", "bold"), (first, "")], *unstyled(" " * 9 + line for line in others)]


def summary(
    outcomes: Sequence[Outcome], verdict: Verdict, snapshot: Snapshot, seconds: float | None, screen: Screen
) -> list[Line]:
    """The verdict: the word, what it means in numbers, and what could not be looked at."""
    number = counts(outcomes)
    made = sum(number.values()) - number["skip"]
    unknown = sum(o.unknown for o in outcomes)
    word, style = _VERDICT_WORD[verdict]
    gpus = ""
    if snapshot.gpus and snapshot.visible is not None and verdict in ("ready", "ready_with_warnings"):
        lost = {gpu.index for gpu in snapshot.gpus if gpu.lost}
        usable = [index for index in snapshot.visible.gpus if index not in lost]
        gpus = f"{len(usable)} of {len(snapshot.gpus)} GPU{'s' * (len(snapshot.gpus) > 1)} usable. "
    found = []
    for status, one in (("fail", "failure"), ("warn", "warning"), ("crash", "check crashed")):
        if count := number[status]:  # type: ignore[index]
            found.append(f"{count} {one}{'s' if count > 1 and status != 'crash' else ''}")
    trouble = f"{', '.join(found)}. " if found else ""
    missing = f", {unknown} not possible" if unknown else ""
    took = f", {seconds:.1f} s" if seconds is not None else ""
    return headed(word, style, f"{gpus}{trouble}{made} checks{missing}{took}.", screen)


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


def check_json(outcome: Outcome) -> dict[str, Any]:
    """One entry of `checks[]`: fields may be added, never renamed."""
    entry: dict[str, Any] = {
        "id": outcome.check.id,
        "area": outcome.check.area,
        "status": outcome.status,
        "title": _said(outcome),
        "cause": None,
        "evidence": {},
        "fix": [],
        "because_of": list(outcome.because_of),
        "source": outcome.check.source,
        "verify": f"mgpu doctor --only {outcome.check.id}",
        "duration_s": round(outcome.seconds, 6),
    }
    if problem := outcome.problem:
        entry |= {"cause": problem.cause, "evidence": dict(problem.evidence), "subjects": list(problem.subjects)}
        entry["fix"] = [
            {"who": f.who, "text": f.text, "commands": list(f.commands), "caveat": f.caveat, "kind": f.kind}
            for f in problem.fixes
        ]
        if problem.place:
            place = problem.place
            entry |= {"file": place.file, "line": place.line, "column": place.column, "key": place.key}
    if isinstance(outcome.answer, Crash):
        entry["trace"] = outcome.answer.trace
    return entry


def envelope(
    kind: str, outcomes: Sequence[Outcome], verdict: str, code: int, seconds: float, snapshot: Snapshot
) -> dict[str, Any]:
    """The JSON that all commands share ; a command adds its own keys."""
    driver, host, visible = snapshot.driver, snapshot.host, snapshot.visible
    pytorch, nccl, slurm = snapshot.pytorch, snapshot.nccl, snapshot.slurm
    libraries = nccl.libraries if nccl else ()
    return {
        "schema": f"mgpu.{kind}/1.0",
        "mgpu": __version__,
        "time": snapshot.taken,
        "duration_s": round(seconds, 3),
        "verdict": verdict,
        "exit_code": code,
        "counts": counts(outcomes),
        "host": {
            "name": host.name if host else None,
            "os": host.os if host else None,
            "kernel": host.kernel if host else None,
            "container": snapshot.container.kind if snapshot.container else None,
            "scheduler": {"kind": "slurm", "job": slurm.job_id} if slurm and slurm.commands_found else None,
        },
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "cc": list(gpu.compute_capability) if gpu.compute_capability else None,
                "mem_total": gpu.memory_total_bytes,
                "mem_free": gpu.memory_free_bytes,
                "numa": gpu.numa_node,
                "busy_by": [p.pid for p in gpu.processes or () if p.kind == "compute"],
                "mig": gpu.mig_mode,
                "ecc_errors": gpu.ecc_uncorrected_volatile,
                "lost": gpu.lost,
                "visible": visible is not None and gpu.index in visible.gpus,
            }
            for gpu in snapshot.gpus or ()
        ],
        "links": {"matrix": matrix(snapshot)},
        "software": {
            "driver": driver.version if driver else None,
            "torch": pytorch.version if pytorch else None,
            "torch_cuda": pytorch.cuda if pytorch else None,
            "nccl": {"version": libraries[0].version, "source": libraries[0].origin} if libraries else None,
            "accelerate": (snapshot.packages or {}).get("accelerate"),
            "python": snapshot.python.version if snapshot.python else None,
            "interpreter": snapshot.python.executable if snapshot.python else None,
        },
        "env": dict(snapshot.env or {}),
        "checks": [check_json(outcome) for outcome in outcomes],
        "gaps": {fact: {"kind": gap.kind, "reason": gap.reason} for fact, gap in snapshot.gaps.items()},
    }


def matrix(snapshot: Snapshot) -> list[list[str]]:
    """Link names between all GPUs, as `nvidia-smi topo -m` orders them."""
    gpus = snapshot.gpus or ()
    if snapshot.links is None or not gpus:
        return []
    names = {(link.a, link.b): link.name for link in snapshot.links}

    def between(a: int, b: int) -> str:
        return "-" if a == b else names.get((min(a, b), max(a, b)), "?")

    return [[between(a.index, b.index) for b in gpus] for a in gpus]


def topology(snapshot: Snapshot, screen: Screen) -> list[Line]:
    """The matrix of links with NUMA node and CPUs, and a sentence that reads it."""
    gpus, table = snapshot.gpus or (), matrix(snapshot)
    if len(gpus) < 2 or not table:
        return []
    width = max(6, *(len(name) + 2 for row in table for name in row))
    if 14 + width * len(gpus) + 6 > screen.width:
        return [
            [],
            *unstyled(wrapped(f"The matrix of links needs {20 + width * len(gpus)} columns.", screen.width)),
            [],
        ]
    head = " " * 14 + "".join(f"{'GPU' + str(gpu.index):<{width}}" for gpu in gpus) + "NUMA  CPUs near"
    lines: list[Line] = [[], [(head[: screen.width], "bold")]]
    for gpu, row in zip(gpus, table, strict=True):
        numa = "-" if gpu.numa_node is None else str(gpu.numa_node)
        text = (
            f"        GPU{gpu.index:<3}"
            + "".join(f"{name:<{width}}" for name in row)
            + f"{numa:<6}{gpu.cpus_near or ''}"
        )
        lines.append([(text[: screen.width], "")])
    different = {name for row in table for name in row} - {"-"}
    if "?" in different:
        reading = "not every pair could be read; nothing is said about which GPUs are close."
    elif len(different) == 1:
        reading = (
            f"every pair is joined by {next(iter(different))}: any subset of these GPUs is equally fast to combine."
        )
    else:
        reading = f"pairs differ ({', '.join(sorted(different))}): for a run on fewer GPUs choose close ones."
    return [
        *lines,
        *unstyled(wrapped(f"Reading: {reading}", screen.width, "        ", "        ")),
        [],
    ]


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
