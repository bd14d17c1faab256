"""Why does a job make no progress? `--why JOB`: its nodes are asked now what its ranks do, through their folder."""

from __future__ import annotations

from pathlib import Path

from mgpu import errors
from mgpu.command_line import shell
from mgpu.errors import MgpuError
from mgpu.hangs import hang_files
from mgpu.job_files.watch_block import FOLDER
from mgpu.launch import node_answers, why, why_subject
from mgpu.launch.request import Request
from mgpu.slurm import job_outcome
from mgpu.slurm.record import Record


def folder_of(record: Record) -> Path | None:
    """Return the folder that the nodes of a job share; None if it has no recorder."""
    return next(job_outcome.folders(record, Path(record.output), FOLDER), None)


def explain(request: Request, record: Record) -> int:
    """Ask the nodes of a running job what its ranks do, and show the answer; return the exit code."""
    folder = folder_of(record)
    if folder is None:
        text = f"job {record.job} has no recorder: it was not submitted by mgpu launch --slurm, or with --no-recorder"
        raise MgpuError(text, errors.UNKNOWN)
    if record.state != "RUNNING":
        last = f". What its ranks did is in {folder}/{hang_files.NAME}" if hang_files.read(folder) else ""
        raise MgpuError(f"job {record.job} is not running ({record.state}){last}", errors.UNKNOWN)
    answers = node_answers.ask(folder, hang_files.node_folders(folder))
    if not answers.found:
        log = shell("cat {:path}", str(folder / "watch.log"))
        text = f"no node of job {record.job} has answered: its ranks have not started, or the watch has ended ({log})"
        raise MgpuError(text, errors.UNKNOWN)
    silent = ", ".join(node.name.removeprefix("node-") for node in answers.silent)
    gaps = (f"{silent} did not answer within {node_answers.ANSWER_S:.0f} s",) if silent else ()
    found = tuple(answers.found.values())
    return why.show(request, why.ask(why_subject.Subject(f"job {record.job}", None, (), found, gaps)))
