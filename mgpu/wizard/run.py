"""What does `mgpu configure` do with its options: ask, write, plan, show, or validate?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import engine, errors, messages, probes
from mgpu.engine import selections
from mgpu.errors import MgpuError
from mgpu.process import training_python
from mgpu.report import describe, document, load
from mgpu.report import output as report_output
from mgpu.report import screen as report_screen
from mgpu.secrets_masking import masked
from mgpu.snapshot import Snapshot
from mgpu.text import visible
from mgpu.wizard import answers as decisions
from mgpu.wizard import existing_file
from mgpu.wizard.answers import Answers
from mgpu.wizard.examined_machines import Machines
from mgpu.wizard.nodes import Site, progress_text
from mgpu.wizard.proposal_types import Proposal
from mgpu.wizard.request import Request
from mgpu.wizard.topics import JOB

if TYPE_CHECKING:
    from mgpu.launchers.measurements import Known
    from mgpu.wizard.session import Session

__all__ = ["Request", "run"]


def run(request: Request) -> int:
    """Run `mgpu configure` and return the exit code."""
    if request.validate or request.show_origin:
        return _validate(request)
    try:
        Path.cwd()
    except OSError:
        raise MgpuError("the current folder no longer exists\n  cd to one that exists", errors.NOT_READY) from None
    if request.fresh:
        from mgpu.wizard import drafts

        drafts.drop(drafts.path_of(Path.cwd()))
    if request.answers.hosts and request.look is not None:
        found, decided = request.look(request.answers)
        request = replace(request, machine=found, answers=decided)
    asking = not (request.yes or request.dry_run or request.diff or request.plan)
    away = _look(request) if request.machine_flags else None  # a wrong --target is said before what is missing
    if asking and (request.no_input or not report_screen.can_ask() or request.format != "human"):
        _refuse_missing(request)
        asking = False
    snapshot, nodes, text = away or _look(request)
    answers = _answers(request, snapshot, nodes)
    if request.plan:
        return _plan(request, answers, snapshot)
    from mgpu.wizard.proposal import propose

    machine = text or describe.machine(snapshot)
    site = replace(_site(request, answers, snapshot, asking=asking), measured=_measured(request, snapshot))

    machines = Machines((snapshot, nodes, machine), request.look)
    if request.machine:
        machines.add(answers, (snapshot, nodes, machine))

    def proposed(answers: Answers) -> Proposal:
        found, _, text = machines.of(answers)
        return propose(found, answers, text, site)

    if asking:
        return _ask(request, machines, answers, proposed, site)
    return _write(request, snapshot, proposed(answers), site)


def _site(request: Request, answers: Answers, snapshot: Snapshot, *, asking: bool) -> Site:
    """Return what an engine offers here. Slurm's partitions are looked up if the answers use Slurm, or may do so."""
    wanted = bool(answers.slurm) and not request.emit
    inside = snapshot.slurm is not None and snapshot.slurm.job_id is not None
    if not (wanted or request.emit or (asking and not request.machine_flags and not inside)):
        return Site()
    from mgpu.job_files.environment import setup_lines
    from mgpu.probes import cluster
    from mgpu.wizard import folder

    found = None
    if not request.emit:
        with report_output.progress() as show:
            if show:
                show(progress_text())
            found = cluster.read()
        if found is None and not wanted:
            return Site()
    return Site(
        found,
        request.emit,
        named=bool(request.machine_flags),
        command=folder.command(Path.cwd()),
        setup=setup_lines(python=request.python),
        mgpu=training_python.own_command(),
        config=os.fspath(request.path),
        file=os.fspath(request.job_file),
    )


def _validate(request: Request) -> int:
    from mgpu.validate import request as validate_request
    from mgpu.validate import run as validate_run

    machine = _look(request)[0] if request.from_ or request.target else None
    paths, origin = request.validate or (request.show_origin,), bool(request.show_origin)
    asked = validate_request.Request(paths, request.loader, request.format, request.fix, request.dry_run)
    asked = replace(asked, strict=request.strict, verbose=request.verbose, show_origin=origin)
    return validate_run.run(replace(asked, machine=machine, python=request.python))


