"""How are outcomes shown to a person: rows, problems with their fixes, the verdict?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mgpu import text as texts
from mgpu.check import Check, Crash, Fix, Ok, Problem, Skip, Who
from mgpu.documentation import published_page
from mgpu.engine import Outcome, Status, explained
from mgpu.engine.verdict import Verdict
from mgpu.errors import clip
from mgpu.report.document import counts, outcome_text
from mgpu.report.screen import WORD, Line, Screen, Style, headed, labelled, row, unstyled, wrapped
from mgpu.snapshot import Snapshot
from mgpu.text import counted

_SHOWN_PROBLEMS = 5
_WORSE: tuple[Status, ...] = ("crash", "fail", "warn", "waived", "info", "ok", "skip")  # statuses of a row, worst first
_VERDICT_WORD: dict[Verdict, tuple[str, Style]] = {
    "ready": ("READY", "ok"),
    "ready_with_warnings": ("READY WITH WARNINGS", "warn"),
    "not_ready": ("NOT READY", "fail"),
    "unknown": ("UNKNOWN", "crash"),
    "no_gpu": ("NO GPU HERE", "bold"),
}
FIX_BY: dict[Who, str] = {
    "you": "you",
    "admin": "an administrator",
    "hardware": "replacing or repairing hardware",
}
# The rows of the screen: a label and its areas (files in checks/).
ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Driver", ("driver",)),
    ("GPUs", ("gpu", "ecc", "clocks", "memory", "mig", "xid", "cuda", "processes")),
    ("Visible", ("visibility",)),
    ("Links", ("links", "pcie")),
    ("PyTorch", ("pytorch", "libraries")),
    ("NCCL", ("nccl", "environ")),
    ("Accelerate", ("packages",)),
    ("Config", ("config", "deepspeed_file")),
    ("Host", ("limits", "kernel", "kernel_log", "storage", "container")),
    ("Network", ("network", "infiniband")),
    ("Slurm", ("slurm",)),
    ("Script", ("script",)),
    ("Job script", ("job",)),
    ("Nodes", ("fleet",)),
    ("Smoke test", ("smoke",)),
    ("Your script", ("rehearsal",)),
    ("Verified", ("stamp",)),
    ("Run", ("run", "hang", "work")),
    ("Log", ("log",)),
    ("Rules", ("local_rules",)),
)


def row_texts(
    outcomes: Sequence[Outcome], facts: Mapping[str, str], *, verbose: bool = False
) -> list[tuple[Status, str, str, Sequence[Outcome]]]:
    """A row for each group of areas: its status, label, text and outcomes."""
    found: list[tuple[Status, str, str, Sequence[Outcome]]] = []
    shown: set[str] = set()
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
            if reason in shown:  # another row shows the reason
                reason = f"{counted(sum(o.unsettling for o in group), 'check')} could not run"
            shown.add(reason)
            text = f"{text}; {reason}" if text else reason
        elif not text:
            text = worst.answer.evidence if isinstance(worst.answer, Ok) else _reason(group)
        found.append((worst.status, label, text, group))
    return found


def rows(outcomes: Sequence[Outcome], facts: Mapping[str, str], screen: Screen, *, verbose: bool) -> list[Line]:
    """One line per group of areas; with `verbose`, one line per check below it, skips one line per reason."""
    lines: list[Line] = []
    for status, label, text, group in row_texts(outcomes, facts, verbose=verbose):
        lines += row(screen, status, label, text)
        if verbose:
            lines += _rows_of_checks(group, screen)
    return lines


def _rows_of_checks(group: Sequence[Outcome], screen: Screen) -> list[Line]:
    lines: list[Line] = []
    skipped: dict[str, list[str]] = {}
    for outcome in group:
        if isinstance(outcome.answer, Skip) and not outcome.unknown:
            skipped.setdefault(outcome.answer.reason, []).append(outcome.check.id)
        else:
            lines += row(screen, outcome.status, f"{outcome.check.id:<31} ", outcome_text(outcome), indent=8)
    for reason, ids in skipped.items():
        label = ids[0] if len(ids) == 1 else counted(len(ids), "check")
        lines += row(screen, "skip", f"{label:<31} ", reason, indent=8)
    return lines


def _reason(group: Sequence[Outcome]) -> str:
    skipped = next((o.answer for o in group if isinstance(o.answer, Skip)), None)
    return skipped.reason if skipped else ""


def problems(
    outcomes: Sequence[Outcome],
    screen: Screen,
    *,
    command: str,
    show_all: bool,
    verbose: bool = False,
    check: str = "",
) -> list[Line]:
    """A block for each root problem: why, fix, check. Consequences are folded under their cause.

    `check`: the command that repeats the checks; "": the doctor's for each of them.
    """
    effects = explained(_bad(outcomes))
    groups = _grouped(in_order(outcomes))
    shown = groups if show_all else groups[:_SHOWN_PROBLEMS]
    lines: list[Line] = []
    for number, (outcome, *others) in enumerate(shown, 1):
        lines += [[], *_block(outcome, screen, f"{number} of {len(groups)}", command, verbose, check)]
        for other in others:
            lines += labelled("Also", repetition(other, outcome), screen)
        for one in (outcome, *others):
            lines += _also(effects.get(id(one), ()), screen)
    if len(groups) > len(shown):
        more = wrapped(f"+{len(groups) - len(shown)} more: {command} -v", screen.width)
        lines += [[], *([(line, "bold")] for line in more)]  # type: ignore[list-item]
    return lines


def waived(outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """The problems that the project accepts, with its reason."""
    lines: list[Line] = []
    for outcome in outcomes:
        if outcome.waived and outcome.status == "waived":
            until = f", until {outcome.waived.until}" if outcome.waived.until else ""
            text = f"{outcome.check.id}: {outcome_text(outcome)} ({outcome.waived.reason}{until})"
            lines += labelled("Waived", text, screen)
    return [[], *lines] if lines else []


def in_order(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the root problems: failures before warnings, and first those that explain the most others."""
    found = _bad(outcomes)
    explains = Counter(cause for one in found for cause in set(one.because_of))
    return sorted((o for o in found if not o.because_of), key=lambda o: (o.status == "warn", -explains[o.check.id]))


