"""How does a proposal become a file: may it replace the existing file, and does accelerate accept it?"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from mgpu import errors, files
from mgpu.command_line import below, shell
from mgpu.config import facts
from mgpu.config.reading import read, understand
from mgpu.errors import MgpuError
from mgpu.process import scratch
from mgpu.report import output as report_output
from mgpu.snapshot import Config, Snapshot
from mgpu.wizard import answers as decisions
from mgpu.wizard import existing_file, job_file, next_steps
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.edit_existing import answers_from
from mgpu.wizard.planned_output import Planned
from mgpu.wizard.proposal_types import Proposal
from mgpu.wizard.render_yaml import remembered
from mgpu.wizard.request import DEFAULT_FILE


def present(path: Path, snapshot: Snapshot) -> Answers | None:
    """What the file that is there decides; None when there is none, or it cannot be changed in place."""
    try:
        return edited(path, snapshot) if path.is_file() else None
    except MgpuError:
        return None


def edited(path: Path, snapshot: Snapshot) -> Answers:
    """What a file decides, on this machine. Raises MgpuError when there is nothing to start from."""
    config = read(path)
    if not config.values or any(fault.fatal for fault in config.faults):
        why = next((fault.message for fault in config.faults if fault.fatal), "it holds no values")
        validate = shell("mgpu configure --validate {:path}", os.fspath(path))
        raise MgpuError(f"{path} cannot be changed: {why}{below(validate, 'says more')}", errors.USAGE)
    found = answers_from(config, snapshot)
    if config.written_by_mgpu:  # the size of the model, the rate: what no key of accelerate holds
        kept = _only_remembered(existing_file.text_of(path))
        origins: dict[str, Origin] = dict.fromkeys(kept, "file")
        found = replace(found, **kept, origins={**found.origins, **origins})
    return found


def _only_remembered(text: str) -> dict[str, Any]:
    """Decisions that no value of the file contains; a file that mgpu wrote repeats them in its first lines."""
    kept = remembered(text)
    return {name: kept[name] for name in kept.origins if not decisions.BY_NAME[name].in_config}


def unchanged(path: Path, text: str) -> bool:
    """Whether the file already says this, comments and order aside."""
    if not path.is_file():
        return False
    try:
        old = read(path)
    except MgpuError:
        return False
    new = understand(text.encode("utf-8"), str(path))
    if not old.values or _meaning(old) != _meaning(new):
        return False
    return not old.written_by_mgpu or _only_remembered(existing_file.text_of(path)) == _only_remembered(text)


def _meaning(config: Config) -> tuple[Any, ...]:
    return config.values, config.launch_flags, config.batch_per_gpu, config.accumulate, config.dataset_size


def refuse_place(path: Path) -> None:
    """Raise MgpuError if no file can be written there: before anything is asked."""
    if path.is_dir():
        raise MgpuError(f"{path} is a folder", errors.USAGE)
    files.target_inside(path)
    whole = path.resolve()
    if not whole.parent.is_dir():
        raise MgpuError(f"cannot write {path}: there is no folder {whole.parent}", errors.USAGE)
    if not os.access(whole.parent, os.W_OK) and (not path.exists() or path.is_file()):
        read_only = os.statvfs(whole.parent).f_flag & os.ST_RDONLY
        why = "Read-only file system" if read_only else f"you may not write in {whole.parent}"
        raise MgpuError(f"cannot write {path}: {why}", errors.NOT_READY)


def refuse_problems(proposal: Proposal) -> None:
    """Raise MgpuError when the answers cannot be, with every sentence."""
    if proposal.problems:
        first, *others = proposal.problems
        raise MgpuError("\n".join([first, *(f"  {text}" for text in others)]), errors.NOT_READY)


def write(planned: Planned) -> int:
    """Write the config: identical is left alone, somebody else's is refused, ours is kept as a backup."""
    refuse_problems(planned.proposal)
    path, answers = planned.path, planned.request.save_answers
    for place in (path, planned.script, Path(answers) if answers else None):
        if place is not None:
            refuse_place(place)
    text = planned.config_text()
    planned = planned.with_conversions()
    if planned.base is not None and read(planned.base).written_by_mgpu:
        planned = replace(planned, before=remembered(existing_file.text_of(planned.base)))
    verdict = ask_loader(text, planned.request.python, path.name)
    if verdict is not None and not verdict.startswith("accelerate "):
        raise _refused(planned, verdict)
    script, checked_by = planned.script_text(text), ""
    if planned.script is not None:
        engine, folder = planned.proposal.engine, planned.script.absolute().parent
        checked_by = job_file.check(script, engine, folder, ask_slurm=planned.ask_slurm)
        job_file.refuse_foreign(planned.script, engine, agreed=planned.asked or planned.request.force)
    same = unchanged(path, text)
    if not same and path.exists():
        _refuse_foreign(planned)
    said = [f"{path} already says this: left as it is."] if same else _replaced(path, text, shown=planned.asked)
    if planned.script is not None:
        said += _write_script(planned.proposal, planned.script, script)
    return next_steps.show(planned, verdict, said, checked_by, script)


def _replaced(path: Path, text: str, *, shown: bool) -> list[str]:
    """Write a file; what is said of it: a backup, and what changed where that was not shown before."""
    said, changes = f"Wrote {path}", []
    if path.exists():
        changes = [] if shown else existing_file.differences(path, text)
        said += f"  (the previous one is kept as {files.back_up(path)})"
    files.write(path, text)
    return [said, *changes]


def _write_script(proposal: Proposal, path: Path, text: str) -> list[str]:
    if job_file.unchanged(path, text):
        return [f"{path} already says this: left as it is."]
    made = job_file.make_folders(proposal, path.absolute().parent)
    said = _replaced(path, text, shown=True)
    return [said[0] + (f", and made {made} for its output" if made else "")]


def _refused(planned: Planned, verdict: str) -> MgpuError:
    """Whose fault it is that accelerate does not take the text: what stays of somebody's file, or ours."""
    if planned.base is None or planned.before is not None:
        return MgpuError(f"accelerate does not take the config that mgpu made: {verdict}", errors.NOT_READY)
    return MgpuError(
        f"{planned.base} stays as it is: accelerate does not take what it keeps of its own.\n  {verdict}"
        + below(shell("mgpu configure --validate {:path}", os.fspath(planned.base)), "      says where")
        + below(shell("mgpu configure --validate {:path} --fix", os.fspath(planned.base)), "mends what is safe"),
        errors.NOT_READY,
    )


def _refuse_foreign(planned: Planned) -> None:
    path = planned.path
    if planned.asked or planned.request.force or path == planned.base or read(path).written_by_mgpu:
        return
    began_as_ours = existing_file.text_of(path).startswith("# Written by mgpu")
    what = "was changed since mgpu wrote it" if began_as_ours else "was not written by mgpu"
    raise MgpuError(
        f"{path} {what}; it stays as it is.\n"
        f"  mgpu configure --yes --force              replace it (a backup is kept)\n"
        f"  mgpu configure --yes -o OTHER.yaml        write another file"
        + below(shell("mgpu configure --validate {:path}", os.fspath(path)), "check it"),
        errors.REFUSED,
    )


def ask_loader(text: str, python: str | None = None, name: str = DEFAULT_FILE) -> str | None:
    """Whether the installed accelerate takes the text: "accelerate 1.15.0", its error, or None when nobody can say.

    `name`: what the error calls the file, which is not written yet.
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
