"""Build and write the `--json-result` document of a launch."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import errors, files, messages
from mgpu.errors import MgpuError
from mgpu.launch.request import Request
from mgpu.report.document import text
from mgpu.secrets_masking import masked_argv
from mgpu.version import __version__

if TYPE_CHECKING:
    from mgpu.launch.run_json import RunDocument
    from mgpu.report.json_types import Triage
    from mgpu.snapshot import Run


def rerun_command(target: Sequence[str], *more: str) -> str:
    """Return the current command line, with the option `more` (name, value) set, ready to paste except masked secrets.

    `target`: the script and its arguments, from the Request.
    """
    arguments = masked_argv(sys.argv[1:])
    place = arguments.index("launch") + 1 if "launch" in arguments else 0
    before, options = arguments[:place], arguments[place:]
    own = options[: max(0, len(options) - len(target))]
    given = next((number for number, word in enumerate(own) if word.partition("=")[0] in more[:1]), None)
    if given is not None:
        del options[given : given + (1 if "=" in own[given] else 2)]
    return shlex.join(["mgpu", *before, *more, *options])


def check(request: Request) -> None:
    """Raise MgpuError (2) if the document could not be written, before the training starts rather than after it."""
    name = request.json_result
    if not name or request.of_a_run:
        return
    if name == "-":
        raise MgpuError("--json-result -: stdout belongs to the training script. Name a file.", errors.USAGE)
    path = Path(name)
    if path.is_dir():
        raise MgpuError(f"--json-result {name} is a folder. Name a file.", errors.USAGE)
    try:
        files.refuse_strangers_links(path)
    except MgpuError as error:
        raise MgpuError(f"--json-result {name}: {error.message}", errors.LAUNCH_REFUSED) from None
    beside = path.resolve().parent
    if not os.access(beside if not path.exists() or path.is_file() else path, os.W_OK):
        why = "is not writable" if beside.is_dir() else "does not exist"
        raise MgpuError(f"--json-result {name}: the folder {beside} {why}", errors.USAGE)


def write(request: Request, content: dict[str, Any]) -> None:
    """Write the document to the `--json-result` file; a write error is reported and changes nothing else."""
    store(Path(request.json_result), document(content))


def document(content: Mapping[str, Any]) -> Any:
    """Return an mgpu.run/1.0 document: the fields of every launch, and `content`."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"schema": "mgpu.run/1.0", "mgpu": __version__, "time": now, **content}


def new_document(run: Run, *, triage: bool) -> Any:
    """Return the document of a finished run with the fields that every run has."""
    return document(
        {
            "phase": "training",
            "exit_code": run.exit_code,
            "launcher_code": run.launcher_code,
            "signalled": run.signalled,
            "timed_out": run.timed_out,
            "triage": triage,
        }
    )


def add_failure(document: RunDocument, run: Run, triage: Triage) -> None:
    """Add how long the run took, and why it failed."""
    fields: Any = {"duration_s": run.seconds, **triage}
    document.update(fields)


def add_ranks(document: RunDocument, run: Run) -> None:
    """Add how the ranks ended, their memory and pace, and the findings on them."""
    from mgpu.launch import pace_report, remarks
    from mgpu.report import failure

    document["ranks"] = failure.rank_entries(run)
    document["remarks"] = remarks.find_remarks(run)
    document["pace"] = pace_report.entry(run.pace) if run.pace is not None else None


def empty_triage() -> Triage:
    """Return the triage of a run that succeeded."""
    return {"first_failure": None, "probable_cause": None, "secondary": [], "log": None}


def store(path: Path, whole: Mapping[str, object], mode: int | None = None) -> None:
    """Write a document atomically. An error is only reported: the training's exit code matters more than this file."""
    try:
        put = files.write if mode is not None else files.write_named  # in mgpu's own folder, or named by the user
        put(path, text(whole), mode=mode)
    except MgpuError as error:
        messages.notice(error.message)


def record_declined(request: Request) -> int:
    """Write the document of a run that the user did not confirm; return the exit code."""
    if request.json_result:
        write(request, {"phase": "preflight", "exit_code": errors.LAUNCH_REFUSED, "error": "not started: answered No"})
    return errors.LAUNCH_REFUSED
