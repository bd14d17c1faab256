"""How is the plan shown? `mgpu configure --plan`: tables, a line for each number on a narrow screen, or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, cast

from mgpu.errors import READY
from mgpu.planning import memory, plan
from mgpu.planning.measured import batch_that_fits
from mgpu.quantities import rate_text
from mgpu.report.screen import WIDTH_PLAIN, Line, Screen, unstyled, wrapped
from mgpu.snapshot import Snapshot
from mgpu.version import __version__
from mgpu.wizard.answers import Answers
from mgpu.wizard.scaling_plan import Held, Sheet, sheet
from mgpu.wizard.topics.learning_rate import RULE_NAMES

if TYPE_CHECKING:
    from mgpu.launchers.measurements import Known
    from mgpu.wizard.configure_json import (
        KeptEntry,
        MeasuredEntry,
        PlanDocument,
        PlanRow,
        RateEntry,
        SchedulerPlan,
        StepsEntry,
    )

_VERDICTS: Final = {"ok": "fits", "tight": "fits tightly", "no": "does not fit"}
_NARROW: Final = 60  # below this, and for screen readers, every number is on its own line


@dataclass(frozen=True)
class _Table:
    """A part of the plan: rows by number of GPUs, columns by name."""

    title: str
    columns: tuple[str, ...]
    about: str  # prefix of a column's name when it is shown without the table
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def show(
    answers: Answers,
    snapshot: Snapshot,
    screen: Screen,
    *,
    one_by_one: bool = False,
    measured: Mapping[int, float] | None = None,
    script: Known | None = None,
) -> None:
    """Print the plan; `one_by_one` for screen readers: no table, a line for each number."""
    screen.show(lines(sheet(answers, snapshot, measured, script), answers, screen, one_by_one=one_by_one))


def document(
    answers: Answers, snapshot: Snapshot, measured: Mapping[int, float] | None = None, script: Known | None = None
) -> PlanDocument:
    """Return the plan as a JSON document."""
    whole = sheet(answers, snapshot, measured, script)
    return {
        "schema": "mgpu.configure/1.0",
        "mgpu": __version__,
        "plan": {
            "machine": {"text": whole.machine, "gpus": whole.gpus_here, "gpu_memory_bytes": whole.memory_bytes},
            "reference_batch": whole.reference,
            "optimizer": whole.optimizer,
            "measured": _measured_document(script, whole.memory_bytes),
            "rows": [_row_document(row, whole.held.get(row.ranks, ())) for row in whole.rows],
            "missing": list(whole.missing),
            "assumed": list(whole.assumed),
            "notes": list(whole.notes),
        },
        "exit_code": READY,
    }


def _measured_document(script: Known | None, room_bytes: int | None) -> MeasuredEntry | None:
    """Return what was measured of the user's script, and what has changed since: it counts if nothing has."""
    if script is None:
        return None
    counts = not script.changed and not script.measurement.cpu and room_bytes is not None
    room = batch_that_fits(script.measurement, room_bytes or 0) if counts else None
    more = {
        "changed": list(script.changed),
        "batch_that_fits": room.batch if room else None,
        "batch_that_fits_bytes": room.need_bytes if room else None,
    }
    return cast("MeasuredEntry", {**asdict(script.measurement), **more})


def _row_document(row: plan.Row, held: Iterable[Held]) -> PlanRow:
    speed = row.speed_up
    return {
        "gpus": row.ranks,
        "batch_per_gpu": row.per_gpu,
        "accumulate": row.accumulate,
        "effective_batch": row.effective,
        "epoch": cast("StepsEntry", asdict(row.steps)) if row.steps else None,
        "keeps_reference": cast("KeptEntry", asdict(row.kept)) if row.kept else None,
        "rates": [cast("RateEntry", asdict(rate)) for rate in row.rates],
        "scheduler": cast("SchedulerPlan", asdict(row.scheduler)) if row.scheduler else None,
        "speed_up": {"low": speed.low, "high": speed.high, "source": speed.source, "measured": speed.measured},
        "memory": [
            {
                "strategy": one.strategy,
                "weights_bytes": one.need.weights_bytes,
                "gradients_bytes": one.need.gradients_bytes,
                "optimizer_bytes": one.need.optimizer_bytes,
                "buckets_bytes": one.need.buckets_bytes,
                "host_bytes": one.need.host_bytes,
                "total_bytes": one.need.total_bytes,
                "fits": None if not one.verdict else one.verdict != "no",
                "roomy": None if not one.verdict else one.verdict == "ok",
                "formula": one.need.formula,
                "source": one.need.source,
                "not_counted": list(one.need.not_counted),
            }
            for one in held
        ],
    }


def lines(whole: Sheet, answers: Answers, screen: Screen, *, one_by_one: bool = False) -> list[Line]:
    """Return the lines to show: tables, or on a narrow screen a line for each number."""
    most = whole.rows[-1].ranks
    here = "" if whole.gpus_here != 0 else "; this machine has none"
    machines = f"{answers.nodes} nodes, each" if (answers.nodes or 1) > 1 else "Machine"
    head = f"Planned for 1-{most} GPUs{here}. {machines}: {whole.machine}."
    out: list[Line] = unstyled(wrapped(head, screen.width))
    tables = [
        part for part in (_batch_table(whole, answers), _rate_table(whole, answers), _memory_table(whole)) if part
    ]
    grids = [_grid(table) for table in tables]
    if one_by_one or screen.width < _NARROW or any(_length(line) > screen.width for grid in grids for line in grid):
        out += _one_by_one(whole, tables, screen.width)
    else:
        for grid in grids:
            out += [[], *grid]
    if whole.missing or whole.assumed or whole.notes:
        out.append([])
    notes = [*whole.notes]
    if whole.assumed:
        notes.append(f"Assumed: {', '.join(whole.assumed)}.")
    notes += [f"Not shown: {missing}." for missing in whole.missing]
    for note in notes:
        out += unstyled(wrapped(note, screen.width, "", "  "))
    return out