def _look(request: Request) -> tuple[Snapshot, int, str]:
    """Return the machine the config is for, the number of nodes, and a description if it is not this machine."""
    if request.machine:
        return request.machine
    if request.target:
        from mgpu.planning import gpu_models

        wanted = gpu_models.parse(request.target)
        return wanted.snapshot, wanted.nodes, wanted.text
    if request.from_:
        return load.read_snapshot(Path(request.from_)), 1, ""
    with report_output.progress() as show:
        return probes.gather(probes.QUICK, python=request.python, progress=show), 1, ""


def _answers(request: Request, snapshot: Snapshot, nodes: int) -> Answers:
    """Return all decisions made before the first question."""
    from mgpu.wizard import model

    given = request.answers
    if nodes > 1 and given.origins.get("nodes", "answers") == "answers":
        given = decisions.with_decision(decisions.without(given, ["nodes"]), "nodes", nodes, "flag")
    if request.edit:
        from mgpu.wizard import write_config

        given = decisions.merge(given, write_config.answers_of_file(Path(request.edit), snapshot))
    return model.resolve_size(
        given, offline=request.offline, script=request.params_from, python=request.python, say=messages.notice
    )


def _refuse_missing(request: Request) -> None:
    """Raise MgpuError if needed answers are missing and no question can be asked."""
    given = request.answers
    replayed = "answers" in given.origins.values() or request.edit
    known = {*given.origins, *(["params"] if given.model or request.params_from else [])}
    missing = [one for one in decisions.KEYS if one.needed and one.name not in known]
    if replayed or not missing:
        return
    why = "there is no terminal to ask questions on."
    if request.no_input:
        why = "--no-input does not allow questions."
    elif os.environ.get("CI"):
        why = "questions are disabled because CI is set."
    elif request.format != "human" and report_screen.can_ask():
        why = f"--format {request.format} does not allow questions."
    raise MgpuError(
        f"{why}\n"
        f"Missing: {', '.join(f'{one.name} ({one.flag})' for one in missing)}\n"
        "Either   mgpu configure --yes              accept the values shown by --dry-run\n"
        "or       mgpu configure --answers FILE     replay a file of answers",
        errors.USAGE,
    )


def _plan(request: Request, answers: Answers, snapshot: Snapshot) -> int:
    from mgpu.launchers import stamp
    from mgpu.planning import bandwidth
    from mgpu.wizard import scaling_table

    # With --target or --from, measurements in this folder are from another machine.
    passed = None if request.machine_flags else stamp.last_measurements(snapshot, request.path.parent)
    measured = bandwidth.speed_up(passed.scaling) if passed else None
    script = _measured(request, snapshot)
    if request.format == "json":
        print(document.text(scaling_table.document(answers, snapshot, measured, script)), end="")
    else:
        screen = report_screen.Screen.of()
        scaling_table.show(answers, snapshot, screen, one_by_one=request.accessible, measured=measured, script=script)
    return errors.READY


def _measured(request: Request, snapshot: Snapshot) -> Known | None:
    """Return what was measured of a script in the folder of the config; None for another machine."""
    from mgpu.launchers import measurements

    return None if request.machine_flags else measurements.latest(snapshot, request.path.parent)


