"""What does `--json-result` hold?"""

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


def again(target: Sequence[str], *more: str) -> str:
    """The command line that this is, with another option and its value before the target, which is a Request's: pastes,
    but for a masked secret."""
    words = masked_argv(sys.argv[1:])
    place = words.index("launch") + 1 if "launch" in words else 0
    before, options = words[:place], words[place:]
    own = options[: max(0, len(options) - len(target))]
    given = next((number for number, word in enumerate(own) if word.partition("=")[0] in more[:1]), None)
    if given is not None:
        del options[given : given + (1 if "=" in own[given] else 2)]
    return shlex.join(["mgpu", *before, *more, *options])


def check(request: Request) -> None:
    """Raises MgpuError (2) where the document could not be written: known before the training, not after it."""
    name = request.json_result
    if not name or request.of_a_run:
        return
    if name == "-":
        raise MgpuError("--json-result -: stdout is the training's; name a file", errors.USAGE)
    path = Path(name)
    if path.is_dir():
        raise MgpuError(f"--json-result {name} is a folder; name a file", errors.USAGE)
    try:
        files.refuse_strangers_links(path)
    except MgpuError as error:
        raise MgpuError(f"--json-result {name}: {error.message}", errors.LAUNCH_REFUSED) from None
    beside = path.resolve().parent
    if not os.access(beside if not path.exists() or path.is_file() else path, os.W_OK):
        why = "may not be written" if beside.is_dir() else "does not exist"
        raise MgpuError(f"--json-result {name}: the folder {beside} {why}", errors.USAGE)


def write(request: Request, content: dict[str, Any]) -> None:
    """Write the document where `--json-result` says; that it cannot be written is told, and changes nothing."""
    written(Path(request.json_result), document(content))


def document(content: Mapping[str, Any]) -> Any:
    """mgpu.run/1.0: what every end of a launch tells, and what this one does."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"schema": "mgpu.run/1.0", "mgpu": __version__, "time": now, **content}


def begun(run: Run, *, triage: bool) -> Any:
    """The document of a run that has ended, as far as it is the same of every run."""
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
    """How long it took, why it failed, and how its ranks ended."""
    from mgpu.report import failure

    told: Any = {"duration_s": run.seconds, **triage, "ranks": failure.ranks(run)}
    document.update(told)


def no_triage() -> Triage:
    """Of a run that went well."""
    return {"first_failure": None, "probable_cause": None, "secondary": [], "log": None}


def written(path: Path, whole: Mapping[str, object], mode: int | None = None) -> None:
    """Write a document in one step. The training's exit code matters more than this file."""
    try:
        put = files.write if mode is not None else files.write_named  # of mgpu's own folder, or named by the user
        put(path, text(whole), mode=mode)
    except MgpuError as error:
        messages.notice(error.message)


def declined(request: Request) -> int:
    """What was answered No to."""
    if request.json_result:
        write(request, {"phase": "preflight", "exit_code": errors.LAUNCH_REFUSED, "error": "not started: answered No"})
    return errors.LAUNCH_REFUSED
