"""The order of the wizard's questions: no walk through them gets stuck, and none loses an answer."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.errors import MgpuError
from mgpu.planning import gpu_models
from mgpu.prompts.question import Question
from mgpu.snapshot import Snapshot
from mgpu.wizard import drafts, flow, questions
from mgpu.wizard.answers import KEYS, Answers, parse, with_decision
from mgpu.wizard.flow import Scene, State
from mgpu.wizard.proposal import propose
from mgpu.wizard.proposal_types import Proposal
from tests import machines

MACHINES = ("hgx_h100_x8", "rtx4090_x2", "t4_x4_vm", "laptop_rtx4060", "recorded_vm_without_gpu", "mixed_5090_4090")
TARGETS = ("4xA100-80GB", "2x8xH100")
TYPED = {
    "params": ("", "350M", "8B", "70B"), "batch_per_gpu": ("", "1", "8"), "dataset_size": ("", "52,002", "1k"),
    "accum": ("1", "3"), "lr": ("", "2e-5"), "lr_ref_batch": ("", "8"), "threads": ("", "2"), "workers": ("", "0"),
    "hosts": ("", "a,b"), "nodes": ("1", "2"), "address": ("10.0.0.1",), "port": ("auto", "29500"),
    "trainable": ("", "1M"), "seq_len": ("", "2048"), "epochs": ("", "3"), flow.FILE: ("other.yaml",),
}  # fmt: skip
ANY = settings(max_examples=60, deadline=None)


@cache
def snapshot(name: str) -> Snapshot:
    return gpu_models.parse(name).snapshot if name in TARGETS else machines.machine(name)


@cache
def scene(name: str) -> Scene:
    """A wizard on a machine, in a folder without a config."""

    known: dict[str, Proposal] = {}  # proposing is pure, and a walk comes by the same answers again and again

    def proposed(answers: Answers) -> Proposal:
        same = repr(answers)
        if same not in known:
            known[same] = propose(snapshot(name), answers, name)
        return known[same]

    return Scene(proposed, replaces=lambda output: output == "other.yaml")


def started(mode: str = "quick") -> State:
    return State(Answers(), mode="guided" if mode == "guided" else "quick", output="accelerate.yaml")


def allowed(question: Question) -> list[str]:
    """What may be answered: each open choice, sets of them, or some texts."""
    names = [choice.name for choice in question.choices if not choice.disabled and not choice.heading]
    if question.many:
        return [",".join(names), *names]
    texts = names or [*TYPED.get(question.name, ()), question.default]
    return [text for text in texts if question.problem(text) is None]


def answer(state: State, typed: str, here: Scene) -> State:
    question = questions.build(state, here)
    return flow.take(state, questions.reply(question, typed, state, here.propose(state.answers)), here)


def walk(data: Any, here: Scene, steps: int = 40) -> list[State]:
    """A person who answers, goes back, edits rows; every state on the way."""
    states = [started(data.draw(st.sampled_from(["quick", "guided"])))]
    for _ in range(data.draw(st.integers(1, steps))):
        state = states[-1]
        if state.ended:
            break
        moves = allowed(questions.build(state, here))
        if data.draw(st.integers(0, 4)) == 0:
            states.append(flow.back(state, here))
        else:
            states.append(answer(state, data.draw(st.sampled_from([m for m in moves if m != "quit"] or moves)), here))
    return states


@pytest.mark.parametrize("mode", ["ask", "everything"])
@pytest.mark.parametrize("name", [*MACHINES, *TARGETS])
def test_accepting_everything_ends_with_a_file(name: str, mode: str) -> None:
    here, state, asked = scene(name), started(), []
    state = answer(state, mode, here)
    while not state.ended:
        asked.append(state.step)
        question = questions.build(state, here)
        state = answer(state, question.default or TYPED.get(state.step, ("",))[0], here)
        assert len(asked) < 40
    assert state.step == flow.WRITE
    assert asked[-1] == flow.REVIEW and len(set(asked)) == len(asked)
    assert "params" in asked and "batch_per_gpu" in asked
    assert set(state.asked) == set(asked) - set(flow.SCREENS)


@ANY
@given(st.data(), st.sampled_from([*MACHINES, *TARGETS]))
def test_from_anywhere_accepting_gets_to_the_end(data: Any, name: str) -> None:
    here = scene(name)
    state = walk(data, here)[-1]
    for _ in range(80):
        if state.ended:
            return
        question = questions.build(state, here)
        options = allowed(question)
        typed = question.default if question.default in options else options[0]
        if state.step == flow.REVIEW and here.propose(state.answers).problems:
            typed = "quit"
        state = answer(state, typed, here)
    raise AssertionError(f"no end: {state}")


@ANY
@given(st.data(), st.sampled_from([*MACHINES, *TARGETS]))
def test_back_is_the_inverse_of_forward(data: Any, name: str) -> None:
    here = scene(name)
    for state in walk(data, here):
        if state.ended or state.step in flow.SCREENS or state.editing:
            continue
        after = answer(state, data.draw(st.sampled_from(allowed(questions.build(state, here)))), here)
        if after.editing:  # an answer that became impossible is asked again instead
            continue
        before = flow.back(after, here)
        assert (before.step, before.answers) == (state.step, after.answers)
        again = questions.build(before, here)
        assert again.problem(again.default) is None
        assert answer(before, again.default, here).answers == after.answers


@ANY
@given(st.data(), st.sampled_from([*MACHINES, *TARGETS]))
def test_no_move_loses_an_answer(data: Any, name: str) -> None:
    states = walk(data, scene(name))
    for before, after in itertools.pairwise(states):
        lost = {n for n in before.answers.origins if after.answers[n] != before.answers[n]} - {before.step}
        assert lost <= {"trainable", "model"}, (before, after)  # what a new size of the model replaces
        assert set(before.asked) <= set(after.asked) or before.step == flow.START


@ANY
@given(st.data(), st.sampled_from([*MACHINES, *TARGETS]))
def test_every_question_of_a_walk_can_be_shown_and_answered(data: Any, name: str) -> None:
    here = scene(name)
    for state in walk(data, here, 15):
        if state.ended:
            continue
        question = questions.build(state, here)
        assert allowed(question), question
        assert len(question.text) <= 60 and 1 < len(question.help.splitlines()) < 7
        for width in (0, 30, 77):
            for typed in (*allowed(question)[:3], question.default, "nonsense"):
                assert all("\n" not in line for line in question.panel(typed, width))


@ANY
@given(st.data(), st.sampled_from([*MACHINES, *TARGETS]))
def test_nothing_is_written_while_something_is_impossible(data: Any, name: str) -> None:
    here = scene(name)
    for before, after in itertools.pairwise(walk(data, here)):
        if after.step in (flow.WRITE, flow.CONFIRM):
            assert before.step in (flow.REVIEW, flow.START, flow.CONFIRM)
            assert not here.propose(after.answers).problems


def test_an_answer_that_became_impossible_is_asked_again_with_a_note() -> None:
    here, state = scene("4xA100-80GB"), started("guided")
    for name, typed in (("params", "1B"), ("strategy", "ddp")):
        state = answer(replace(state, step=name), typed, here)
    state = answer(replace(state, step=flow.REVIEW), "params", here)
    assert (state.step, state.editing) == ("params", "params")
    state = answer(state, "8B", here)
    while state.step == "train":
        state = answer(state, "full", here)
    assert state.step == "strategy" and "DDP: needs " in state.note and "Choose again" in state.note
    state = answer(state, "fsdp2", here)
    assert (state.step, state.note, state.editing) == (flow.REVIEW, "", "")
    assert not here.propose(state.answers).problems


def test_one_process_meets_nobody_and_is_asked_for_no_port() -> None:
    one, two = (gpu_models.parse(spec).snapshot for spec in ("1xRTX4090", "2xRTX4090"))
    orders = [flow.order("guided", Answers(), propose(found, Answers(), "a machine")) for found in (one, two)]
    assert [("port" in names) for names in orders] == [False, True]


@pytest.mark.parametrize("name", ["params", "train", "trainable", "optimizer", "strategy", "offload"])
def test_more_trained_parameters_than_the_model_has_are_reported_below_a_question(name: str) -> None:
    """--model with --trainable: the size is looked up after the options were compared."""
    answers = Answers(
        params=1000, model="org/tiny", trainable=2000, origins={"params": "probe", "model": "flag", "trainable": "flag"}
    )
    question = questions.build(replace(started("guided"), answers=answers, step=name), scene("hgx_h100_x8"))
    assert "Problem: 2000 trained parameters: must be from 1 to 1000" in question.panel(question.default, 80)


def test_leaving_the_question_leaves_the_review_unable_to_write() -> None:
    here = scene("4xA100-80GB")
    state = State(parsed(params="8B", strategy="ddp"), step=flow.REVIEW, output="accelerate.yaml")
    question = questions.build(state, here)
    assert question.choices[0].text.startswith("FAIL ") and question.choices[0].heading
    assert [c.name for c in question.choices if c.disabled] == ["write"]
    assert question.default != "write"
    assert flow.take(state, "write", here).step == flow.REVIEW


def test_a_draft_takes_up_where_it_was_left() -> None:
    here = scene("4xA100-80GB")
    draft = answer(answer(started(), "ask", here), "8B", here)
    asked = State(Answers(), output="accelerate.yaml")
    assert flow.take(asked, "resume", replace(here, draft=draft)) == draft
    assert questions.build(asked, replace(here, draft=draft)).choices[0].name == "resume"


# ---- drafts


def parsed(**told: str) -> Answers:
    found = Answers()
    for name, value in told.items():
        found = with_decision(found, name, parse(name, value))
    return found


@ANY
@given(st.data(), st.sampled_from([*MACHINES, *TARGETS]))
def test_a_draft_is_read_back_as_it_was_saved(data: Any, name: str) -> None:
    for state in walk(data, scene(name), 12):
        kept = replace(state, note="")
        assert drafts.loads(drafts.dumps(kept)) == kept


def test_the_drafts_of_folders_of_one_name_are_apart(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    one, other = drafts.path_of(tmp_path / "a" / "proj", env), drafts.path_of(tmp_path / "b" / "proj", env)
    assert one and other and one != other and one.parent == other.parent == tmp_path / "mgpu" / "drafts"
    assert one.name.startswith("proj-")
    root = drafts.path_of(Path("/"), env)
    assert root and root.name.startswith("project-")


def test_a_draft_is_for_its_owner_only(tmp_path: Path) -> None:
    path = drafts.path_of(tmp_path / "proj", {"XDG_STATE_HOME": str(tmp_path)})
    assert path and drafts.save(path, started())
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert drafts.load(path) == (started(), "")
    drafts.drop(path)
    drafts.drop(path)
    assert drafts.load(path) == (None, "")


@pytest.mark.parametrize(
    "text",
    [
        "", "schema = 2\n", "not toml [", "\x00\xff", 'schema = 1\nstep = "nowhere"\nmode = "quick"\n',
        'schema = 1\nstep = "params"\nmode = "slow"\n', 'schema = 1\nstep = 3\n', "schema = 1\nasked = [1]\n",
        'schema = 1\nstep = "params"\nmode = "quick"\n[answers]\nparams = "many"\n',
        'schema = 1\nstep = "params"\nmode = "quick"\n[answers]\nnobody = "1"\n',
        'schema = 1\nstep = "params"\nmode = "quick"\n[origins]\nparams = "heaven"\n',
        'schema = 1\nstep = "params"\nmode = "quick"\nanswers = 3\n', "#" * 200_000,
        'schema = 1\nstep = "params"\nmode = "quick"\nasked = false\n',
        'schema = 1\nstep = "params"\nmode = "quick"\n[origins]\nparams = []\n',
        'schema = 1\nstep = "params"\nmode = "quick"\n[answers]\nparams = [[1]]\n',
    ],
)  # fmt: skip
def test_a_damaged_draft_is_set_aside(text: str, tmp_path: Path) -> None:
    path = tmp_path / "proj.toml"
    path.write_bytes(text.encode("latin-1"))
    state, said = drafts.load(path)
    assert state is None and "moved to" in said and not path.exists()
    assert path.with_name("proj.toml.damaged").read_bytes() == text.encode("latin-1")
    with pytest.raises(MgpuError, match="no draft"):
        drafts.resume(path)


def test_every_answer_has_a_question_or_a_reason() -> None:
    """What can be decided by a flag can be asked; the rest follows from another question."""
    asked_with_another = {"model", "effective_batch"}  # typed as the size of the model; follows from accumulation
    asked_with_another |= {"hosts_python"}  # mgpu doctor --hosts says when it is needed
    assert {key.name for key in KEYS} - asked_with_another == set(flow.QUESTIONS)
    assert {key.name for key in KEYS if key.text and key.info} == set(flow.QUESTIONS)