def _write(request: Request, snapshot: Snapshot, proposal: Proposal, site: Site) -> int:
    """Write the file without questions, or print it or the diff; the same for the script of a job."""
    from mgpu.wizard import write_config
    from mgpu.wizard.planned_output import Planned

    if proposal.job is None:
        _refuse_job_options(request)
    write_config.refuse_problems(proposal)
    base = Path(request.edit) if request.edit else None
    planned = Planned(request, proposal, request.path, base, ask_slurm=site.offers_slurm, machine=snapshot)
    if request.dry_run or request.diff:
        texts = {planned.path: planned.config_text()}
        if planned.script is not None:
            texts[planned.script] = planned.script_text(texts[planned.path])
        code = (_diff if request.diff else _dry_run)(texts)
        shown = replace(planned, proposal=replace(proposal, notes=())) if request.diff else planned
        for note in shown.with_notes().proposal.notes:
            messages.notice(note)
        return code
    code = write_config.write(planned)
    if not request.machine_flags and not request.machine and not proposal.engine and (stops := _stoppers(snapshot)):
        messages.notice(f"fix before a launch: {', '.join(stops)}. Details: mgpu doctor")
    return code


def _refuse_job_options(request: Request) -> None:
    """Raise MgpuError if options of a job were typed without a job, because they would have no effect."""
    answers = request.answers
    typed = [("--job", request.job)] if request.job else []
    for one in decisions.KEYS:
        value = answers[one.name]
        of_a_job = one in JOB and one.name != "slurm"
        if of_a_job and answers.origins.get(one.name) == "flag" and value and value != "auto":
            typed.append((one.flag, "" if value is True else decisions.as_typed(one.name, value)))
    if typed:
        option = " ".join(filter(None, typed[0]))
        raise MgpuError(f"{option} has no effect without a job: add --slurm or --emit ENGINE", errors.USAGE)


def _dry_run(texts: Mapping[Path, str]) -> int:
    """Print the files to stdout; several with their names above them, as `tail` does."""
    for number, (path, text) in enumerate(texts.items()):
        if len(texts) > 1:
            sys.stdout.write(f"{chr(10) if number else ''}# ==> {path} <==\n")
        sys.stdout.write(text)
    messages.notice(f"dry run: would write {' and '.join(map(str, texts))}")
    return errors.READY


def _diff(texts: Mapping[Path, str]) -> int:
    """Print the whole diff to stdout, in the format of patch and git."""
    from mgpu.config import fixes

    for path, text in texts.items():
        before = existing_file.text_of(path) if path.exists() else ""
        lines = fixes.diff(before, text, str(path))
        for line in lines:
            sys.stdout.write(f"{masked(line)}\n")
        would = f"would change {path}" if lines else f"{path} would stay unchanged"
        messages.notice(f"nothing written: {would if before else f'would write {path}'}")
    return errors.READY


def _ask(
    request: Request, machines: Machines, answers: Answers, proposed: Callable[[Answers], Proposal], site: Site
) -> int:
    """Show the start screen, the questions and the review, and write the file."""
    from mgpu.wizard import drafts, flow, write_config
    from mgpu.wizard.session import resume_command

    session = _session(request, machines, answers, proposed, site)
    proposed(session.state.answers)  # raises for an unsupported machine before anything is asked
    end = session.run()
    kept = f"Your answers are saved. Continue:  {resume_command(request.flags)}"

    def keep() -> bool:
        return bool(end.asked) and drafts.save(session.draft, replace(end, step=flow.REVIEW, editing=""))

    if end.step == flow.QUIT:
        _say("Nothing written.")
        if keep():
            _say(kept)
        return errors.READY
    if not request.machine_flags and proposed(end.answers).ranks > 1:
        _offer_port()
    try:
        code = write_config.write(
            replace(session.current_plan(ask_slurm=site.offers_slurm), machine=machines.of(end.answers)[0])
        )
    except MgpuError as error:
        if not keep():
            raise
        raise MgpuError(f"{error.message}\n{kept}", error.exit_code) from None
    drafts.drop(session.draft)
    return code


