"""What does `mgpu configure` do with its options: ask, write, plan, show, or validate?"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mgpu import describe, engine, errors, examine, probes, report
from mgpu.errors import MgpuError
from mgpu.snapshot import Snapshot
from mgpu.wizard import answers as decisions
from mgpu.wizard import answers_file
from mgpu.wizard.answers import Answers
from mgpu.wizard.saving import DEFAULT_FILE
from mgpu.wizard.settings import Proposal

# What a config can be made without, but no machine can tell. Everything else has a default.
_NEEDED = ("params", "batch_per_gpu")


@dataclass(frozen=True)
class Request:
    """The options of configure."""

    output: str = ""  # "": ./accelerate.yaml, with `edit` the edited file
    yes: bool = False
    no_input: bool = False
    guided: bool = False
    accessible: bool = False
    dry_run: bool = False
    diff: bool = False
    force: bool = False
    resume: bool = False
    fresh: bool = False
    plan: bool = False
    offline: bool = False
    edit: str = ""
    validate: tuple[str, ...] = ()
    show_origin: str = ""
    fix: bool = False
    loader: bool = True
    format: str = "human"
    from_: str = ""
    target: str = ""
    save_answers: str = answers_file.DEFAULT_FILE  # "": none
    answers: Answers = Answers()
    params_from: tuple[str, ...] = ()  # a script and its arguments
    python: str | None = None

    @property
    def path(self) -> Path:
        """The file that would be written."""
        return Path(self.output or self.edit or DEFAULT_FILE)

    @property
    def machine_flags(self) -> tuple[str, ...]:
        """What says for which machine, to be repeated."""
        return ("--target", self.target) if self.target else ("--from", self.from_) if self.from_ else ()


def run(request: Request) -> int:
    """`mgpu configure`; gives the exit code."""
    if request.validate or request.show_origin:
        return _validate(request)
    try:
        Path.cwd()
    except OSError:
        raise MgpuError("the current folder is gone\n  cd to one that exists", errors.NOT_READY) from None
    if request.fresh:
        from mgpu.wizard import drafts

        drafts.drop(drafts.path_of(Path.cwd()))
    asking = not (request.yes or request.dry_run or request.diff or request.plan)
    if asking and (request.no_input or not report.can_ask() or request.format != "human"):
        _refuse_missing(request)
        asking = False
    snapshot, nodes, text = _look(request)
    answers = _answers(request, snapshot, nodes)
    if request.plan:
        return _plan(request, answers, snapshot)
    from mgpu.wizard.proposal import propose

    machine = text or describe.machine(snapshot)

    def proposed(answers: Answers) -> Proposal:
        return propose(snapshot, answers, machine)

    if asking:
        return _ask(request, snapshot, answers, proposed)
    return _write(request, snapshot, answers, proposed)


def _validate(request: Request) -> int:
    from mgpu.config import validation

    machine = _look(request)[0] if request.from_ or request.target else None
    return validation.run(
        validation.Request(
            request.validate or (request.show_origin,), request.loader, request.format, request.fix, request.dry_run,
            show_origin=bool(request.show_origin), machine=machine, python=request.python,
        )
    )  # fmt: skip


def _look(request: Request) -> tuple[Snapshot, int, str]:
    """The machine the config is for, how many of them, and its name when it is not this one."""
    if request.target:
        from mgpu import target

        wanted = target.parse(request.target)
        return wanted.snapshot, wanted.nodes, wanted.text
    if request.from_:
        return examine.read_snapshot(Path(request.from_)), 1, ""
    with examine.progress() as show:
        return probes.gather(probes.QUICK, python=request.python, progress=show), 1, ""


def _answers(request: Request, snapshot: Snapshot, nodes: int) -> Answers:
    """All that was decided before the first question."""
    from mgpu.wizard import model

    given = request.answers
    if nodes > 1 and "nodes" not in given.origins:
        given = decisions.decided(given, "nodes", nodes, "flag")
    if request.edit:
        from mgpu.wizard import saving

        given = decisions.merge(given, saving.edited(Path(request.edit), snapshot))
    return model.resolved(
        given, offline=request.offline, script=request.params_from, python=request.python, say=_note
    )  # fmt: skip


def _refuse_missing(request: Request) -> None:
    """Nobody can be asked: that is fine when nothing is left to ask, or a file of answers was given."""
    given = request.answers
    replayed = "answers" in given.origins.values() or request.edit
    known = {*given.origins, *(["params"] if given.model or request.params_from else [])}
    missing = [name for name in _NEEDED if name not in known]
    if replayed or not missing:
        return
    flags = {key.name: key.flag for key in decisions.KEYS}
    why = (
        "--no-input: nothing is asked." if request.no_input else
        "CI is set, so nothing is asked." if os.environ.get("CI") else
        f"--format {request.format}: nothing is asked." if request.format != "human" and report.can_ask() else
        "no terminal, so nothing can be asked."
    )  # fmt: skip
    raise MgpuError(
        f"{why}\n"
        f"Missing: {', '.join(f'{name} ({flags[name]})' for name in missing)}\n"
        "Either   mgpu configure --yes              take every value shown by --dry-run\n"
        "or       mgpu configure --answers FILE     replay a file of answers",
        errors.USAGE,
    )


def _plan(request: Request, answers: Answers, snapshot: Snapshot) -> int:
    from mgpu import bandwidth, stamp
    from mgpu.wizard import table

    # A machine that was named or replayed is not this one, whatever lies in the folder.
    passed = None if request.machine_flags else stamp.measured_here(snapshot, request.path.parent)
    measured = bandwidth.speed_up(passed.scaling) if passed else None
    if request.format == "json":
        print(json.dumps(table.document(answers, snapshot, measured), indent=2, ensure_ascii=False))
    else:
        table.show(answers, snapshot, report.Screen.of(), one_by_one=request.accessible, measured=measured)
    return errors.READY


def _write(request: Request, snapshot: Snapshot, answers: Answers, proposed: Callable[[Answers], Proposal]) -> int:
    """Without a question: the file, the YAML, or the difference."""
    from mgpu.wizard import saving

    path, proposal = request.path, proposed(answers)
    saving.refuse_problems(proposal)
    base = Path(request.edit) if request.edit else None
    if request.dry_run:
        sys.stdout.write(saving.text_of(proposal, path, base, request.machine_flags))
        for note in saving.with_conversions(proposal, base).notes:
            _note(note)
        _note(f"nothing written; without --dry-run this would be {path}")
        return errors.READY
    if request.diff:
        code = _diff(path, saving.text_of(proposal, path, base, request.machine_flags))
        for note in saving.with_conversions(replace(proposal, notes=()), base).notes:
            _note(note)
        return code
    code = saving.write(
        saving.Job(
            path, proposal, answers, base, agreed=request.force or path == base, save_answers=request.save_answers,
            machine_flags=request.machine_flags, format=request.format, python=request.python,
        )
    )  # fmt: skip
    if not request.machine_flags and (stops := _stoppers(snapshot)):
        _note(f"before a launch, mend {', '.join(stops)}:  mgpu doctor")
    return code


def _diff(path: Path, text: str) -> int:
    """The whole difference to stdout, as patch and git read it."""
    from mgpu.config import mending

    try:
        before = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {errors.reason(error)}", errors.NOT_READY) from None
    for line in mending.diff(before, text, str(path)):
        sys.stdout.write(f"{line}\n")
    _note(f"nothing written; without --diff {path} would be {'changed' if before else 'written'}")
    return errors.READY


def _ask(request: Request, snapshot: Snapshot, answers: Answers, proposed: Callable[[Answers], Proposal]) -> int:
    """Screen A, the questions, the review, and the file."""
    from mgpu.wizard import drafts, flow, prompts, saving
    from mgpu.wizard.session import Session, begun, left_off, resuming

    plain = request.accessible or prompts.cursorless()
    if request.accessible:
        _say("Accessible mode: on. Questions are numbered lines, nothing is redrawn.")
    elif plain:
        _say("Plain prompts: this terminal cannot move its cursor. Questions are numbered lines.")
    saving.refuse_place(request.path)
    place = drafts.path_of(Path.cwd())
    output = str(request.path)
    draft, trouble = (drafts.resume(place), "") if request.resume else drafts.load(place)
    if trouble:
        _note(trouble)
    scene = flow.Scene(
        propose=proposed,
        replaces=lambda name: Path(name).exists(),
        draft=draft,
        left_off=left_off(draft, place) if draft else "",
        granted="" if request.machine_flags else _granted(snapshot),
        existing=None if request.edit else saving.present(request.path, snapshot),
    )
    state = begun(answers, output, guided=request.guided)
    if request.resume and draft is not None:
        kept = replace(
            draft,
            answers=decisions.merge(request.answers, draft.answers),
            output=request.output or draft.output or output,
        )
        state = flow.resumed(kept, scene)
    elif request.edit:
        state = replace(state, step=flow.REVIEW, from_file=True)
    proposed(state.answers)  # a machine that cannot be configured for is told before anything is asked
    looked = f"For {'--target ' + request.target if request.target else request.from_}" if request.machine_flags else ""
    session = Session(
        state, scene, place, plain, base=Path(request.edit) if request.edit else request.path,
        offline=request.offline, flags=request.machine_flags, resumed=request.resume,
        stops=() if request.machine_flags else _stoppers(snapshot),
        **({"looked": looked} if looked else {}),
    )  # fmt: skip
    end = session.hold()
    if end.step == flow.QUIT:
        _say("Nothing written.")
        if not end.asked:
            return errors.READY
        if drafts.save(place, replace(end, step=flow.REVIEW, editing="")):
            _say(f"Your answers are kept:  {resuming(request.machine_flags)}")
        return errors.READY
    job = saving.Job(
        Path(end.output), proposed(end.answers), end.answers, session.base if end.from_file else None,
        agreed=True, shown=True, asked=True, save_answers=request.save_answers,
        machine_flags=request.machine_flags, python=request.python,
    )  # fmt: skip
    try:
        code = saving.write(job)
    except MgpuError as error:
        if not end.asked or not drafts.save(place, replace(end, step=flow.REVIEW, editing="")):
            raise
        raise MgpuError(
            f"{error.message}\nYour answers are kept:  {resuming(request.machine_flags)}", error.exit_code
        ) from None
    drafts.drop(place)
    return code


def _granted(snapshot: Snapshot) -> str:
    """What Slurm lets this shell use, in a sentence; empty outside of an allocation."""
    slurm = snapshot.slurm
    if slurm is None or slurm.job_id is None:
        return ""
    nodes = f"{slurm.nodes} node{'' if slurm.nodes == 1 else 's'}" if slurm.nodes else ""
    gpus = f"{slurm.gpus_on_node} GPU{'' if slurm.gpus_on_node == 1 else 's'} on this one" if slurm.gpus_on_node else ""
    what = ", ".join(part for part in (nodes, gpus) if part)
    return f"Inside Slurm job {slurm.job_id}" + (f", which grants {what}." if what else ".")


def _stoppers(snapshot: Snapshot) -> list[str]:
    """Ids of the errors that would stop a launch on this machine."""
    outcomes = engine.run(engine.load(), snapshot)
    return [o.check.id for o in outcomes if o.status == "fail" and not o.because_of]


def _say(text: str) -> None:
    screen = report.Screen.of()
    screen.show(report.unstyled(report.wrapped(text, screen.width)))


def _note(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"mgpu: {text}", file=sys.stderr)