def _bad(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if o.status in ("fail", "warn", "crash")]


def _grouped(roots: Sequence[Outcome]) -> list[list[Outcome]]:
    """Return the findings of one check at several keys of a file as one group; every other finding is its own."""
    groups: dict[object, list[Outcome]] = {}
    for number, outcome in enumerate(roots):
        place = outcome.problem.place if outcome.problem else None
        same = (outcome.check.id, outcome.status, place.file) if place and place.key else number
        groups.setdefault(same, []).append(outcome)
    return list(groups.values())


def repetition(other: Outcome, first: Outcome) -> str:
    """The same finding at another place: its line, and its fix if that is another one."""
    problem = other.problem
    if problem is None:
        return outcome_text(other)
    place = f"line {problem.place.line}: " if problem.place and problem.place.line else ""
    fixes = [fix.text for fix in problem.fixes if fix.text]
    if other.status == "info" or not fixes or fixes == [f.text for f in (first.problem or problem).fixes if f.text]:
        return f"{place}{problem.title}"
    end = "" if problem.title.endswith(("?", ".")) else "."  # "Did you mean mixed_precision?"
    return f"{place}{problem.title}{end} Fix: {' '.join(fixes)}"


def _block(outcome: Outcome, screen: Screen, position: str, command: str, verbose: bool, check: str = "") -> list[Line]:
    status = outcome.status
    word, _, style = WORD[status]
    if isinstance(outcome.answer, Crash):
        lines: list[Line] = [[(screen.rule(f"{position}  {outcome.check.id}  {word}  bug in mgpu"), style)]]
        trace = outcome.answer.trace.splitlines() if verbose else []
        lines += labelled("Why", f"The check itself failed: {outcome.answer.error}", screen)
        return lines + [[(" " * 9 + line, "")] for line in trace]
    problem = outcome.problem
    assert problem is not None
    head = f"{position}  {outcome.check.id}  {word}  fix by: {FIX_BY[problem.fixes[0].who]}"
    lines = screen.paragraph(screen.rule(head).rstrip(), "", "    ", style=style)
    if problem.place and problem.place.line:
        where = f"{texts.visible(problem.place.file)}:{problem.place.line}:{problem.place.column or 1}"
        lines += labelled("Where", where, screen)
    lines += labelled("What", problem.title, screen)
    lines += details(problem, screen, verbose=verbose)
    of_a_job = outcome.check.area == "fleet" and not command.startswith("mgpu doctor")  # the nodes are examined once
    if outcome.check.family.of_a_run or of_a_job:
        lines += labelled("Explain", f"mgpu doctor --explain {outcome.check.id}", screen, whole=True)
    elif not problem.place:
        again = command if command.startswith("mgpu doctor") else "mgpu doctor"
        lines += labelled("Check", check or f"{again} {outcome.check.selection}", screen, whole=True)
    return lines