def _offer_port() -> None:
    """Offer to change this folder's script if it trains alone: every rank would train a model of its own."""
    from mgpu.port import needed, offer
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Choice, Question
    from mgpu.wizard import folder

    path = Path(folder.command(Path.cwd())[0])
    if not needed.port_command(path):
        return
    question = Question(
        "port",
        f"{visible(path.name)} trains on one GPU. Change it to train on all?",
        "Without a change, every rank trains a model of its own on all the data.",
        default="show",
        choices=(Choice("show", "Show the changes, then decide"), Choice("leave", "Leave it as it is")),
        saves=False,
    )
    if prompts.ask(question) != "show":
        return
    try:
        offer.offer(path, "accelerate", report_output.to_stdout, yes=False, dry_run=False, can_ask=True)
    except MgpuError as error:  # the answers to all questions are still to be written
        _say(error.message)


def _session(
    request: Request, machines: Machines, answers: Answers, proposed: Callable[[Answers], Proposal], site: Site
) -> Session:
    """Return the session at its first question: the start, that of a draft, or the review of a file."""
    from mgpu.prompts import prompts
    from mgpu.wizard import drafts, flow, write_config
    from mgpu.wizard.session import Session, first_state, left_off

    plain = request.accessible or prompts.cursorless()
    if request.accessible:
        _say("Accessible mode: on. Questions are numbered lines, and nothing is redrawn.")
    elif plain:
        _say("Plain prompts: this terminal cannot move its cursor. Questions are numbered lines.")
    write_config.refuse_place(request.path)
    place, output = drafts.path_of(Path.cwd()), str(request.path)
    draft, trouble = (drafts.resume(place), "") if request.resume else drafts.load(place)
    if trouble:
        messages.notice(trouble)
    snapshot = machines.start[0]
    scene = flow.Scene(
        propose=proposed,
        replaces=lambda name: Path(name).exists(),
        draft=draft,
        left_off=left_off(draft, place) if draft else "",
        granted="" if request.machine_flags else _describe_allocation(snapshot) or _describe_partitions(site),
        script=os.fspath(request.job_file),
        existing=None if request.edit else write_config.existing_answers(request.path, snapshot),
    )
    state = first_state(answers, output, guided=request.guided)
    if request.resume and draft is not None:
        merged, output = decisions.merge(request.answers, draft.answers), request.output or draft.output or output
        merged = merged if request.answers.hosts else machines.examine(merged)
        state = flow.resume(replace(draft, answers=merged, output=output), scene)
    elif request.edit:
        state = replace(state, step=flow.REVIEW, from_file=True)
    stops = () if request.machine_flags or answers.slurm or request.emit else _stoppers(snapshot)
    return Session(state, scene, place, plain, request, machines.examine, stops)


def _describe_allocation(snapshot: Snapshot) -> str:
    """Return what Slurm has allocated to this shell, as a sentence; "" outside an allocation."""
    slurm = snapshot.slurm
    if slurm is None or slurm.job_id is None:
        return ""
    nodes = f"{slurm.nodes} node{'' if slurm.nodes == 1 else 's'}" if slurm.nodes else ""
    gpus = f"{slurm.gpus_on_node} GPU{'' if slurm.gpus_on_node == 1 else 's'} on this one" if slurm.gpus_on_node else ""
    what = ", ".join(part for part in (nodes, gpus) if part)
    return f"Inside Slurm job {slurm.job_id}" + (f", which has {what}." if what else ".")


def _describe_partitions(site: Site) -> str:
    """Return what Slurm offers for a job, as a sentence."""
    from mgpu.wizard import job, nodes

    partitions = nodes.usable(site.cluster)
    if not partitions:
        return ""
    more = len(partitions) - 1
    rest = f", and {more} more partition{'s' if more > 1 else ''}" if more else ""
    return f"Slurm found: partition {partitions[0].name} with {job.offer(partitions[0])}{rest}."


def _stoppers(snapshot: Snapshot) -> list[str]:
    """Return the ids of the errors that would stop a launch on this machine."""
    return [o.check.id for o in engine.judge(snapshot, selections.ALL) if o.status == "fail" and not o.because_of]


def _say(text: str) -> None:
    screen = report_screen.Screen.of()
    screen.show(report_screen.unstyled(report_screen.wrapped(text, screen.width)))
