"""How does a person go through the questions? Shows what stands above each, asks it, keeps a draft after each."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
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

_MOST_LINES = 16  # of the difference of a job script: with another's, all of it differs


@dataclass
class Session:
    """One run of the questions. `state` moves; everything else is what it began with."""

    state: State
    scene: Scene
    draft: Path | None  # None: no state can be kept
    plain: bool  # numbered lines instead of prompts drawn in place
    request: Request
    stops: Sequence[str] = ()  # ids of the errors that would stop a launch
    retyped: str = ""  # an answer that could not be looked up, to be mended

    def hold(self) -> State:
        """Ask until the end. Ctrl-C keeps the draft and raises MgpuError."""
        try:
            if self.request.resume:
                self._recall()
            while not self.state.ended:
                if self._settled():
                    continue
                self._show_above()
                question = questions.build(self.state, self.scene)
                if self.retyped:
                    question, self.retyped = replace(question, default=self.retyped), ""
                typed = prompts.ask(question, plain=self.plain)
                before = self.state
                self.state = flow.back(before, self.scene) if isinstance(typed, prompts.Back) else self._taken(typed)
                if before.step == flow.START and typed == "resume":
                    self._recall()
                if self.state.asked and not self.state.ended:
                    drafts.save(self.draft, self.state)
        except KeyboardInterrupt:
            raise self._stopped() from None
        return self.state

    @property
    def looked(self) -> str:
        """What the proposal is for."""
        target, file = self.request.target, self.request.from_
        return f"For --target {target}" if target else f"For {file}" if file else "Looked at this machine"

    def _recall(self) -> None:
        """The answers of a draft, as they stood on the screen when they were given."""
        screen, lines = report_screen.Screen.of(), []
        if self.request.resume:
            machine = self.scene.propose(self.state.answers).machine
            lines += [*report_screen.wrapped(f"{self.looked}: {machine}", screen.width), ""]
        for name in self.state.asked:
            asked = questions.build(replace(self.state, step=name, editing=""), self.scene)
            lines += report_screen.wrapped(f"? {asked.text}  {asked.told(asked.default)}", screen.width, "", "    ")
        screen.show(report_screen.unstyled(lines))

    def _taken(self, typed: str) -> State:
        """The state after an answer; a model is looked up by its name first."""
        from mgpu.wizard import model

        state, proposal = self.state, self.scene.propose(self.state.answers)
        if state.step == "params" and typed.strip() and model.is_model_name(typed.strip()):
            try:
                named = decisions.decided(state.answers, "model", typed.strip())
                found = model.resolved(named, offline=self.request.offline, say=self._say)
            except MgpuError as error:
                self.retyped = typed.strip()
                return replace(state, note=_asked_anew(error.message))
            return flow.take(state, found, self.scene)
        question = questions.build(state, self.scene)
        return flow.take(state, questions.reply(question, typed, state, proposal), self.scene)

    def _settled(self) -> bool:
        """Nothing to confirm where the file already says all this."""
        if self.state.step != flow.CONFIRM:
            return False
        planned = self.planned()
        try:
            text = planned.config_text()
        except MgpuError as error:  # a file of somebody else that cannot be changed so: other answers may do
            self.state = replace(self.state, step=flow.REVIEW, note=error.message)
            return True
        script, path = planned.script, planned.path
        if script is not None and script.exists() and not job_file.unchanged(script, planned.script_text(text)):
            return False
        if path.exists() and not write_config.unchanged(path, text):
            return False
        self.state = replace(self.state, step=flow.WRITE)
        return True

    def planned(self, *, ask_slurm: bool = False) -> Planned:
        """What would be written now."""
        state, proposal = self.state, self.scene.propose(self.state.answers)
        base = Path(self.request.edit or self.request.path) if state.from_file else None
        return Planned(self.request, proposal, Path(state.output), base, asked=True, ask_slurm=ask_slurm)

    def _show_above(self) -> None:
        screen = report_screen.Screen.of()
        state = self.state
        if state.step == flow.START:
            exists = Path(state.output).exists()
            now = self.scene.propose(self.scene.existing) if self.scene.existing is not None else None
            proposal = self.scene.propose(state.answers)
            screen.show(
                screens.found(
                    proposal,
                    screen,
                    path=state.output,
                    exists=exists,
                    present=now,
                    stops=self.stops,
                    looked=self.looked,
                    granted=self.scene.granted,
                    columns=not self.plain,
                )
            )
            screen.show([[]])
        elif state.step == flow.CONFIRM:
            planned = self.planned()
            text = planned.config_text()
            for name in flow.replaced(state, self.scene):
                changes = self._changes(name, planned, text)
                screen.show([[], [(f"What changes in {name}:", "bold")], *report_screen.unstyled(changes), []])
        elif state.step == flow.REVIEW:
            screen.show([[]])

    def _changes(self, name: str, planned: Planned, text: str) -> list[str]:
        if name == self.state.output:
            return existing_file.differences(Path(name), text) or ["  only comments"]
        lines = job_file.differences(Path(name), planned.script_text(text))
        more = len(lines) - _MOST_LINES
        return lines[:_MOST_LINES] + ([f"  ... and {more} lines more"] if more > 0 else [])

    def _say(self, text: str) -> None:
        report_screen.Screen.of().show(report_screen.unstyled([text]))

    def _stopped(self) -> MgpuError:
        number = len(self.state.asked)
        if not number:
            return MgpuError("stopped; nothing was written", errors.INTERRUPTED)
        if self.draft is None or not drafts.save(self.draft, self.state):
            where = f" in {self.draft}" if self.draft else ": no home folder is known, or it belongs to another user"
            return MgpuError(
                f"stopped; nothing was written, and the draft could not be kept{where}", errors.INTERRUPTED
            )
        count = f"{number} answer{'' if number == 1 else 's'}"
        return MgpuError(
            f"saved {count}; nothing is written.\nKept in:   {_short(self.draft)}\n"
            f"Continue:  {resuming(self.request.flags)}\nForget:    {resuming(self.request.flags, '--fresh')}",
            errors.INTERRUPTED,
        )


def resuming(flags: Sequence[str], how: str = "--resume") -> str:
    """The command that goes on with a draft, for the same machine."""
    return shlex.join(["mgpu", "configure", how, *flags])


def _asked_anew(message: str) -> str:
    """Why a model could not be looked up, where no flag was typed."""
    return message.removeprefix("--model ").replace("Give the number:  --params 8.03B", "Type the number: 8.03B")


def left_off(state: State, path: Path | None) -> str:
    """How far a draft came, and when: "3 answers given, 10:42"."""
    when = drafts.saved_at(path)
    return f"{screens.left_off(state)}{', ' + when if when else ''}"


def begun(answers: Answers, output: str, *, guided: bool) -> State:
    """The state in which a wizard begins."""
    return State(answers, mode="guided" if guided else "quick", output=output)


def _short(path: Path) -> str:
    home = os.path.expanduser("~")
    text = os.fspath(path)
    return f"~{text[len(home) :]}" if home != "/" and text.startswith(f"{home}/") else text
