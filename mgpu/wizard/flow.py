"""Which question comes next, which one came before, and what does an answer change? A pure state machine.

The order of the questions is fixed; which of them apply depends on the answers and the proposal. There is no other
state: going back erases nothing, and back is the inverse of forward.
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
SCREENS = (START, FILE, REVIEW, CONFIRM)  # questions about the wizard itself, not about training
ENDS = (WRITE, QUIT)

QUICK = tuple(one.name for one in HERE if one.walk == "quick")
GUIDED = tuple(one.name for one in HERE if one.walk)
_JOB = tuple(one.name for one in JOB if one.walk == "quick")
_JOB_GUIDED = tuple(one.name for one in JOB)
QUESTIONS = tuple(one.name for one in KEYS if one.text)
_IN_A_JOB = {**BY_NAME, **{one.name: one for one in JOB}}


@dataclass(frozen=True)
class State:
    """The position of the wizard. This is what a draft stores."""

    answers: Answers
    step: str = START
    mode: Mode = "quick"
    asked: tuple[str, ...] = ()  # questions that were answered or skipped
    editing: str = ""  # the review row that is being edited
    note: str = ""  # why a question is asked again
    output: str = ""  # the file to write; the user can change it
    from_file: bool = False  # the existing file is changed in place

    @property
    def ended(self) -> bool:
        """Whether nothing is left to ask."""
        return self.step in ENDS


@dataclass(frozen=True)
class Scene:
    """The facts about machine and folder, constant while the wizard runs."""

    propose: Callable[[Answers], Proposal]
    replaces: Callable[[str], bool]  # whether a file of this name would be replaced
    draft: State | None = None  # the draft of an earlier session …
    left_off: str = ""  # … and its progress: "3 answers given, 10:42"
    existing: Answers | None = None  # the decisions of the existing file
    granted: str = ""  # what Slurm has granted or offers, as a sentence
    script: str = ""  # the file name of the job script


def order(mode: Mode, answers: Answers, proposal: Proposal) -> tuple[str, ...]:
    """Return the questions that apply, in the order they are asked."""
    return tuple(name for name in all_questions(mode, proposal) if applies(name, mode, answers, proposal))


def all_questions(mode: Mode, proposal: Proposal) -> tuple[str, ...]:
    """Return all questions of a walk, whether they apply or not."""
    names = QUICK if mode == "quick" else GUIDED
    if not proposal.engine:
        return ("slurm", *names) if "slurm" in proposal.options else names
    return tuple(dict.fromkeys((*(_JOB if mode == "quick" else _JOB_GUIDED), *names)))


def decision_of(name: str, proposal: Proposal) -> Decision:
    """Return the decision of this name; for a job, its question may have another text."""
    return (_IN_A_JOB if proposal.engine else BY_NAME)[name]


def applies(name: str, mode: Mode, answers: Answers, proposal: Proposal) -> bool:
    """Return whether there is anything to decide. Never depends on the answer to the question itself."""
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
    """Return why the decided answer is no longer possible; None if it is."""
    if name not in answers.origins:
        return None
    value = getattr(answers, name, None)
    names = {str(gpu) for gpu in value} if isinstance(value, tuple) else {str(value)}
    for option in proposal.options.get(name, ()):
        if option.name in names and option.disabled:
            return f"{option.text.split(':')[0].strip()}: {option.disabled}"
    return None


def first_impossible(answers: Answers, proposal: Proposal) -> str | None:
    """Return the first question whose decided answer became impossible and that has another possible answer."""
    again = (name for name in GUIDED if impossible(name, answers, proposal))
    return next((name for name in again if choosable(name, proposal)), None)


def choosable(name: str, proposal: Proposal) -> bool:
    """Return whether a question has a possible answer: all choices of a menu may be impossible."""
    options = proposal.options.get(name, ())
    return not options or any(not option.disabled for option in options)


def take(state: State, reply: Any, scene: Scene) -> State:
    """Return the state after a question was answered. `reply`: an allowed value, or all answers."""
    if state.step in SCREENS:
        return _take_screen(state, str(reply), scene)
    answers = reply if isinstance(reply, Answers) else decisions.with_decision(state.answers, state.step, reply)
    if state.step == "params" and answers.params is None and answers.model is not None:
        answers = decisions.with_decision(
            answers, "model", None
        )  # removing the size also removes the model it came from
    asked = state.asked if state.step in state.asked else (*state.asked, state.step)
    return _next_state(replace(state, answers=answers, asked=asked, note=""), scene)


def back(state: State, scene: Scene) -> State:
    """Return the state at the previous question; before the first is the start, before an edited row the review."""
    if state.step == START:
        return replace(state, step=QUIT)
    if state.step == CONFIRM:
        return replace(state, step=REVIEW)
    if state.step == FILE:
        return replace(state, step=REVIEW if state.editing else START, editing="")
    if state.editing:
        together = _row_questions(state, scene)
        before = together[: together.index(state.step)] if state.step in together else ()
        return _ask(state, before[-1], scene) if before else replace(state, step=REVIEW, editing="", note="")
    names = order(state.mode, state.answers, scene.propose(state.answers))
    before = names if state.step == REVIEW else names[: names.index(state.step)] if state.step in names else ()
    return _ask(state, before[-1], scene) if before else replace(state, step=START, note="", from_file=False)


def resume(state: State, scene: Scene) -> State:
    """Return the state of a draft for the current machine; a question that no longer applies is skipped."""
    if state.step == START:
        return _first_question(state, scene)
    if state.step in (*SCREENS, *ENDS):
        return replace(state, step=FILE if state.step == FILE else REVIEW)
    proposal = scene.propose(state.answers)
    if state.editing:
        return state if choosable(state.step, proposal) else replace(state, step=REVIEW, editing="", note="")
    return state if state.step in order(state.mode, state.answers, proposal) else _next_state(state, scene)


def _take_screen(state: State, reply: str, scene: Scene) -> State:
    """Return the state after a question about the wizard itself was answered."""
    if state.step == FILE:
        state = replace(state, output=reply, from_file=False, note="")
        return replace(state, step=REVIEW, editing="") if state.editing else _first_question(state, scene)
    if state.step == CONFIRM:
        return replace(state, step={"write": WRITE, "quit": QUIT}.get(reply, REVIEW))
    if state.step == REVIEW:
        return _take_review(state, reply, scene)
    if reply == "resume" and scene.draft is not None:
        return resume(scene.draft, scene)
    if reply == "change" and scene.existing is not None:
        return replace(state, answers=scene.existing, step=REVIEW, from_file=True)
    if reply == "new":
        return replace(state, step=FILE)
    if reply in ("ask", "everything"):
        mode: Mode = "guided" if reply == "everything" else "quick"
        return _first_question(replace(state, mode=mode, from_file=False), scene)
    if reply == "write":
        return _take_review(state, "write", scene)
    return replace(state, step=QUIT)


def _take_review(state: State, reply: str, scene: Scene) -> State:
    if reply == "write":
        if scene.propose(state.answers).problems:
            return replace(state, step=REVIEW)
        return replace(state, step=CONFIRM if files_to_replace(state, scene) else WRITE)
    if reply == FILE:
        return replace(state, step=FILE, editing=FILE)
    if reply in QUESTIONS:
        proposal = scene.propose(state.answers)
        if not choosable(reply, proposal):
            first = proposal.options[reply][0]
            return replace(state, note=f"There is no choice here. {first.text.split(':')[0]}: {first.disabled}")
        return _ask(replace(state, editing=reply), reply, scene)
    return replace(state, step=QUIT)


def files_to_replace(state: State, scene: Scene) -> tuple[str, ...]:
    """Return the existing files that would be overwritten."""
    job = scene.script and scene.propose(state.answers).job is not None
    return tuple(name for name in (state.output, scene.script if job else "") if name and scene.replaces(name))


def _first_question(state: State, scene: Scene) -> State:
    names = order(state.mode, state.answers, scene.propose(state.answers))
    return _ask(state, names[0], scene) if names else replace(state, step=REVIEW)


def _next_state(state: State, scene: Scene) -> State:
    """Return the state at the next question; after the last, questions with an impossible answer, then the review."""
    proposal = scene.propose(state.answers)
    if state.editing:
        together = _row_questions(state, scene)
        following = together[together.index(state.step) + 1 :] if state.step in together else ()
    else:
        names = all_questions(state.mode, proposal)
        later = names[names.index(state.step) + 1 :] if state.step in names else ()
        following = tuple(name for name in later if applies(name, state.mode, state.answers, proposal))
    if following:
        return _ask(state, following[0], scene)
    again = first_impossible(state.answers, proposal)
    if again and again != state.step:
        return _ask(replace(state, editing=again), again, scene)
    return replace(state, step=REVIEW, editing="", note="")


def _row_questions(state: State, scene: Scene) -> tuple[str, ...]:
    """Return the questions that editing a review row asks."""
    proposal = scene.propose(state.answers)
    row = BY_NAME.get(state.editing)
    together = _JOB if state.editing == "slurm" and proposal.engine else (state.editing, *(row.together if row else ()))
    return tuple(
        name
        for name in together
        if name in (state.editing, state.step) or applies(name, "guided", state.answers, proposal)
    )


def _ask(state: State, name: str, scene: Scene) -> State:
    """Return the state in which `name` is asked, with a note if its answer became impossible."""
    why = impossible(name, state.answers, scene.propose(state.answers))
    return replace(state, step=name, note=f"{why}. Choose again" if why else "")
