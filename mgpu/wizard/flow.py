"""Which question comes next, which one before it, and what does an answer do? A pure state machine.

The order of the questions is fixed; which of them apply follows from the answers and from what would be proposed.
Nothing else is remembered: going back erases nothing, and back is the inverse of forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mgpu.wizard import answers as decisions
from mgpu.wizard.answers import BY_NAME, KEYS, Answers
from mgpu.wizard.decision import Case, Decision, Mode
from mgpu.wizard.proposal_types import Proposal
from mgpu.wizard.topics import HERE, JOB

START, FILE, REVIEW, CONFIRM, WRITE, QUIT = "start", "file", "review", "confirm", "write", "quit"
SCREENS = (START, FILE, REVIEW, CONFIRM)  # asked, but no decisions about training
ENDS = (WRITE, QUIT)

QUICK = tuple(one.name for one in HERE if one.walk == "quick")
GUIDED = tuple(one.name for one in HERE if one.walk)
_JOB = tuple(one.name for one in JOB if one.walk == "quick")
_JOB_GUIDED = tuple(one.name for one in JOB)
QUESTIONS = tuple(one.name for one in KEYS if one.text)
_IN_A_JOB = {**BY_NAME, **{one.name: one for one in JOB}}


@dataclass(frozen=True)
class State:
    """Where the wizard stands. A draft is exactly this."""

    answers: Answers
    step: str = START
    mode: Mode = "quick"
    asked: tuple[str, ...] = ()  # questions that were answered, "skip" included
    editing: str = ""  # the row of the review that is being edited
    note: str = ""  # why a question is asked again
    output: str = ""  # another file than the one given, when the user named one
    from_file: bool = False  # what was there is kept and changed in place

    @property
    def ended(self) -> bool:
        """Nothing is left to ask."""
        return self.step in ENDS


@dataclass(frozen=True)
class Scene:
    """What the machine and the folder say, for as long as the wizard runs."""

    propose: Callable[[Answers], Proposal]
    replaces: Callable[[str], bool]  # whether a file of this name would be replaced
    draft: State | None = None  # what was left behind the last time …
    left_off: str = ""  # … and how far it came: "3 answers given, 10:42"
    existing: Answers | None = None  # what the present file says
    granted: str = ""  # what Slurm has granted or offers, in a sentence
    script: str = ""  # what the job script would be called


def order(mode: Mode, answers: Answers, proposal: Proposal) -> tuple[str, ...]:
    """The questions that apply, in the order in which they are asked."""
    return tuple(name for name in whole(mode, proposal) if applies(name, mode, answers, proposal))


def whole(mode: Mode, proposal: Proposal) -> tuple[str, ...]:
    """All questions of a walk, whether they apply or not."""
    names = QUICK if mode == "quick" else GUIDED
    if not proposal.engine:
        return ("slurm", *names) if "slurm" in proposal.options else names
    return tuple(dict.fromkeys((*(_JOB if mode == "quick" else _JOB_GUIDED), *names)))


def decision_of(name: str, proposal: Proposal) -> Decision:
    """The decision of this name: a job may word its question differently."""
    return (_IN_A_JOB if proposal.engine else BY_NAME)[name]


def applies(name: str, mode: Mode, answers: Answers, proposal: Proposal) -> bool:
    """Whether there is anything to decide. Never depends on the answer to the question itself."""
    one = decision_of(name, proposal)
    able = [option.name for option in proposal.options.get(name, ()) if not option.disabled]
    if one.menu and not able:
        return False
    if proposal.engine:
        if one.engines is not None and proposal.engine not in one.engines:
            return False
    elif one in JOB and name != "slurm":
        return False
    became_impossible = impossible(name, answers, proposal) is not None
    return one.applies(Case(mode, answers, proposal, able, became_impossible))


def impossible(name: str, answers: Answers, proposal: Proposal) -> str | None:
    """Why the decided answer cannot hold any more; None while it can."""
    if name not in answers.origins:
        return None
    value = getattr(answers, name, None)
    names = {str(gpu) for gpu in value} if isinstance(value, tuple) else {str(value)}
    for option in proposal.options.get(name, ()):
        if option.name in names and option.disabled:
            return f"{option.text.split(':')[0].strip()} {option.disabled}"
    return None


def broken(answers: Answers, proposal: Proposal) -> str | None:
    """The first question whose decided answer became impossible, where another one is possible."""
    again = (name for name in GUIDED if impossible(name, answers, proposal))
    return next((name for name in again if choosable(name, proposal)), None)


def choosable(name: str, proposal: Proposal) -> bool:
    """Whether a question has an answer: a menu may have nothing but impossible lines."""
    options = proposal.options.get(name, ())
    return not options or any(not option.disabled for option in options)


def take(state: State, reply: Any, scene: Scene) -> State:
    """The state after a question was answered with an allowed value, or with all answers as they are then."""
    if state.step in SCREENS:
        return _screen(state, str(reply), scene)
    answers = reply if isinstance(reply, Answers) else decisions.decided(state.answers, state.step, reply)
    if state.step == "params" and answers.params is None and answers.model is not None:
        answers = decisions.decided(answers, "model", None)  # a size that is taken back takes its source along
    asked = state.asked if state.step in state.asked else (*state.asked, state.step)
    return _onward(replace(state, answers=answers, asked=asked, note=""), scene)


def back(state: State, scene: Scene) -> State:
    """The question before this one; from the first to the start, from an edited row to the review."""
    if state.step == START:
        return replace(state, step=QUIT)
    if state.step == CONFIRM:
        return replace(state, step=REVIEW)
    if state.step == FILE:
        return replace(state, step=REVIEW if state.editing else START, editing="")
    if state.editing:
        together = _edited(state, scene)
        before = together[: together.index(state.step)] if state.step in together else ()
        return _at(state, before[-1], scene) if before else replace(state, step=REVIEW, editing="", note="")
    names = order(state.mode, state.answers, scene.propose(state.answers))
    before = names if state.step == REVIEW else names[: names.index(state.step)] if state.step in names else ()
    return _at(state, before[-1], scene) if before else replace(state, step=START, note="", from_file=False)


def resumed(state: State, scene: Scene) -> State:
    """The state of a draft on the machine as it is now: a question that no longer applies is passed over."""
    if state.step == START:
        return _first(state, scene)
    if state.step in (*SCREENS, *ENDS):
        return replace(state, step=FILE if state.step == FILE else REVIEW)
    proposal = scene.propose(state.answers)
    if state.editing:
        return state if choosable(state.step, proposal) else replace(state, step=REVIEW, editing="", note="")
    return state if state.step in order(state.mode, state.answers, proposal) else _onward(state, scene)


def _screen(state: State, reply: str, scene: Scene) -> State:
    """The answer to a question that is about the wizard itself."""
    if state.step == FILE:
        state = replace(state, output=reply, from_file=False, note="")
        return replace(state, step=REVIEW, editing="") if state.editing else _first(state, scene)
    if state.step == CONFIRM:
        return replace(state, step={"write": WRITE, "quit": QUIT}.get(reply, REVIEW))
    if state.step == REVIEW:
        return _reviewed(state, reply, scene)
    if reply == "resume" and scene.draft is not None:
        return resumed(scene.draft, scene)
    if reply == "change" and scene.existing is not None:
        return replace(state, answers=scene.existing, step=REVIEW, from_file=True)
    if reply == "new":
        return replace(state, step=FILE)
    if reply in ("ask", "everything"):
        return _first(replace(state, mode="guided" if reply == "everything" else "quick", from_file=False), scene)
    if reply == "write":
        return _reviewed(state, "write", scene)
    return replace(state, step=QUIT)


def _reviewed(state: State, reply: str, scene: Scene) -> State:
    if reply == "write":
        if scene.propose(state.answers).problems:
            return replace(state, step=REVIEW)
        return replace(state, step=CONFIRM if replaced(state, scene) else WRITE)
    if reply == FILE:
        return replace(state, step=FILE, editing=FILE)
    if reply in QUESTIONS:
        proposal = scene.propose(state.answers)
        if not choosable(reply, proposal):
            first = proposal.options[reply][0]
            return replace(state, note=f"Nothing to choose there: {first.text.split(':')[0]} {first.disabled}")
        return _at(replace(state, editing=reply), reply, scene)
    return replace(state, step=QUIT)


def replaced(state: State, scene: Scene) -> tuple[str, ...]:
    """The files that are there and would be written."""
    job = scene.script and scene.propose(state.answers).job is not None
    return tuple(name for name in (state.output, scene.script if job else "") if name and scene.replaces(name))


def _first(state: State, scene: Scene) -> State:
    names = order(state.mode, state.answers, scene.propose(state.answers))
    return _at(state, names[0], scene) if names else replace(state, step=REVIEW)


def _onward(state: State, scene: Scene) -> State:
    """The next question that applies; at the end the ones whose answer became impossible, then the review."""
    proposal = scene.propose(state.answers)
    if state.editing:
        together = _edited(state, scene)
        following = together[together.index(state.step) + 1 :] if state.step in together else ()
    else:
        names = whole(state.mode, proposal)
        later = names[names.index(state.step) + 1 :] if state.step in names else ()
        following = tuple(name for name in later if applies(name, state.mode, state.answers, proposal))
    if following:
        return _at(state, following[0], scene)
    again = broken(state.answers, proposal)
    if again and again != state.step:
        return _at(replace(state, editing=again), again, scene)
    return replace(state, step=REVIEW, editing="", note="")


def _edited(state: State, scene: Scene) -> tuple[str, ...]:
    """The questions that are asked when a row of the review is edited."""
    proposal = scene.propose(state.answers)
    row = BY_NAME.get(state.editing)
    together = _JOB if state.editing == "slurm" and proposal.engine else (state.editing, *(row.together if row else ()))
    return tuple(
        name
        for name in together
        if name in (state.editing, state.step) or applies(name, "guided", state.answers, proposal)
    )


def _at(state: State, name: str, scene: Scene) -> State:
    """The state in which `name` is asked, with a note when its answer became impossible."""
    why = impossible(name, state.answers, scene.propose(state.answers))
    return replace(state, step=name, note=f"{why}: please choose again" if why else "")
