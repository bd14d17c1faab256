"""Why does a job make no progress? `--why JOB`: its nodes are asked now what its ranks do, through their folder."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from mgpu import errors
from mgpu.command_line import shell
from mgpu.errors import MgpuError
from mgpu.hangs import hang_files
from mgpu.job_files.watch_block import FOLDER
from mgpu.launch import why
from mgpu.launch.request import Request
from mgpu.slurm import job_outcome, node_watch
from mgpu.slurm.record import Record

_ANSWER_S = 20.0  # NFS shows a new file after up to some seconds, and the nodes look once a second
_POLL_S = 0.2


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
    nodes = hang_files.node_folders(folder)
    number = _request(folder)
    end = time.monotonic() + _ANSWER_S
    while time.monotonic() < end and not all(_has_answered(node, number) for node in nodes):
        time.sleep(_POLL_S)
    answers = {node.name: hang_files.read(node, node_watch.ANSWER) for node in nodes if _has_answered(node, number)}
    silent = [node.name.removeprefix("node-") for node in nodes if answers.get(node.name) is None]
    found = tuple(hang for hang in answers.values() if hang is not None)
    if not found:
        log = shell("cat {:path}", str(folder / "watch.log"))
        text = f"no node of job {record.job} has answered: its ranks have not started, or the watch has ended ({log})"
        raise MgpuError(text, errors.UNKNOWN)
    gaps = (f"{', '.join(silent)} did not answer within {_ANSWER_S:.0f} s",) if silent else ()
    return why.show(request, why.ask(why.Subject(f"job {record.job}", None, (), found, gaps)))


def _request(folder: Path) -> int:
    """Write the number of a new request: the time, so that it grows."""
    number = int(time.time())
    with contextlib.suppress(OSError, ValueError):
        number = max(number, int((folder / node_watch.REQUEST).read_text("ascii")) + 1)
    try:
        (folder / node_watch.REQUEST).write_text(str(number), "ascii")
    except OSError as error:
        raise MgpuError(f"cannot ask the nodes through {folder}: {errors.reason(error)}", errors.UNKNOWN) from None
    return number


def _has_answered(node: Path, number: int) -> bool:
    with contextlib.suppress(OSError):
        return int((node / node_watch.ANSWER).stat().st_mtime) == number
    return False