def _batch_table(whole: Sheet, answers: Answers) -> _Table:
    columns: dict[str, list[str]] = {}
    rows = whole.rows
    if answers.batch_per_gpu is not None:
        columns["batch per GPU"] = [str(row.per_gpu) for row in rows]
        columns["accumulate"] = [_number(row.accumulate) for row in rows]
        columns["effective"] = [_number(row.effective) for row in rows]
    if any(row.steps for row in rows):
        columns["steps/epoch"] = [_number(row.steps.optimizer_steps if row.steps else None) for row in rows]
        if answers.epochs:
            columns[f"in {answers.epochs} epochs"] = [
                _number(row.steps.optimizer_steps * answers.epochs if row.steps else None) for row in rows
            ]
    if whole.reference and any(row.kept for row in rows):
        columns[f"to keep {whole.reference}"] = [
            f"{row.kept.per_gpu} x {row.kept.accumulate}" if row.kept else "-" for row in rows
        ]
    columns["speed-up"] = [row.speed_up.text for row in rows]
    return _table("Batch and steps" if len(columns) > 1 else "Speed", columns, rows)


def _rate_table(whole: Sheet, answers: Answers) -> _Table | None:
    rows = [row for row in whole.rows if row.rates]
    if not rows or answers.lr is None:
        return None
    columns = {
        RULE_NAMES[rule]: [rate_text(rate.value) for row in rows for rate in row.rates if rate.rule == rule]
        for rule in RULE_NAMES
    }
    if answers.lr_rule == "auto":
        columns["suggested"] = [RULE_NAMES[row.rate.rule] for row in rows if row.rate]
    else:
        columns["you chose"] = [RULE_NAMES[answers.lr_rule] for _ in rows]
    if all(row.scheduler for row in rows):
        columns["scheduler steps"] = [_number(row.scheduler.build_with if row.scheduler else None) for row in rows]
    title = f"Learning rate ({rate_text(answers.lr)} was tuned for an effective batch of {answers.lr_ref_batch})"
    return _table(title, columns, rows, "rate")


def _memory_table(whole: Sheet) -> _Table | None:
    if not whole.held:
        return None
    columns: dict[str, list[str]] = {}
    for place, strategy in enumerate(memory.STRATEGIES):
        columns[memory.STRATEGY_NAMES[strategy]] = [
            " ".join((memory.gib(held[place].need.resident_bytes), held[place].verdict)).strip()
            for held in whole.held.values()
        ]
    return _table("Memory per GPU: weights, gradients, optimizer", columns, whole.rows, "memory")


def _table(title: str, columns: dict[str, list[str]], rows: Sequence[plan.Row], about: str = "") -> _Table:
    cells = tuple((row.ranks, tuple(column[at] for column in columns.values())) for at, row in enumerate(rows))
    return _Table(title, tuple(columns), about, cells)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _grid(table: _Table) -> list[Line]:
    """Return a table with right-aligned columns; headers of several words take two lines."""
    body = [(str(ranks), *cells) for ranks, cells in table.rows]
    heads = [_split_heading(head) for head in ("GPUs", *table.columns)]
    widths = [max(*(len(part) for part in head), *(len(row[at]) for row in body)) for at, head in enumerate(heads)]
    gap = "   " if sum(widths) + 3 * len(widths) <= WIDTH_PLAIN else "  "
    out: list[Line] = [[(table.title, "bold")]]
    for level in range(2):
        texts = [head[level].rjust(wide) for head, wide in zip(heads, widths, strict=True)]
        if any(text.strip() for text in texts):
            out.append([("  " + gap.join(texts), "")])
    return out + unstyled(
        "  " + gap.join(cell.rjust(wide) for cell, wide in zip(row, widths, strict=True)) for row in body
    )


def _split_heading(head: str) -> tuple[str, str]:
    """Split a header into two lines; a single word is on the second."""
    first, _, rest = head.partition(" ")
    return (first, rest) if rest else ("", first)


def _one_by_one(whole: Sheet, tables: Sequence[_Table], width: int) -> list[Line]:
    """Return one line per number, grouped by GPUs: "effective: 32"."""
    out: list[Line] = []
    for row in whole.rows:
        out += [[], [(f"{row.ranks} GPU{'s' if row.ranks > 1 else ''}", "bold")]]
        for table in tables:
            cells = dict(table.rows).get(row.ranks, ())
            for column, cell in zip(table.columns, cells, strict=False):
                name = f"{table.about}, {column}" if table.about else column
                out += unstyled(wrapped(f"{name}: {_spell_out(cell)}", width, "  ", "    "))
    return out


def _spell_out(cell: str) -> str:
    """Return a cell with its verdict in full: "41 GiB, does not fit"."""
    size, _, verdict = cell.rpartition(" ")
    return f"{size}, {_VERDICTS[verdict]}" if verdict in _VERDICTS else cell


def _length(line: Line) -> int:
    return sum(len(text) for text, _ in line)
