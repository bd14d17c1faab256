"""What does configure print after writing: which checks passed, what is left to do, the next command?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import errors
from mgpu.command_line import from_words, shell
from mgpu.config.reading import parse, read
from mgpu.job_formats import FORMATS
from mgpu.planning.requirements import FSDP2_ACCELERATE, is_older
from mgpu.report import document
from mgpu.report import screen as report_screen
from mgpu.text import visible
from mgpu.wizard import answers as decisions
from mgpu.wizard import answers_file, existing_file, folder
from mgpu.wizard.answers import Answers
from mgpu.wizard.manual_commands import Tool, first_and_last
from mgpu.wizard.planned_output import Planned
from mgpu.wizard.proposal_types import Proposal

if TYPE_CHECKING:
    from mgpu.wizard.configure_json import SettingEntry, WrittenDocument


def show(planned: Planned, verdict: str | None, report: Sequence[str], checked_by: str, script: str) -> int:
    """Show what was written and the next command. `checked_by`: what checked the job script; `script`: its text."""
    replay = _save_answers(planned)
    if planned.request.format == "json":
        print(document.text(_document(planned, verdict, checked_by, script)), end="")
        return errors.READY
    screen = report_screen.Screen.of()
    lines = report_screen.unstyled([*report, *replay, ""])
    for text in _texts(planned, verdict, checked_by, script):
        lines += report_screen.unstyled(report_screen.wrapped(text, screen.width))
    screen.show([*lines, *_commands(planned, screen), [], *_next_lines(planned)])
    return errors.READY


def _texts(planned: Planned, verdict: str | None, checked_by: str, script: str) -> list[str]:
    """Return which checks passed, and what the user should know about the files."""
    proposal = planned.proposal
    loader = f"checked against {verdict}'s own loader"
    checked = loader if verdict else "not checked with accelerate, which cannot be imported here"
    texts = [f"{proposal.ranks} rank{'s' if proposal.ranks > 1 else ''}, {checked}."]
    if checked_by:
        texts.append(f"The job script was checked with {checked_by}.")
    texts += _engine_notes(planned, script)
    if proposal.cpu and proposal.engine:
        texts.append("No GPU on the nodes: the ranks run on the CPU with gloo.")
    elif proposal.cpu:
        added = " smoke-test and launch set ACCELERATE_USE_CPU=true, and show it." if proposal.nodes == 1 else ""
        texts.append(f"No NVIDIA GPU on this machine: the ranks run on the CPU with gloo.{added}")
    if proposal.launch_flags and not proposal.engine:
        texts.append(f"The file cannot store these flags, so mgpu launch adds them: {' '.join(proposal.launch_flags)}")
    if planned.request.machine_flags:
        texts.append(f"Written for {proposal.machine}. If that is not this machine, copy the file there.")
    return [*texts, *_too_old(proposal, verdict), *proposal.notes]


def _next_lines(planned: Planned) -> list[report_screen.Line]:
    """Return whether the config is verified, and the command that verifies it or starts the script with it."""
    proposal, commands = planned.proposal, _next_commands(planned)
    if proposal.engine == "slurm":
        first = "Not verified yet: mgpu launch tests the nodes before training."
    else:
        first = f"{planned.verified[:1].upper()}{planned.verified[1:]}." if planned.verified else "Not verified yet."
    there = ""
    if planned.script is None and proposal.nodes > 1 and not proposal.answers.hosts:
        more = proposal.nodes - 1
        there = f"  (with 1{f' to {more}' if more > 1 else ''} on the other node{'s' * (more > 1)})"
    elif planned.script is None and planned.request.machine_flags:
        there = "  (on that machine)"
    script = _script_lines(planned)
    beside: list[report_screen.Line] = [[(f"       {line}", "bold")] for line in commands[1:]]
    start: list[report_screen.Line] = [[(f"Next:  {commands[0]}{there}", "bold")]] if commands else []
    return [*script, [(first, "bold")], *start, *beside]


def _script_lines(planned: Planned) -> list[report_screen.Line]:
    """Return that this folder's script trains alone, and the command that changes it; nothing if it does not."""
    from mgpu.port import needed

    name = folder.command(Path.cwd())[0]
    line = "" if planned.proposal.ranks == 1 else needed.port_command(Path(name))
    return report_screen.unstyled([f"{visible(name)} trains on one GPU. To train on all:", f"  {line}"]) if line else []


def _engine_notes(planned: Planned, script: str) -> list[str]:
    """Return what the engine's own package reports about its file, which has not been run; empty for Slurm."""
    if not script or planned.proposal.engine == "slurm":
        return []
    from mgpu.job_files import validating

    return validating.validate_file(planned.proposal.engine, script)


