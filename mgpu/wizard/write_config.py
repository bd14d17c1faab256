"""How does a proposal become a file: what would change, may it be replaced, does accelerate take it, what is told?"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from mgpu import errors, file_reading, files
from mgpu.command_line import below, from_words, shell
from mgpu.config import facts, fixes
from mgpu.config.reading import LARGEST_BYTES, parse, read, understand
from mgpu.errors import MgpuError
from mgpu.planning.requirements import FSDP2_ACCELERATE, older
from mgpu.process import scratch
from mgpu.report import document
from mgpu.report import output as report_output
from mgpu.report import screen as report_screen
from mgpu.snapshot import Config, Snapshot
from mgpu.wizard import answers as decisions
from mgpu.wizard import answers_file, job_file
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.edit_existing import answers_from, changed, converted, out_of_reach
from mgpu.wizard.manual_commands import first_and_last
from mgpu.wizard.proposal_types import Proposal
from mgpu.wizard.render_yaml import remembered, render

DEFAULT_FILE = "accelerate.yaml"


@dataclass(frozen=True)
class Job:
    """One file to be written."""

    path: Path
    proposal: Proposal
    answers: Answers
    base: Path | None = None  # a file of somebody else that is changed in place: its comments and other keys stay
    agreed: bool = False  # whoever asked knows that the present file is replaced
    shown: bool = False  # the difference was shown before
    asked: bool = False  # questions were asked: the way without them is told
    save_answers: str = ""  # "": no answers file
    machine_flags: tuple[str, ...] = ()  # --target or --from, to be repeated
    more_flags: tuple[str, ...] = ()  # --emit, --job: to be repeated as well
    script: Path | None = None  # the job script, where the proposal has a job
    script_agreed: bool = False  # whoever asked knows that the present script is replaced
    format: str = "human"
    python: str | None = None  # whose accelerate is asked
    ask_slurm: bool = False  # a cluster is here, which can be asked whether it takes the job
    before: Answers | None = None  # what was decided for the file of ours that is changed


def text_of(proposal: Proposal, path: Path, base: Path | None = None, flags: Sequence[str] = ()) -> str:
    """What would stand in the file. Raises MgpuError when a file of somebody else cannot be changed in place.

    `flags`: --target or --from, which the command that writes it anew needs as well.
    """
    if base is None:
        return render(proposal, date.today(), str(path), flags)
    config = read(base)
    if config.written_by_mgpu:
        return render(proposal, date.today(), str(path), flags)
    if config.deepspeed_file is not None and (keys := out_of_reach(config, proposal)):
        raise MgpuError(
            f"{base} leaves {', '.join(keys)} to {config.deepspeed_file.path}, which mgpu does not change: change it "
            "there\n  mgpu configure -o OTHER.yaml   or write a config without that file",
            errors.REFUSED,
        )
    raw = _text(base)
    try:
        return fixes.apply(raw, changed(config, proposal), json_only=base.suffix == ".json")
    except fixes.CannotMend as error:
        raise MgpuError(
            f"{base} cannot be changed in place: {error}\n  mgpu configure -o OTHER.yaml   write another file",
            errors.NOT_READY,
        ) from None


def with_conversions(proposal: Proposal, base: Path | None) -> Proposal:
    """The proposal, and as notes what else it makes of a file of somebody else."""
    notes = () if base is None else converted(read(base), proposal)
    return replace(proposal, notes=(*notes, *proposal.notes)) if notes else proposal


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
        kept = _only_remembered(_text(path))
        origins: dict[str, Origin] = dict.fromkeys(kept, "file")
        found = replace(found, **kept, origins={**found.origins, **origins})
    return found


def _only_remembered(text: str) -> dict[str, Any]:
    """Decisions that no value of a file tells; a file of ours repeats them in its first lines."""
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
    return not old.written_by_mgpu or _only_remembered(_text(path)) == _only_remembered(text)


def _meaning(config: Config) -> tuple[Any, ...]:
    return config.values, config.launch_flags, config.batch_per_gpu, config.accumulate, config.dataset_size


def differences(path: Path, text: str) -> list[str]:
    """What the file would lose (-) and gain (+), without comments."""
    before = _text(path).splitlines() if path.is_file() else []
    old, new = ([_bare(line) for line in lines if _bare(line)] for lines in (before, text.splitlines()))
    found = difflib.unified_diff(old, new, lineterm="", n=0)
    return [f"  {line}" for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def _text(path: Path) -> str:
    try:
        return file_reading.read(path, most=LARGEST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {errors.reason(error)}", errors.NOT_READY) from None


def _bare(line: str) -> str:
    return "" if line.lstrip().startswith("#") else re.sub(r"\s{2,}#.*$", "", line).rstrip()


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


def write(job: Job) -> int:
    """Write the config: identical is left alone, somebody else's is refused, ours is kept as a backup."""
    refuse_problems(job.proposal)
    path = job.path
    for place in (path, job.script, Path(job.save_answers) if job.save_answers else None):
        if place is not None:
            refuse_place(place)
    text = text_of(job.proposal, path, job.base, (*job.machine_flags, *job.more_flags))
    job = replace(job, proposal=with_conversions(job.proposal, job.base))
    if job.base is not None and read(job.base).written_by_mgpu:
        job = replace(job, before=remembered(_text(job.base)))
    verdict = ask_loader(text, job.python, path.name)
    if verdict is not None and not verdict.startswith("accelerate "):
        raise _refused(job, verdict)
    script, asked = None, ""
    if job.script is not None and job.proposal.job is not None:
        script = script_text(job, text)
        asked = job_file.check(script, job.proposal.engine, job.script.absolute().parent, ask_slurm=job.ask_slurm)
        job_file.refuse_foreign(job.script, job.proposal.engine, agreed=job.script_agreed)
    same = unchanged(path, text)
    if not same and path.exists():
        _refuse_foreign(job)
    said = [f"{path} already says this: left as it is."] if same else _replaced(path, text, shown=job.shown)
    if job.script is not None and script is not None:
        said += _write_script(job, job.script, script)
    return _told(job, verdict, said, asked, script or "")


