"""How does a proposal become a file: may it replace the existing file, and does accelerate accept it?"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from mgpu import errors, files
from mgpu.command_line import below, shell
from mgpu.config import facts
from mgpu.config.reading import parse_config, read
from mgpu.errors import MgpuError
from mgpu.launchers import project_folder, stamp
from mgpu.process import scratch
from mgpu.report import output as report_output
from mgpu.snapshot import Config, Snapshot
from mgpu.wizard import answers as decisions
from mgpu.wizard import existing_file, job_file, next_steps
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.edit_existing import answers_from
from mgpu.wizard.planned_output import Planned
from mgpu.wizard.proposal_types import Proposal, Setting
from mgpu.wizard.render_yaml import recorded_answers
from mgpu.wizard.request import DEFAULT_FILE


def existing_answers(path: Path, snapshot: Snapshot) -> Answers | None:
    """Return the decisions of the existing file; None if there is none, or it cannot be changed in place."""
    try:
        return answers_of_file(path, snapshot) if path.is_file() else None
    except MgpuError:
        return None


def answers_of_file(path: Path, snapshot: Snapshot) -> Answers:
    """Return the decisions of a file on this machine. Raises MgpuError if there is nothing to start from."""
    config = read(path)
    if not config.values or any(fault.fatal for fault in config.faults):
        why = next((fault.message for fault in config.faults if fault.fatal), "it contains no values")
        validate = shell("mgpu configure --validate {:path}", os.fspath(path))
        raise MgpuError(f"{path} cannot be changed: {why}{below(validate, 'show details')}", errors.USAGE)
    found = answers_from(config, snapshot)
    if config.written_by_mgpu:  # the model size, the rate: no accelerate key stores them
        kept = _only_remembered(existing_file.text_of(path))
        origins: dict[str, Origin] = dict.fromkeys(kept, "file")
        found = replace(found, **kept, origins={**found.origins, **origins})
    return found


def with_ranks_of(path: Path, present: Proposal) -> Proposal:
    """Return the proposal of an existing file with the file's number of ranks.

    Without a GPU here that number is not one of its decisions, so the proposal has the one for this machine.
    """
    ranks = read(path).ranks_here

    def of_file(row: Setting) -> Setting:
        if row.label != "ranks" or ranks is None:
            return row
        same = row.keys.get("num_processes") == ranks
        return replace(row, text=row.text if same else str(ranks), origin="file")

    return replace(present, settings=tuple(map(of_file, present.settings)))


def _only_remembered(text: str) -> dict[str, Any]:
    """Return decisions that no value of the file contains; mgpu stores them in a comment at its top."""
    kept = recorded_answers(text)
    return {name: kept[name] for name in kept.origins if not decisions.BY_NAME[name].in_config}


def is_up_to_date(path: Path, text: str) -> bool:
    """Return whether the file already has this content, ignoring comments and order."""
    if not path.is_file():
        return False
    try:
        old = read(path)
    except MgpuError:
        return False
    new = parse_config(text.encode("utf-8"), str(path))
    if not old.values or _meaning(old) != _meaning(new):
        return False
    return not old.written_by_mgpu or _only_remembered(existing_file.text_of(path)) == _only_remembered(text)


def _meaning(config: Config) -> tuple[Any, ...]:
    return config.values, config.launch_flags, config.batch_per_gpu, config.accumulate, config.dataset_size


def refuse_place(path: Path) -> None:
    """Raise MgpuError if no file can be written there; called before anything is asked."""
    if path.is_dir():
        raise MgpuError(f"{path} is a folder", errors.USAGE)
    files.target_inside(path)
    whole = path.resolve()
    if not whole.parent.is_dir():
        raise MgpuError(f"cannot write {path}: folder {whole.parent} does not exist", errors.USAGE)
    if not os.access(whole.parent, os.W_OK) and (not path.exists() or path.is_file()):
        read_only = os.statvfs(whole.parent).f_flag & os.ST_RDONLY
        why = "Read-only file system" if read_only else f"no write permission in {whole.parent}"
        raise MgpuError(f"cannot write {path}: {why}", errors.NOT_READY)


def refuse_problems(proposal: Proposal) -> None:
    """Raise MgpuError with all problems if the answers are impossible."""
    if proposal.problems:
        first, *others = proposal.problems
        raise MgpuError("\n".join([first, *(f"  {text}" for text in others)]), errors.NOT_READY)


def write(planned: Planned) -> int:
    """Write the config; leave an identical file alone, refuse one not from mgpu, back up one from mgpu."""
    refuse_problems(planned.proposal)
    path, answers = planned.path, planned.request.save_answers
    for place in (path, planned.script, Path(answers) if answers else None):
        if place is not None:
            refuse_place(place)
    text = planned.config_text()
    planned = planned.with_notes()
    if planned.base is not None and read(planned.base).written_by_mgpu:
        planned = replace(planned, before=recorded_answers(existing_file.text_of(planned.base)))
    verdict = ask_loader(text, planned.request.python, path.name)
    if verdict is not None and not verdict.startswith("accelerate "):
        raise _rejection_error(planned, verdict)
    script, checked_by = planned.script_text(text), ""
    if planned.script is not None:
        engine, folder = planned.proposal.engine, planned.script.absolute().parent
        checked_by = job_file.check(script, engine, folder, ask_slurm=planned.ask_slurm)
        job_file.refuse_foreign(planned.script, engine, agreed=planned.asked or planned.request.force)
    same = is_up_to_date(path, text)
    if not same and path.exists():
        _refuse_foreign(planned)
    report = [f"{path} is already up to date."] if same else _write_file(path, text, shown=planned.asked)
    if planned.script is not None:
        report += _write_script(planned.proposal, planned.script, script)
    return next_steps.show(replace(planned, verified=_verified(planned)), verdict, report, checked_by, script)


def _verified(planned: Planned) -> str:
    """Return when the config that is written now was verified on this machine; "" if it was not, or if unknown.

    Nothing is probed for a folder in which no smoke test has passed.
    """
    request, path = planned.request, planned.path
    elsewhere = request.machine_flags or request.python or planned.script is not None or planned.proposal.nodes > 1
    if elsewhere or request.verified is None or not (path.parent / project_folder.FOLDER / stamp.FILE).exists():
        return ""
    try:
        verified, when = request.verified(path)
    except MgpuError:
        return ""
    return when if verified else ""


def _write_file(path: Path, text: str, *, shown: bool) -> list[str]:
    """Write a file; return lines about the backup, and the changes unless they were `shown` before."""
    wrote, changes = f"Wrote {path}", []
    if path.exists():
        changes = [] if shown else existing_file.differences(path, text)
        wrote += f"  (backup: {files.back_up(path)})"
    files.write(path, text)
    return [wrote, *changes]


def _write_script(proposal: Proposal, path: Path, text: str) -> list[str]:
    if job_file.is_up_to_date(path, text):
        return [f"{path} is already up to date."]
    made = job_file.make_folders(proposal, path.absolute().parent)
    wrote = _write_file(path, text, shown=True)
    return [wrote[0] + (f", and created {made} for its output" if made else "")]


def _rejection_error(planned: Planned, verdict: str) -> MgpuError:
    """Return the error if accelerate rejects the config, due to mgpu or to what an edited file already contained."""
    if planned.base is None or planned.before is not None:
        return MgpuError(f"accelerate rejects the config that mgpu generated: {verdict}", errors.NOT_READY)
    return MgpuError(
        f"{planned.base} left unchanged: accelerate rejects settings that were already in it.\n  {verdict}"
        + below(shell("mgpu configure --validate {:path}", os.fspath(planned.base)), "      show where")
        + below(shell("mgpu configure --validate {:path} --fix", os.fspath(planned.base)), "fix what is safe"),
        errors.NOT_READY,
    )


def _refuse_foreign(planned: Planned) -> None:
    path = planned.path
    if planned.asked or planned.request.force or path == planned.base or read(path).written_by_mgpu:
        return
    began_as_ours = existing_file.text_of(path).startswith("# Written by mgpu")
    what = "was changed since mgpu wrote it" if began_as_ours else "was not written by mgpu"
    raise MgpuError(
        f"{path} {what}; left unchanged.\n"
        f"  mgpu configure --yes --force              replace it (a backup is kept)\n"
        f"  mgpu configure --yes -o OTHER.yaml        write another file"
        + below(shell("mgpu configure --validate {:path}", os.fspath(path)), "check it"),
        errors.REFUSED,
    )


def ask_loader(text: str, python: str | None = None, name: str = DEFAULT_FILE) -> str | None:
    """Check the text with the installed accelerate: "accelerate 1.15.0" if accepted, else its error; None if unknown.

    `name`: the file name for the error, as the file is not written yet.
    """
    with scratch.folder() as folder:
        path = folder / DEFAULT_FILE
        path.write_text(text, "utf-8")
        with report_output.progress() as show:
            if show:
                show("accelerate's own loader")
            loader = facts(path, python=python).loader
    if loader is None:
        return None
    return f"accelerate {loader.accelerate}" if loader.accepted else str(loader.error).replace(str(path), name)