def _next_commands(planned: Planned) -> list[str]:
    """Return the command that starts the job or the verified config, or tests it; with several nodes, on each."""
    if planned.script is None:
        config = planned.config_option
        if planned.verified:
            script = folder.command(Path.cwd())[0]
            line = from_words(["mgpu", "launch", *config, script if Path(script).is_file() else "SCRIPT"])
            return [line] if line else []
        hosts = planned.proposal.answers.hosts
        several = ("--hosts", hosts) if hosts else ("--node-rank", "0")
        line = from_words(["mgpu", "smoke-test", *config, *(several if planned.proposal.nodes > 1 else ())])
        return [line] if line else []
    script = os.fspath(planned.script)
    start = shell(FORMATS[planned.proposal.engine].start, script)
    if planned.proposal.engine != "slurm":
        if planned.proposal.engine == "torchrun" and planned.proposal.nodes > 1:
            start = shell("HEAD=first-node NODE_RANK=0 bash {:path}  (on each node, with its rank)", script)
        return [start] if start else []
    there = "  (on a login node of the cluster)" if not planned.ask_slurm else ""
    launch = shell("mgpu launch --slurm {:path}", script)
    return [f"{launch}{there}", f"or without mgpu:  {start}"] if launch else []


def _too_old(proposal: Proposal, verdict: str | None) -> list[str]:
    """Return a warning if the local accelerate accepts the file but would run FSDP1.

    That happens only for another machine; for this one, the proposal considers the installed packages.
    """
    version = (verdict or "").removeprefix("accelerate ")
    if proposal.values["distributed_type"] != "FSDP" or not is_older(version, FSDP2_ACCELERATE):
        return []
    least = ".".join(str(part) for part in FSDP2_ACCELERATE)
    return [f"accelerate {version} accepts this file but runs FSDP1. For FSDP2, train with {least} or newer."]


def _commands(planned: Planned, screen: report_screen.Screen) -> list[report_screen.Line]:
    """Return commands to paste: never wrapped, except with the shell's continuation lines."""
    lines: list[report_screen.Line] = []
    if planned.proposal.nodes > 1 and not planned.proposal.engine and not planned.proposal.answers.hosts:
        lines += [[], [("Run one command per node, with your own script:", "bold")]]
        headings: dict[Tool, str] = {"mgpu": "", "accelerate": "or with accelerate:", "torchrun": "or with torchrun:"}
        for tool, heading in headings.items():
            lines += [[(heading, "bold")]] if heading else []
            commands = first_and_last(planned.proposal, config=os.fspath(planned.path), tool=tool)
            lines += report_screen.unstyled(f"  {line}" for line in commands)
    if planned.asked:
        output = planned.output_option
        # Other keys of a file that mgpu did not write are part of the result.
        if planned.base is not None and planned.before is None:
            output = ("--edit", os.fspath(planned.base), *(output if planned.path != planned.base else ()))
        again = decisions.equivalent_flags(
            planned.proposal.answers, extra=(*output, *planned.request.flags), width=screen.width - 2
        )
        lines += [[], [("Same result without questions:", "bold")]]
        lines += report_screen.unstyled(f"  {line}" for line in again.splitlines())
    return lines


def _save_answers(planned: Planned) -> list[str]:
    """Save the answers next to the config; nothing if nothing was decided, or all of it came from a file."""
    decided = set(planned.proposal.answers.origins.values()) - {"answers", "file"}
    if not planned.request.save_answers or not decided:
        return []
    request = planned.request
    default = request.save_answers == request.default_answers or not request.save_answers.isprintable()
    place = () if default else ("--answers", request.save_answers)
    replay = shlex.join(["mgpu", "configure", "--yes", *request.flags, *place])
    return answers_file.save(Path(request.save_answers), _answers_to_save(planned), replay)


def _answers_to_save(planned: Planned) -> Answers:
    """Return the answers to save, without values that an edited file from mgpu had detected, not decided."""
    if planned.before is None:
        return planned.proposal.answers
    kept, answers = planned.before, planned.proposal.answers
    for name, origin in planned.proposal.answers.origins.items():
        if origin == "file" and name not in kept.origins:
            answers = decisions.with_decision(answers, name, decisions.parse(name, "auto"), "file")
    return answers


def _document(planned: Planned, verdict: str | None, checked_by: str, script: str) -> WrittenDocument:
    path, proposal = planned.path, planned.proposal
    values: list[SettingEntry] = []
    for setting in proposal.settings:
        rows = setting.keys.items() or [(None, setting.text)]  # a row without a key is not in the file
        values += [
            {"name": setting.label, "key": k, "value": v, "source": setting.origin, "reason": setting.reason}
            for k, v in rows
        ]
    written: WrittenDocument = {
        "schema": "mgpu.configure/1.0",
        "config": parse(existing_file.text_of(path)).values,
        "config_path": str(path),
        "sha256": read(path).sha256,
        "values": values,
        "launch_flags": list(proposal.launch_flags),
        "notes": [*_engine_notes(planned, script), *_too_old(proposal, verdict), *proposal.notes],
        "verdict": "valid" if verdict else "unknown",
        "exit_code": errors.READY,
        "next": _next_commands(planned)[:1],
    }
    if planned.script is not None:
        written["job"] = {"path": str(planned.script), "engine": proposal.engine, "checked": checked_by}
    return written
