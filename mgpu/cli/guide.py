"""Bare `mgpu`: which of the four steps to a verified run are done here, and which is next?"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mgpu import errors, files
from mgpu.cli import runs_here
from mgpu.cli.runs_here import RunHere
from mgpu.command_line import shell
from mgpu.errors import MgpuError
from mgpu.file_reading import read_own
from mgpu.report import screen as report_screen
from mgpu.scheduler.cluster_files import has_cluster
from mgpu.structured_text import json_of
from mgpu.text import visible

if TYPE_CHECKING:
    from mgpu.prompts.question import Choice

State = Literal["done", "todo", "trouble"]
# fmt: off
_WORDS = {
    "ready": "ready", "ready_with_warnings": "ready, with warnings", "not_ready": "NOT ready",
    "unknown": "unknown", "no_gpu": "no GPU here",
}
# fmt: on


@dataclass(frozen=True)
class Step:
    """One of the four steps: its command, its purpose, and its state here."""

    command: str
    purpose: str
    state: State
    text: str
    line: str = ""  # the command line, if it is more than the command

    @property
    def typed(self) -> str:
        """The command line that takes this step."""
        return self.line or self.command


def steps(folder: Path) -> list[Step]:
    """Return the four steps with their state in this folder, on this machine."""
    from mgpu.launch import run as launch

    config = folder / "accelerate.yaml"
    doctor = _doctor()
    if not config.exists():
        return [doctor, _unconfigured(doctor), *_NOT_YET]
    configured = Step("mgpu configure", "a few questions, then a config", "done", "./accelerate.yaml")
    if for_slurm(config):
        return [doctor, configured, *_port(folder), *_on_slurm(folder)]
    try:
        verified, why = launch.verification_status(Path(config.name))
    except MgpuError as error:
        verified, why = False, error.message.splitlines()[0]
    smoke = Step(
        "mgpu smoke-test",
        "prove the ranks train together",
        "done" if verified else "todo",
        why if verified else f"not verified: {why}",
    )
    line = shell("mgpu launch {:path}", _script(folder)) or "mgpu launch SCRIPT"
    started = Step("mgpu launch", "start your script with that config", "todo", line if verified else _UNVERIFIED, line)
    return [doctor, configured, smoke, *_port(folder), started]


def _script(folder: Path) -> str:
    from mgpu.wizard import folder as wizard_folder

    return wizard_folder.command(folder)[0]


def _port(folder: Path) -> list[Step]:
    """Return the step that changes a script of this folder that trains alone; none if there is no such script."""
    from mgpu.port import needed

    name = _script(folder)
    line = needed.port_command(Path(name))
    text = f"{visible(name)} uses one GPU"
    return [Step("mgpu doctor --fix", "let the script train on all GPUs", "todo", text, line)] if line else []


_LARGEST = 64 << 10  # bytes of the saved verdict
_HOSTS = "mgpu doctor --hosts"  # not a step: the same steps, on several machines
_LAUNCH, _LEAVE = "mgpu launch", "leave"
_UNVERIFIED = "needs a verified config"
_NOT_YET = (
    Step("mgpu smoke-test", "prove the ranks train together", "todo", "needs a config"),
    Step("mgpu launch", "start your script with that config", "todo", _UNVERIFIED),
)


def _unconfigured(doctor: Step) -> Step:
    """The step if there is no config. On a Slurm login node it configures for Slurm's nodes."""
    purpose = "a few questions, then a config"
    if doctor.text.startswith(_WORDS["no_gpu"]) and shutil.which("sbatch") and has_cluster():
        return Step("mgpu configure", purpose, "todo", "no ./accelerate.yaml; Slurm detected", "mgpu configure --slurm")
    return Step("mgpu configure", purpose, "todo", "no ./accelerate.yaml")


def for_slurm(config: Path) -> bool:
    """Whether the rendezvous endpoint of a config is set by its Slurm job script."""
    from mgpu.config import facts

    try:
        return facts(config, ask_loader=False).for_slurm
    except MgpuError:
        return False


def _on_slurm(folder: Path) -> list[Step]:
    """The last two steps for a Slurm job, whose pre-flight replaces the smoke test."""
    jobs = sorted(folder.glob("*.sbatch"), key=lambda path: (path.name != "train.sbatch", path.name))
    smoke = Step("mgpu smoke-test", "prove the ranks train together", "done", "part of the job")
    line = shell("mgpu launch --slurm {:path}", jobs[0].name) if jobs else "mgpu configure --slurm"
    return [
        smoke,
        Step("mgpu launch", "submit the job", "todo", line if jobs else "no job script here", line),
    ]


def _doctor() -> Step:
    from mgpu.durations import age_text

    purpose = "is this machine ready?"
    try:
        last = json_of(read_own(files.state_folder() / "doctor.json", most=_LARGEST))
        verdict, time = str(last["verdict"]), str(last["time"])
        host, python = last.get("host"), last.get("python")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Step("mgpu doctor", purpose, "todo", "not run yet")
    if host not in (None, os.uname().nodename):
        return Step("mgpu doctor", purpose, "todo", "not run yet on this host")
    if python != sys.prefix:
        return Step("mgpu doctor", purpose, "todo", "not run yet in this environment")
    state: State = "done" if verdict in ("ready", "ready_with_warnings", "no_gpu") else "trouble"
    return Step("mgpu doctor", purpose, state, f"{_WORDS.get(verdict, verdict)}, {age_text(time)}")


