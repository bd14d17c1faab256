"""Show a job that was submitted earlier: `mgpu launch --slurm --status JOB`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import errors
from mgpu.hangs import hang_files
from mgpu.launch import hang_report, node_ranks, result_document
from mgpu.launch import report as launch_report
from mgpu.launch.request import Request
from mgpu.report import document
from mgpu.report import screen as report_screen
from mgpu.scheduler import sbatch_errors
from mgpu.slurm import ask_nodes
from mgpu.slurm import record as records
from mgpu.slurm import report as slurm_report
from mgpu.snapshot import Hang, Run

if TYPE_CHECKING:
    from mgpu.launch.run_json import JobDocument


def show(found: records.Record, request: Request) -> int:
    """Show a job on stdout, or write it as JSON; return the exit code."""
    folder = ask_nodes.folder_of(found) if found.nodes else None
    hang = hang_files.read(folder) if folder is not None and found.started else None
    ranks = _ranks(found, folder)
    if request.json_result:
        _write_json(found, hang, ranks, request.json_result)
        return errors.READY
    screen = report_screen.Screen.of(sys.stdout)
    rows = [("Job", f"{found.job}   {found.name}"), ("State", found.state)]
    if found.state == "PENDING":
        rows.append(("Pending", f"{sbatch_errors.explain_waiting(found.reason).words} ({found.reason})"))
        rows.append(("Est. start", found.start.replace("T", " ")))
    elif found.ended:
        rows.append(("Exit", f"{found.exit_code}" + (f", signal {found.signal}" if found.signal else "")))
    rows += [("Nodes", found.nodes), ("Hang", hang_report.one_line(hang)), ("Log", found.output)]
    slurm_report.show_plan(rows, screen)
    slurm_report.show(screen, launch_report.rank_lines(ranks, screen))
    return errors.READY


def _ranks(found: records.Record, folder: Path | None) -> JobDocument:
    """Return what the nodes have recorded of the ranks: the part of the result that a running job has too."""
    run = Run(found.exit_code, found.exit_code, found.ran_s or 0.0, going=not found.ended, watched=False)
    ranks: JobDocument = {"exit_code": found.exit_code}  # type: ignore[typeddict-item]
    result_document.add_ranks(ranks, node_ranks.with_records(run, folder))
    return ranks


def _write_json(found: records.Record, hang: Hang | None, ranks: JobDocument, name: str) -> None:
    more = {"ranks": ranks["ranks"], "remarks": ranks["remarks"], "pace": ranks["pace"]}
    of_hang = hang_report.entry(hang) if hang is not None else None
    whole = result_document.document({"slurm": dataclasses.asdict(found), **more, "hang": of_hang})
    if name == "-":
        print(document.text(whole), end="")
    else:
        result_document.store(Path(name), whole)