def details(problem: Problem, screen: Screen, *, verbose: bool = False) -> list[Line]:
    """Why a problem matters and how to fix it."""
    lines = labelled("Why", problem.cause, screen)
    if verbose and problem.evidence:
        read = ", ".join(f"{key} = {value}" for key, value in problem.evidence.items())
        lines += labelled("Read", read, screen)
    for fix in problem.fixes:
        lines += _fix(fix, problem.fixes[0].who, screen)
    return lines


def also(outcome: Outcome, outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    """The consequences of a problem among the outcomes, one line each."""
    return _also(explained(_bad(outcomes)).get(id(outcome), ()), screen)


def _also(effects: Sequence[Outcome], screen: Screen) -> list[Line]:
    texts = [f"{one.check.id}: {outcome_text(one)}" for one in effects]
    return [line for text in texts for line in labelled("Also", text, screen)]


def _fix(fix: Fix, who: str, screen: Screen) -> list[Line]:
    label = "Stopgap" if fix.kind == "stopgap" else "Fix"
    text = fix.text if fix.who == who else f"({FIX_BY[fix.who]}) {fix.text}"
    if fix.caveat:
        text += f" ({fix.caveat})"
    lines = labelled(label, text, screen)
    # Commands paste: no prompt sign, no colour, never wrapped.
    return lines + [[(" " * 9 + command, "")] for command in fix.commands]


def usable_gpus(snapshot: Snapshot) -> tuple[int, int]:
    """The number of whole GPUs that a run can use, and the number of GPUs."""
    gpus, visible = snapshot.gpus or (), snapshot.visible
    lost = {gpu.index for gpu in gpus if gpu.lost}
    return sum(index not in lost for index in visible.gpus) if visible else 0, len(gpus)


def usable_text(snapshot: Snapshot) -> str:
    """What a run can use: `3 of 4 GPUs usable`, or MIG instances."""
    visible, (usable, there) = snapshot.visible, usable_gpus(snapshot)
    instances = counted(1 + len(visible.more_mig), "MIG instance") if visible and visible.mig else ""
    if instances and not usable:
        return f"{instances} usable"
    return f"{usable} of {counted(there, 'GPU')}{instances and ' and ' + instances} usable"


def verdict_text(
    outcomes: Sequence[Outcome], verdict: Verdict, snapshot: Snapshot, seconds: float | None
) -> tuple[str, str]:
    """The verdict's word, and its details in numbers: GPUs, problems, checks, and checks that could not run."""
    number = counts(outcomes)
    made = sum(number.values()) - number["skip"]
    unknown, left_out = sum(o.unknown for o in outcomes), sum(o.not_asked for o in outcomes)
    gpus = ""
    if snapshot.gpus and snapshot.visible is not None and verdict in ("ready", "ready_with_warnings"):
        gpus = f"{usable_text(snapshot)}. "
    words: tuple[tuple[Status, str, str | None], ...]
    words = (
        ("fail", "failure", None),
        ("warn", "warning", None),
        ("crash", "check crashed", "checks crashed"),
        ("waived", "finding waived", "findings waived"),
    )
    found = [counted(number[status], one, many) for status, one, many in words if number[status]]
    trouble = f"{', '.join(found)}. " if found else ""
    missing = (f", {unknown} could not run" if unknown else "") + (f", {left_out} left out" if left_out else "")
    took = f", {seconds:.1f} s" if seconds is not None else ""
    return _VERDICT_WORD[verdict][0], f"{gpus}{trouble}{counted(made, 'check')}{missing}{took}."


def summary(
    outcomes: Sequence[Outcome], verdict: Verdict, snapshot: Snapshot, seconds: float | None, screen: Screen
) -> list[Line]:
    """The verdict."""
    word, text = verdict_text(outcomes, verdict, snapshot, seconds)
    return headed(word, _VERDICT_WORD[verdict][1], text, screen)


def topology(snapshot: Snapshot, screen: Screen) -> list[Line]:
    """The matrix of links, a sentence that interprets it, and the addresses of the GPUs."""
    from mgpu.snapshot import topology as read

    gpus, table = snapshot.gpus or (), read.matrix(snapshot)
    lines: list[Line] = []
    if len(gpus) > 1 and table:
        shown = read.matrix_lines(gpus, table, screen.width)
        pad = " " * 8 if shown[0].startswith(" " * 8) else ""
        reading = wrapped(f"Reading: {read.explain_matrix(gpus, table)}", screen.width, pad, pad)
        lines += [[], [(shown[0], "bold")], *unstyled(shown[1:]), *unstyled(reading)]
    if gpus:
        first, *rest = read.address_lines(snapshot, screen.width)
        lines += [[], [(first, "bold")], *unstyled(rest)]
    return lines


def explain_command(check_id: str, screen: Screen) -> list[Line]:
    """The command that explains a finding, on two lines if the screen is too narrow for one."""
    command = f"mgpu doctor --explain {check_id}"
    line = f"Explain any line:  {command}"
    return unstyled([line] if len(line) <= screen.width else ["Explain any line:", f"  {command}"])


def explain(check: Check, screen: Screen) -> list[Line]:
    """The documentation of one check."""
    lines: list[Line] = [[(check.id, "bold"), (f"   {check.severity.value}, area {check.area}", "")], []]
    for paragraph in check.doc.split("\n\n"):
        lines += screen.paragraph(" ".join(paragraph.split()))
        lines.append([])
    if check.because_of:
        lines += screen.paragraph(f"Explained by: {', '.join(check.because_of)}")
    source = f"Source: {check.source}"
    lines += screen.paragraph(source) if " " in check.source else unstyled([source])
    page = published_page(check.id)
    return [*lines, *unstyled([f"Page:   {page}"] if page else [])]


def listing(checks: Sequence[Check], screen: Screen) -> list[Line]:
    """A table of checks by area: id, severity, summary.

    On a terminal each check is one line, clipped to its width. In a pipe the summary is complete.
    """
    lines: list[Line] = []
    for area in dict.fromkeys(check.area for check in checks):
        mine = [check for check in checks if check.area == area]
        column = max(len(check.id) for check in mine)
        lines += [[], [(area, "bold")]] if lines else [[(area, "bold")]]
        for check in mine:
            line = f"  {check.id:<{column}}  {check.severity.value:<7}  {check.summary}"
            lines.append([(clip(line, screen.width) if screen.live else line, "")])
    number = counted(len(checks), "check")
    return [*lines, [], *unstyled([f"{number}. Details: mgpu doctor --explain ID"])]