def next_step(found: Sequence[Step]) -> Step:
    """Return the first step that is not done."""
    return next((step for step in found if step.state != "done"), found[-1])


def guide(run: Callable[[Sequence[str]], int]) -> int:
    """Show the four steps and the runs of this folder and, in a terminal, offer the next one. Returns exit code 0."""
    screen = report_screen.Screen.of()
    if not report_screen.can_ask():
        _show(_here(), screen)
        return errors.READY
    return _offer(screen, run)


@dataclass(frozen=True)
class Here:
    """What bare `mgpu` shows of this folder."""

    steps: Sequence[Step]
    runs: Sequence[RunHere]

    @property
    def next_line(self) -> str:
        """The command to type next. While a run is running it is about that one: a second one would share its GPUs."""
        return self.runs[0].command if self.running else next_step(self.steps).typed

    @property
    def running(self) -> bool:
        """Whether a run of this folder is running."""
        return any(run.running for run in self.runs)


def _here() -> Here:
    folder = Path.cwd()
    found, runs = steps(folder), runs_here.of_folder(folder)
    if any(run.running for run in runs):
        found = [replace(step, state="done", text="running") if step.command == _LAUNCH else step for step in found]
    return Here(found, runs)


def _show(here: Here, screen: report_screen.Screen) -> None:
    title = report_screen.wrapped("mgpu - set up, check and launch multi-GPU PyTorch training", screen.width)
    lines: list[report_screen.Line] = [*([(line, "bold")] for line in title), []]  # type: ignore[list-item]
    for step in here.steps:
        head = f"  {step.command:<18}{step.purpose:<36}"
        style: report_screen.Style = {"done": "ok", "trouble": "fail", "todo": ""}[step.state]  # type: ignore[assignment]
        if screen.width < 60:
            lines += [[(f"  {step.command}", "bold")], [(f"    {step.text}", style)]]
            continue
        first, *rest = report_screen.wrapped(step.text, screen.width - len(head))
        lines += [[(head, ""), (first, style)], *([(" " * len(head) + more, style)] for more in rest)]
    lines += [[], *runs_here.lines(here.runs, here.next_line, screen)] if here.runs else []
    lines += [[], [(f"Next:  {here.next_line}", "bold")], [("Help:  mgpu COMMAND --help", "")]]
    screen.show(lines)


def _for_hosts() -> list[str]:
    """Ask for the machines, as the wizard does; return the arguments of mgpu that examine them, none after Esc."""
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Question
    from mgpu.wizard.topics.several_machines import HOSTS

    def problem(typed: str) -> str | None:
        try:
            HOSTS.read(typed)
        except ValueError as error:
            return str(error)
        return None

    answer = prompts.ask(Question(HOSTS.name, HOSTS.text, HOSTS.info, hint=HOSTS.hint, problem=problem, saves=False))
    return ["doctor", "--hosts", answer] if isinstance(answer, str) else []


def _offered(here: Here) -> list[Choice]:
    """Return what the menu offers, each by its command line. It starts a run only if that is the next step."""
    from mgpu.prompts.question import Choice

    shown = here.runs[: runs_here.MOST]
    named = [f"{run.purpose} ({run.command.rpartition(' ')[2]})" if len(shown) > 1 else run.purpose for run in shown]
    runs = [Choice(run.command, run.option, detail=text) for run, text in zip(shown, named, strict=True)]
    offered = [step for step in here.steps if step.command != _LAUNCH or here.next_line == step.typed]
    rows = [Choice(step.typed, step.command, detail=step.purpose) for step in offered if _can_run(step)]
    rows = [*runs, *rows] if here.running else [*rows, *runs]
    return [*rows, Choice(_HOSTS, _HOSTS, detail="several machines, over ssh"), Choice(_LEAVE, "Leave")]


def _can_run(step: Step) -> bool:
    """Return whether the command of a step is complete: one that launches a script needs the script."""
    words = shlex.split(step.typed)
    return words[:2] != _LAUNCH.split() or words[2].startswith("-") or Path(words[2]).is_file()


def _offer(screen: report_screen.Screen, run: Callable[[Sequence[str]], int]) -> int:
    """Show the steps, and run those that the user chooses, until Esc, or Ctrl-C in a step."""
    from mgpu.prompts import prompts
    from mgpu.prompts.question import Question

    while True:
        here = _here()
        _show(here, screen)
        choices = tuple(_offered(here))
        question = Question(
            "next",
            "What next?",
            "Each step prints the next one when it finishes.",
            default=here.next_line if here.next_line in {choice.name for choice in choices} else _LEAVE,
            choices=choices,
            saves=False,
        )
        answer = prompts.ask(question)
        if not isinstance(answer, str) or answer == _LEAVE:
            return errors.READY
        screen.show([[]])
        words = _for_hosts() if answer == _HOSTS else shlex.split(answer)[1:]
        code = run(words) if words else errors.READY
        if code == errors.INTERRUPTED:
            return code
        screen.show([[]])
