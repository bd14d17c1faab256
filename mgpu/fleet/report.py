"""How is a comparison of nodes told: on a screen, and in JSON?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, TypeAlias

from mgpu.command_line import shell
from mgpu.engine import Outcome
from mgpu.errors import clipped
from mgpu.hostlist import fold, order
from mgpu.report import findings
from mgpu.report.screen import Line, Mark, Screen, Style, headed, row, unstyled
from mgpu.snapshot import Fleet, NodeClass
from mgpu.text import counted, plural
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.fleet.fleet_json import ClassEntry, FleetEntry

_SHOWN_DIFFERENCES = 3
_SHOWN_ROWS = 12  # of a kind of nodes
_LONGEST = 34  # of a value on a screen
_LABEL = 24  # the longest range that stands in the column of the nodes

_Row: TypeAlias = tuple[Mark, Sequence[str], str]  # status, nodes, what is said of them


def lines(fleet: Fleet, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool) -> list[Line]:
    """The report of a person: kinds of nodes, classes with what they differ in, problems, and what to leave out."""
    head = f"mgpu doctor {__version__} on {_counted(len(fleet.nodes) + len(fleet.missing))}"
    told: list[Line] = screen.paragraph(head, style="bold")
    told += screen.paragraph(_compared(fleet))
    told.append([])
    missing: list[_Row] = [("fail", nodes, f"not examined: {why}") for why, nodes in _missing(fleet).items()]
    bad = frozenset(failing(outcomes))
    roles = {role: _role(fleet, role, nodes, bad, verbose=verbose) for role, nodes in fleet.roles.items()}
    width = max((len(_label(nodes)) for rows in (*roles.values(), missing) for _, nodes, _ in rows), default=0) + 2
    for role, rows in roles.items():
        head = f"{role}: {_counted(len(fleet.roles[role]))}"
        told += screen.paragraph(head, style="bold")
        told += _rows(rows if verbose else rows[:_SHOWN_ROWS], width, screen)
        if len(rows) > _SHOWN_ROWS and not verbose:
            told += unstyled([f"  +{len(rows) - _SHOWN_ROWS} more: -v shows them"])
    told += _rows(missing, width, screen)
    if verbose:
        told += [[], *findings.rows(outcomes, {}, screen, verbose=True)]
    told += findings.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    told += [[], *_verdict(fleet, outcomes, screen)]
    if fleet.faults is None:
        text = "Not looked at, for there are too many: each node's own faults (mgpu doctor --from FILE)."
        told += screen.paragraph(text)
    return told + _next(fleet, outcomes, screen)


def _compared(fleet: Fleet) -> str:
    return f"{fleet.compared} facts of each, compared with those of the nodes of its kind."


def _missing(fleet: Fleet) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for node, why in fleet.missing.items():
        reasons.setdefault(why or "no answer", []).append(node)
    return reasons


def _role(fleet: Fleet, role: str, nodes: Sequence[str], bad: Set[str], *, verbose: bool) -> list[_Row]:
    """The nodes of a kind that are alike, each class with its differences, and what was measured far off."""
    classes = [one for one in fleet.classes if one.role == role]
    unlike = {node for one in classes for node in one.nodes}
    alike = [node for node in nodes if node not in unlike]
    rows: list[_Row] = [("ok", alike, _alike(classes, len(alike), len(nodes)))] if alike else []
    rows += [
        ("info" if one.second and not bad & {*one.nodes} else "warn", one.nodes, _said(one, verbose=verbose))
        for one in classes
    ]
    for far in (far for far in fleet.outliers if far.node in nodes):
        text = f"{far.what} {far.value:.4g}{far.unit}, median {far.median:.4g}{far.unit}"
        rows.append(("warn", [far.node], text))
    return rows


def _label(nodes: Sequence[str]) -> str:
    """The nodes, or how many, where their names are too long for a column."""
    return name if len(name := fold(nodes)) <= _LABEL else _counted(len(nodes))


def _rows(rows: Sequence[_Row], width: int, screen: Screen) -> list[Line]:
    """Lines with one column of nodes."""
    told: list[Line] = []
    for mark, nodes, text in rows:
        label = _label(nodes)
        named = "" if label == fold(nodes) or mark == "ok" else f" ({fold(nodes)})"
        told += row(screen, mark, f"{label:<{width}}", text + named)
    return told


def _alike(classes: Sequence[NodeClass], alike: int, of: int) -> str:
    if of == 1:
        return "the only one: nothing to compare with"
    if not classes:
        return "nothing differs"
    return "as most are" if alike * 2 > of else "the others"


def _said(one: NodeClass, *, verbose: bool) -> str:
    half = one.tied or len(one.nodes) * 2 >= one.of
    shown = one.differences if verbose else one.differences[:_SHOWN_DIFFERENCES]
    said = [f"{d.what} {_short(d.value)}, {'others' if half else 'most'}: {_short(d.usual)}" for d in shown]
    more = len(one.differences) - len(shown)
    if more:
        said.append(f"and {more} more")
    kind = f"a second population, {_counted(len(one.nodes))}: " if one.second else ""
    return kind + "; ".join(said)


def _short(value: str | None) -> str:
    return clipped("none" if value is None else value or '""', _LONGEST)


def _verdict(fleet: Fleet, outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    number = {status: sum(o.status == status for o in outcomes) for status in ("fail", "warn", "crash")}
    words = {"fail": "failure", "warn": "warning", "crash": "crashed check"}
    parts = [counted(number[status], word) for status, word in words.items() if number[status]]
    bad = failing(outcomes)
    style: Style
    if number["fail"]:
        word, style = "NOT ALIKE", "fail"
        of = len(fleet.nodes) + len(fleet.missing)
        text = f"{', '.join(parts)}." + (f" {_counted(len(bad))} to leave out, of {of}." if bad else "")
    elif number["warn"] or number["crash"]:
        word, style, text = "ALIKE WITH WARNINGS", "warn", f"{', '.join(parts)}."
    else:
        kinds = "one kind" if len(fleet.roles) == 1 else f"{len(fleet.roles)} kinds"
        word, style, text = "ALIKE", "ok", f"{_counted(len(fleet.nodes))} of {kinds}, no problem."
    return headed(word, style, text, screen)


def failing(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """The nodes that failures are about: those to leave out."""
    nodes = {n for o in outcomes if o.status == "fail" and o.problem for n in o.problem.subjects}
    return tuple(sorted(nodes, key=order))


def _next(fleet: Fleet, outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    told: list[Line] = []
    if (bad := failing(outcomes)) and (names := shell("--exclude={:nodes}", fold(bad))):
        told += [[("Leave out: ", "bold"), (names, "")]]  # one line: it pastes
    first = next((outcome.check.id for outcome in findings.in_order(outcomes)), None)
    if first:
        told += findings.explained(first, screen)
    elif not bad:
        told += unstyled(["Next:  mgpu configure --slurm"])
    return told


def _counted(number: int) -> str:
    return f"{number:,} {plural(number, 'node')}"


def document(fleet: Fleet, outcomes: Sequence[Outcome]) -> FleetEntry:
    """`fleet` of the doctor's document. Nodes are in Slurm's form."""
    bad = failing(outcomes)
    return {
        "nodes": fold(fleet.nodes),
        "count": len(fleet.nodes),
        "compared": fleet.compared,
        "missing": dict(fleet.missing),
        "roles": [{"role": r, "nodes": fold(nodes), "count": len(nodes)} for r, nodes in fleet.roles.items()],
        "classes": [_class(one) for one in fleet.classes],
        "outliers": [
            {
                "node": o.node,
                "key": o.key,
                "what": o.what,
                "value": o.value,
                "median": o.median,
                "deviation": o.deviation,
                "unit": o.unit.strip(),
            }
            for o in fleet.outliers
        ],
        "failing": list(bad),
        "exclude": fold(bad),
        "not_compared": list(fleet.scattered),
        "unread": dict(fleet.unread),
        "strangers": list(fleet.strangers),
    }


def _class(one: NodeClass) -> ClassEntry:
    return {
        "role": one.role,
        "nodes": fold(one.nodes),
        "count": len(one.nodes),
        "of": one.of,
        "second_population": one.second,
        "tied": one.tied,
        "differences": [{"key": d.key, "what": d.what, "value": d.value, "usual": d.usual} for d in one.differences],
    }