def script_text(job: Job, config_text: str) -> str:
    """The job script, or the file of another engine."""
    assert job.script is not None
    output = ("-o", os.fspath(job.path)) if _is_named(job.path) else ()
    flags = (*job.machine_flags, *output, *job.more_flags)
    return job_file.text_of(job.proposal, job.script, job.path, config_text, flags)


def _replaced(path: Path, text: str, *, shown: bool) -> list[str]:
    """Write a file; what is said of it: a backup, and what changed where that was not shown before."""
    said, changes = f"Wrote {path}", []
    if path.exists():
        changes = [] if shown else differences(path, text)
        said += f"  (the previous one is kept as {files.back_up(path)})"
    files.write(path, text)
    return [said, *changes]


def _write_script(job: Job, path: Path, text: str) -> list[str]:
    if job_file.unchanged(path, text):
        return [f"{path} already says this: left as it is."]
    made = job_file.make_folders(job.proposal, path.absolute().parent)
    said = _replaced(path, text, shown=True)
    return [said[0] + (f", and made {made} for its output" if made else "")]


def _refused(job: Job, verdict: str) -> MgpuError:
    """Whose fault it is that accelerate does not take the text: what stays of somebody's file, or ours."""
    if job.base is None or job.before is not None:
        return MgpuError(f"accelerate does not take the config that mgpu made: {verdict}", errors.NOT_READY)
    return MgpuError(
        f"{job.base} stays as it is: accelerate does not take what it keeps of its own.\n  {verdict}"
        + below(shell("mgpu configure --validate {:path}", os.fspath(job.base)), "      says where")
        + below(shell("mgpu configure --validate {:path} --fix", os.fspath(job.base)), "mends what is safe"),
        errors.NOT_READY,
    )


def _refuse_foreign(job: Job) -> None:
    path = job.path
    if job.agreed or read(path).written_by_mgpu:
        return
    what = "was changed since mgpu wrote it" if _began_as_ours(path) else "was not written by mgpu"
    raise MgpuError(
        f"{path} {what}; it stays as it is.\n"
        f"  mgpu configure --yes --force              replace it (a backup is kept)\n"
        f"  mgpu configure --yes -o OTHER.yaml        write another file"
        + below(shell("mgpu configure --validate {:path}", os.fspath(path)), "check it"),
        errors.REFUSED,
    )


