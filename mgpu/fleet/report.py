"""Report a comparison of nodes, on the screen and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mgpu.command_line import shell
from mgpu.config.reading import DEFAULT_CONFIG
from mgpu.engine import Outcome
from mgpu.errors import clip
from mgpu.hostlist import fold, order
from mgpu.report import findings
from mgpu.report.screen import Line, Mark, Screen, Style, headed, row, unstyled
from mgpu.snapshot import Fleet, NodeClass
from mgpu.text import counted, plural
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.fleet.fleet_json import ClassEntry, FleetEntry

_SHOWN_DIFFERENCES = 3
_SHOWN_ROWS = 12  # for each kind of nodes
_LONGEST = 34  # characters of a value on a screen
_HOSTS = re.compile(r" --(hosts|python) ('[^']*'|\S+)")  # in a doctor's command
_LABEL = 24  # the longest range in the column of nodes

_Row: TypeAlias = tuple[Mark, Sequence[str], str]  # status, nodes, text


def lines(fleet: Fleet, outcomes: Sequence[Outcome], screen: Screen, command: str, *, verbose: bool) -> list[Line]:
    """Return the report: kinds of nodes, classes with their differences, problems, and the nodes to exclude."""
    head = f"mgpu doctor {__version__} on {_format_node_count(len(fleet.nodes) + len(fleet.missing))}"
    shown: list[Line] = screen.paragraph(head, style="bold")
    shown += screen.paragraph(_comparison_line(fleet))
    shown.append([])
    missing: list[_Row] = [("fail", nodes, f"not checked: {why}") for why, nodes in _missing(fleet).items()]
    bad = frozenset(failing(outcomes))
    roles = {role: _role(fleet, role, nodes, bad, verbose=verbose) for role, nodes in fleet.roles.items()}
    width = max((len(_label(nodes)) for rows in (*roles.values(), missing) for _, nodes, _ in rows), default=0) + 2
    for role, rows in roles.items():
        head = f"{role}: {_format_node_count(len(fleet.roles[role]))}"
        shown += screen.paragraph(head, style="bold")
        shown += _rows(rows if verbose else rows[:_SHOWN_ROWS], width, screen)
        if len(rows) > _SHOWN_ROWS and not verbose:
            shown += unstyled([f"  +{len(rows) - _SHOWN_ROWS} more (show with -v)"])
    shown += _rows(missing, width, screen)
    if verbose:
        shown += [[], *findings.rows(outcomes, {}, screen, verbose=True)]
    shown += findings.problems(outcomes, screen, command=command, show_all=verbose, verbose=verbose)
    shown += [[], *_verdict(fleet, outcomes, screen)]
    if fleet.faults is None:
        text = "Too many nodes to check each one's own problems; check single ones with: mgpu doctor --from FILE"
        shown += screen.paragraph(text)
    return shown + _next_steps(fleet, outcomes, screen, command)


def _comparison_line(fleet: Fleet) -> str:
    return f"Compared {fleet.compared} facts of each node with other nodes of its kind."


def _missing(fleet: Fleet) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for node, why in fleet.missing.items():
        reasons.setdefault(why or "no answer", []).append(node)
    return reasons


def _role(fleet: Fleet, role: str, nodes: Sequence[str], bad: Set[str], *, verbose: bool) -> list[_Row]:
    """Return the rows of a kind: the equal nodes, each class with its differences, and measured outliers."""
    classes = [one for one in fleet.classes if one.role == role]
    unlike = {node for one in classes for node in one.nodes}
    equal = [node for node in nodes if node not in unlike]
    rows: list[_Row] = [("ok", equal, _describe_equal(classes, len(equal), len(nodes)))] if equal else []
    rows += [
        ("info" if one.second and not bad & {*one.nodes} else "warn", one.nodes, _differences(one, verbose=verbose))
        for one in classes
    ]
    for far in (far for far in fleet.outliers if far.node in nodes):
        text = f"{far.what} {far.value:.4g}{far.unit}, median {far.median:.4g}{far.unit}"
        rows.append(("warn", [far.node], text))
    return rows


def _label(nodes: Sequence[str]) -> str:
    """Return the nodes, or their number if the names are too long for the column."""
    return name if len(name := fold(nodes)) <= _LABEL else _format_node_count(len(nodes))


def _rows(rows: Sequence[_Row], width: int, screen: Screen) -> list[Line]:
    """Return lines with a column of nodes."""
    shown: list[Line] = []
    for mark, nodes, text in rows:
        label = _label(nodes)
        named = "" if label == fold(nodes) or mark == "ok" else f" ({fold(nodes)})"
        shown += row(screen, mark, f"{label:<{width}}", text + named)
    return shown


def _describe_equal(classes: Sequence[NodeClass], equal: int, of: int) -> str:
    if of == 1:
        return "the only node of this kind, nothing to compare"
    if not classes:
        return "no differences"
    return "same as most" if equal * 2 > of else "the others"


def _differences(one: NodeClass, *, verbose: bool) -> str:
    half = one.tied or len(one.nodes) * 2 >= one.of
    shown = one.differences if verbose else one.differences[:_SHOWN_DIFFERENCES]
    texts = [f"{d.what} {_short(d.value)}, {'others' if half else 'most'}: {_short(d.usual)}" for d in shown]
    more = len(one.differences) - len(shown)
    if more:
        texts.append(f"and {more} more")
    kind = f"a second population, {_format_node_count(len(one.nodes))}: " if one.second else ""
    return kind + "; ".join(texts)


def _short(value: str | None) -> str:
    return clip("none" if value is None else value or '""', _LONGEST)


def _verdict(fleet: Fleet, outcomes: Sequence[Outcome], screen: Screen) -> list[Line]:
    number = {status: sum(o.status == status for o in outcomes) for status in ("fail", "warn", "crash")}
    words = {"fail": "failure", "warn": "warning", "crash": "crashed check"}
    parts = [counted(number[status], word) for status, word in words.items() if number[status]]
    bad = failing(outcomes)
    style: Style
    if number["fail"]:
        word, style = "INCONSISTENT", "fail"
        of = len(fleet.nodes) + len(fleet.missing)
        text = f"{', '.join(parts)}." + (f" Exclude {len(bad)} of {_format_node_count(of)}." if bad else "")
    elif number["warn"] or number["crash"]:
        word, style, text = "CONSISTENT WITH WARNINGS", "warn", f"{', '.join(parts)}."
    else:
        kinds = "one kind" if len(fleet.roles) == 1 else f"{len(fleet.roles)} kinds"
        word, style, text = "CONSISTENT", "ok", f"{_format_node_count(len(fleet.nodes))} of {kinds}, no problems."
    return headed(word, style, text, screen)


def failing(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return the nodes with failures, which are to be excluded."""
    nodes = {n for o in outcomes if o.status == "fail" and o.problem for n in o.problem.subjects}
    return tuple(sorted(nodes, key=order))


