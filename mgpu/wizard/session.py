"""How does the user go through the questions? Shows the text above each, asks it, saves a draft after each."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.prompts import prompts
from mgpu.report import screen as report_screen
from mgpu.wizard import answers as decisions
from mgpu.wizard import drafts, existing_file, flow, job_file, questions, screens, write_config
from mgpu.wizard.answers import Answers
from mgpu.wizard.flow import Scene, State
from mgpu.wizard.planned_output import Planned
from mgpu.wizard.request import Request

_MOST_LINES = 16  # of a job script's diff: against a script that mgpu did not write, all of it differs


@dataclass
class Session:
    """One pass through the questions. Only `state` and `retyped` change."""

    state: State
    scene: Scene
    draft: Path | None  # None: no draft can be saved
    plain: bool  # numbered lines instead of prompts drawn in place
    request: Request
    examine: Callable[[Answers], Answers]  # looks at the hosts that were named; raises MgpuError
    stops: Sequence[str] = ()  # ids of the errors that would stop a launch
    retyped: str = ""  # an answer whose look-up failed, to be corrected

    def run(self) -> State:
        """Ask until the end and return the last state. Ctrl-C saves the draft and raises MgpuError."""
        try:
            if self.request.resume:
                self._show_answers()
            while not self.state.ended:
                if self._skip_confirmation():
                    continue
                self._show_above()
                question = questions.build(self.state, self.scene)
                if self.retyped:
                    question, self.retyped = replace(question, default=self.retyped), ""
                typed = prompts.ask(question, plain=self.plain, shows_answer=False)
                before = self.state
                if isinstance(typed, prompts.Back):
                    self.state = flow.back(before, self.scene)
                else:
                    self.state = self._take(typed)
                    if not self.plain and not (self.state.step == before.step and self.state.note):  # not rejected
                        prompts.show_answer(question, typed)
                if before.step == flow.START and typed == "resume":
                    self._show_answers()
                if self.state.asked and not self.state.ended:
                    drafts.save(self.draft, self.state)
        except KeyboardInterrupt:
            raise self._interrupt_error() from None
        return self.state

    @property
    def subject(self) -> str:
        """What the proposal is for, as the label of a line."""
        target, file = self.request.target, self.request.from_
        return f"For --target {target}" if target else f"For {file}" if file else "This machine"

    def _show_answers(self) -> None:
        """Show the answers of a draft as they were on the screen when they were given."""
        screen, lines = report_screen.Screen.of(), []
        if self.request.resume:
            machine = self.scene.propose(self.state.answers).machine
            lines += [*report_screen.wrapped(f"{self.subject}: {machine}", screen.width), ""]
        for name in self.state.asked:
            asked = questions.build(replace(self.state, step=name, editing=""), self.scene)
            text = f"? {asked.text}  {asked.answer_text(asked.default)}"
            lines += report_screen.wrapped(text, screen.width, "", "    ")
        screen.show(report_screen.unstyled(lines))

    def _take(self, typed: str) -> State:
        """Return the state after an answer; the name of a model is looked up first."""
        from mgpu.wizard import model

        state, proposal = self.state, self.scene.propose(self.state.answers)
        if state.step == "params" and typed.strip() and model.is_model_name(typed.strip()):
            try:
                named = decisions.with_decision(state.answers, "model", typed.strip())
                found = model.resolve_size(named, offline=self.request.offline, say=self._say)
            except MgpuError as error:
                self.retyped = typed.strip()
                return replace(state, note=_look_up_note(error.message))
            return flow.take(state, found, self.scene)
        if state.step == "hosts" and typed.strip():
            return self._take_hosts(typed.strip())
        if state.step == flow.START and typed == "resume" and self.scene.draft is not None:
            self.examine(self.scene.draft.answers)
        question = questions.build(state, self.scene)
        return flow.take(state, questions.reply(question, typed, state, proposal), self.scene)

    def _take_hosts(self, typed: str) -> State:
        """Return the state after hosts were named, which are examined first."""
        self._say(f"Examining {typed} ...")
        named = decisions.with_decision(self.state.answers, "hosts", decisions.parse("hosts", typed))
        try:
            return flow.take(self.state, self.examine(named), self.scene)
        except MgpuError as error:
            self.retyped = typed
            return replace(self.state, note=error.message.splitlines()[0])

    def _skip_confirmation(self) -> bool:
        """Move on without confirmation if no file would change, or to the review if the file cannot be changed."""
        if self.state.step != flow.CONFIRM:
            return False
        planned = self.current_plan()
        try:
            text = planned.config_text()
        except MgpuError as error:  # a file not from mgpu that cannot be changed like this: other answers may work
            self.state = replace(self.state, step=flow.REVIEW, note=error.message)
            return True
        script, path = planned.script, planned.path
        if script is not None and script.exists() and not job_file.is_up_to_date(script, planned.script_text(text)):
            return False
        if path.exists() and not write_config.is_up_to_date(path, text):
            return False
        self.state = replace(self.state, step=flow.WRITE)
        return True

    def current_plan(self, *, ask_slurm: bool = False) -> Planned:
        """Return what would be written now."""
        state, proposal = self.state, self.scene.propose(self.state.answers)
        base = Path(self.request.edit or self.request.path) if state.from_file else None
        return Planned(self.request, proposal, Path(state.output), base, asked=True, ask_slurm=ask_slurm)

    def _show_above(self) -> None:
        screen = report_screen.Screen.of()
        state = self.state
        if state.step == flow.START:
            exists = Path(state.output).exists()
            now = self.scene.propose(self.scene.existing) if self.scene.existing is not None else None
            now = write_config.with_ranks_of(self.request.path, now) if now is not None else None
            proposal = self.scene.propose(state.answers)
            screen.show(
                screens.start_screen(
                    proposal,
                    screen,
                    path=state.output,
                    exists=exists,
                    present=now,
                    stops=self.stops,
                    subject=self.subject,
                    granted=self.scene.granted,
                    columns=not self.plain,
                )
            )
            screen.show([[]])
        elif state.step == flow.CONFIRM:
            planned = self.current_plan()
            text = planned.config_text()
            for name in flow.files_to_replace(state, self.scene):
                changes = self._changes(name, planned, text)
                screen.show([[], [(f"Changes in {name}:", "bold")], *report_screen.unstyled(changes), []])
        elif state.step == flow.REVIEW:
            screen.show([[]])

    def _changes(self, name: str, planned: Planned, text: str) -> list[str]:
        if name == self.state.output:
            return existing_file.differences(Path(name), text) or ["  only comments"]
        lines = job_file.differences(Path(name), planned.script_text(text))
        more = len(lines) - _MOST_LINES
        return lines[:_MOST_LINES] + ([f"  ... and {more} more lines"] if more > 0 else [])

    def _say(self, text: str) -> None:
        report_screen.Screen.of().show(report_screen.unstyled([text]))

    def _interrupt_error(self) -> MgpuError:
        number = len(self.state.asked)
        if not number:
            return MgpuError("stopped before writing anything", errors.INTERRUPTED)
        if self.draft is None or not drafts.save(self.draft, self.state):
            where = f" in {self.draft}" if self.draft else ": no home folder is known, or it belongs to another user"
            return MgpuError(f"stopped before writing anything; could not save the draft{where}", errors.INTERRUPTED)
        count = f"{number} answer{'' if number == 1 else 's'}"
        return MgpuError(
            f"stopped before writing anything; saved {count}\nSaved in:  {_short(self.draft)}\n"
            f"Continue:  {resume_command(self.request.flags)}\n"
            f"Discard:   {resume_command(self.request.flags, '--fresh')}",
            errors.INTERRUPTED,
        )


def resume_command(flags: Sequence[str], how: str = "--resume") -> str:
    """Return the command that continues a draft for the same machine."""
    return shlex.join(["mgpu", "configure", how, *flags])


def _look_up_note(message: str) -> str:
    """Return why a model could not be looked up, without flags that were not typed."""
    from mgpu.wizard import model

    return message.removeprefix("--model ").replace(model.SET_PARAMS, "Type the number: 8.03B")


def left_off(state: State, path: Path | None) -> str:
    """Return the progress of a draft, and when it was saved: "3 answers given, 10:42"."""
    when = drafts.saved_at(path)
    return f"{screens.left_off(state)}{', ' + when if when else ''}"


def first_state(answers: Answers, output: str, *, guided: bool) -> State:
    """Return the first state of the wizard."""
    return State(answers, mode="guided" if guided else "quick", output=output)


def _short(path: Path) -> str:
    home = os.path.expanduser("~")
    text = os.fspath(path)
    return f"~{text[len(home) :]}" if home != "/" and text.startswith(f"{home}/") else text