def _began_as_ours(path: Path) -> bool:
    return _text(path).startswith("# Written by mgpu")


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


def _told(job: Job, verdict: str | None, said: Sequence[str], asked: str = "", script: str = "") -> int:
    """What was written, and what comes next. `asked`: who read the job script. `script`: its text."""
    replay = _save_answers(job)
    if job.format == "json":
        print(document.text(_document(job, verdict, asked, script)), end="")
        return errors.READY
    screen = report_screen.Screen.of()
    proposal, path = job.proposal, job.path
    lines = report_screen.unstyled([*said, *replay, ""])
    checked = (
        f"checked against {verdict}'s own loader"
        if verdict
        else "not checked by accelerate: it cannot be imported here"
    )
    ranks = f"{proposal.ranks} rank{'s' if proposal.ranks > 1 else ''}"
    texts = [f"{ranks}, {checked}."]
    if asked:
        texts.append(f"The job script was checked by {asked}.")
    texts += _of_engine(job, script)
    if proposal.cpu and proposal.engine:
        texts.append("No GPU on the nodes: the ranks run on the CPU over gloo.")
    elif proposal.cpu:
        texts.append(
            "No NVIDIA GPU on this machine: the config runs its ranks on the CPU over gloo."
            + (" smoke-test and launch add ACCELERATE_USE_CPU=true, and show it." if proposal.nodes == 1 else "")
        )
    if proposal.launch_flags and not proposal.engine:
        texts.append(f"The file cannot say it, so mgpu launch adds: {' '.join(proposal.launch_flags)}")
    if job.machine_flags:
        texts.append(f"Made for {proposal.machine}, which is not necessarily this machine: copy the file there.")
    texts += [*_too_old(proposal, verdict), *proposal.notes]
    for text in texts:
        lines += report_screen.unstyled(report_screen.wrapped(text, screen.width))
    lines += _commands(job, screen)
    lines.append([])
    lines.append([("Not verified yet.", "bold")])
    there = "  (on that machine)" if job.machine_flags else ""
    if job.script is not None:
        if proposal.engine == "slurm":
            lines[-1] = [("Not verified yet: mgpu launch tests the nodes before it trains.", "bold")]
        lines += [[("Next:  ", "bold"), (line, "bold")] if not n else [(f"       {line}", "bold")]
                  for n, line in enumerate(_next_of_job(job))]  # fmt: skip
        screen.show(lines)
        return errors.READY
    if proposal.nodes > 1:
        more = proposal.nodes - 1
        there = f"  (with 1{f' to {more}' if more > 1 else ''} on the other machine{'s' * (more > 1)})"
    if line := _next(proposal, path):
        lines.append([(f"Next:  {line}{there}", "bold")])
    screen.show(lines)
    return errors.READY


def _of_engine(job: Job, script: str) -> list[str]:
    """What its package says of the file of another engine than Slurm, and that nobody ran it."""
    if not script or job.proposal.engine == "slurm":
        return []
    from mgpu.job_files import validating

    return validating.told(job.proposal.engine, script)


def _next_of_job(job: Job) -> list[str]:
    """The command that starts the job."""
    assert job.script is not None
    script = os.fspath(job.script)
    if job.proposal.engine != "slurm":
        several = job.proposal.engine == "torchrun" and job.proposal.nodes > 1
        start = shell(_START[job.proposal.engine], script)
        if several:
            start = shell("HEAD=first-machine NODE_RANK=0 bash {:path}  (on each machine, with its number)", script)
        return [start] if start else []
    there = "  (on a login node of the cluster)" if not job.ask_slurm else ""
    launch, alone = shell("mgpu launch --slurm {:path}", script), shell("sbatch {:path}", script)
    return [f"{launch}{there}", f"or without mgpu:  {alone}"] if launch else []


_START = {
    "torchrun": "bash {:path}",
    "kubeflow": "kubectl create -f {:path}",
    "skypilot": "sky launch {:path}",
}


def _next(proposal: Proposal, path: Path) -> str:
    """The command that tests the config; of several machines it is started on each, by its number."""
    flags = ["-c", os.fspath(path)] if _is_named(path) else []
    return from_words(["mgpu", "smoke-test", *flags, *(["--node-rank", "0"] if proposal.nodes > 1 else [])])