def _next_steps(fleet: Fleet, outcomes: Sequence[Outcome], screen: Screen, command: str) -> list[Line]:
    shown: list[Line] = []
    over_ssh = fleet.access is not None
    if (bad := failing(outcomes)) and not over_ssh and (names := shell("--exclude={:nodes}", fold(bad))):
        shown += [[("Exclude:  ", "bold"), (names, "")]]  # one line, for pasting
    first = next((outcome.check.id for outcome in findings.in_order(outcomes)), None)
    if first:
        shown += findings.explain_command(first, screen)
    elif not bad:
        shown += unstyled([f"Next:  {_for_hosts(command) if over_ssh else 'mgpu configure --slurm'}"])
    return shown


def _for_hosts(command: str) -> str:
    """Return the next command for the hosts of a doctor's command."""
    step = "smoke-test" if Path(DEFAULT_CONFIG).exists() else "configure"
    found = sorted(_HOSTS.findall(command))
    return " ".join([f"mgpu {step}", *(f"--{name} {value}" for name, value in found)])


def _format_node_count(number: int) -> str:
    return f"{number:,} {plural(number, 'node')}"


def document(fleet: Fleet, outcomes: Sequence[Outcome]) -> FleetEntry:
    """Return `fleet` of the doctor's document, with nodes as Slurm host lists."""
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