def _too_old(proposal: Proposal, verdict: str | None) -> list[str]:
    """What the accelerate that was asked takes without a word, and does otherwise: the machine it is for is not this
    one, or its packages would have been looked at before."""
    version = (verdict or "").removeprefix("accelerate ")
    if proposal.values["distributed_type"] != "FSDP" or not older(version, FSDP2_ACCELERATE):
        return []
    least = ".".join(str(part) for part in FSDP2_ACCELERATE)
    return [f"accelerate {version} takes this file and runs FSDP1: where it trains, FSDP2 needs {least} or newer."]


def _commands(job: Job, screen: report_screen.Screen) -> list[report_screen.Line]:
    """Commands that paste: never wrapped, but for the continuation lines a shell understands."""
    lines: list[report_screen.Line] = []
    if job.proposal.nodes > 1 and not job.proposal.engine:
        lines += [[], [("On each machine its own command, with your own script:", "bold")]]
        lines += report_screen.unstyled(
            f"  {line}" for line in first_and_last(job.proposal, config=os.fspath(job.path))
        )
        lines.append([("or, the same by torchrun:", "bold")])
        lines += report_screen.unstyled(f"  {line}" for line in first_and_last(job.proposal, tool="torchrun"))
    if job.asked:
        output = ("-o", os.fspath(job.path)) if _is_named(job.path) else ()
        if job.base is not None and job.before is None:  # somebody else's file: its other keys are part of the result
            output = ("--edit", os.fspath(job.base), *(output if job.path != job.base else ()))
        again = decisions.equivalent_flags(
            job.answers, extra=(*output, *job.machine_flags, *job.more_flags), width=screen.width - 2
        )
        lines += [[], [("Same result without questions:", "bold")]]
        lines += report_screen.unstyled(f"  {line}" for line in again.splitlines())
    return lines


def _save_answers(job: Job) -> list[str]:
    """Keep the answers beside the config; nothing where nothing was decided, or all of it came from a file."""
    decided = set(job.answers.origins.values()) - {"answers", "file"}
    if not job.save_answers or not decided:
        return []
    path = Path(job.save_answers)
    said = answers_file.save(path, _decided(job))
    again = shell("mgpu configure --answers {:path}", str(path))
    return [f"{said}  replay: {again}" if again and said.startswith("Wrote ") else said]


def _decided(job: Job) -> Answers:
    """The answers to keep: what a file of ours took from the machine is not decided by reading it back."""
    if job.before is None:
        return job.answers
    kept, answers = job.before, job.answers
    for name, origin in job.answers.origins.items():
        if origin == "file" and name not in kept.origins:
            answers = decisions.decided(answers, name, decisions.parse(name, "auto"), "file")
    return answers


def _document(job: Job, verdict: str | None, asked: str = "", script: str = "") -> dict[str, Any]:
    path, proposal = job.path, job.proposal
    written = (
        {} if job.script is None else {"job": {"path": str(job.script), "engine": proposal.engine, "checked": asked}}
    )
    values = []
    for setting in proposal.settings:
        rows = setting.keys.items() or [(None, setting.text)]  # without a key it is not in the file
        values += [
            {"name": setting.label, "key": k, "value": v, "source": setting.origin, "reason": setting.reason}
            for k, v in rows
        ]
    return {
        "schema": "mgpu.configure/1.0",
        "config": parse(_text(path)).values,
        "config_path": str(path),
        "sha256": read(path).sha256,
        "values": values,
        "launch_flags": list(proposal.launch_flags),
        "notes": [*_of_engine(job, script), *_too_old(proposal, verdict), *proposal.notes],
        "verdict": "valid" if verdict else "unknown",
        "exit_code": errors.READY,
        "next": [line for line in (_next(proposal, path),) if line] if job.script is None else _next_of_job(job)[:1],
        **written,
    }


def _is_named(path: Path) -> bool:
    """Whether a command has to name the config: it is not the one that every command reads by itself."""
    return os.fspath(path) not in (DEFAULT_FILE, f"./{DEFAULT_FILE}")
