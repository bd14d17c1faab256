"""Which choices and default does each question have, and what does an answer decide? Pure; `prompts.py` asks."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.prompts.question import Choice, Question
from mgpu.wizard import answers as decisions
from mgpu.wizard import flow, screens
from mgpu.wizard.answers import Answers
from mgpu.wizard.decision import Decision
from mgpu.wizard.flow import Scene, State
from mgpu.wizard.proposal_types import Option, Proposal, source_of


def build(state: State, scene: Scene) -> Question:
    """Return the question to ask in a state."""
    proposal = scene.propose(state.answers)
    if state.step == flow.START:
        return _start_question(state, scene)
    if state.step == flow.REVIEW:
        return _review_question(state, proposal)
    if state.step == flow.CONFIRM:
        return _confirm_question(flow.files_to_replace(state, scene) or (state.output,))
    if state.step == flow.FILE:
        return _file_question(state)
    return _decision_question(flow.decision_of(state.step, proposal), state, scene, proposal)


def _decision_question(one: Decision, state: State, scene: Scene, proposal: Proposal) -> Question:
    """Return the question that asks for a decision."""
    name = one.name
    text, info = (
        part.replace("{unit}", proposal.unit).replace("{ranks}", str(proposal.ranks)) for part in (one.text, one.info)
    )
    choices = _choices(one, proposal)
    default = _default(one, state.answers, proposal, choices)

    def problem(typed: str) -> str | None:
        try:
            value(name, typed, state.answers, proposal)
        except ValueError as error:
            return str(error)
        return None

    def panel(typed: str, width: int) -> Sequence[str]:
        if problem(typed):
            typed = default
        try:
            tried = decisions.with_decision(state.answers, name, value(name, typed, state.answers, proposal))
        except ValueError:
            tried = state.answers
        lines = screens.panel(one, tried, scene.propose(tried), width) or info.splitlines()[:1]
        return [*lines, scene.granted] if name == "nodes" and scene.granted else lines

    return Question(
        name,
        text,
        info,
        default,
        choices,
        many=one.many,
        problem=problem,
        panel=panel,
        note=state.note,
        heading=_heading(state, proposal),
        hint=one.hint,
        skips=one.skips,
    )


def value(name: str, typed: str, answers: Answers, proposal: Proposal) -> object:
    """Return the value that a typed or chosen answer decides. Raises ValueError with what is allowed."""
    typed, one = typed.strip(), decisions.BY_NAME[name]
    if one.many:
        return _selected_gpus(typed, proposal)
    if not typed:
        if one.skips or one.probed or name == "accum":
            return decisions.parse(name, "auto")
        raise ValueError("an answer is required")
    if name == "params":
        from mgpu.wizard import model

        if model.is_model_name(typed):
            return answers.params
    found = decisions.parse(name, typed)
    undecided = answers[name] in (None, "auto")
    if one.probed and undecided and typed == proposal.chosen.get(name):
        return decisions.parse(name, "auto")
    if name == "accum" and undecided and found == proposal.accumulate:
        return None
    return found


def _selected_gpus(typed: str, proposal: Proposal) -> object:
    options = {option.name: option for option in proposal.options.get("gpus", ())}
    selected = [name for name in typed.split(",") if name]
    if not selected:
        raise ValueError("select at least one GPU (Space)")
    if set(selected) == {option.name for option in options.values() if option.recommended}:
        return None
    return tuple(sorted(int(name) for name in selected))


def _heading(state: State, proposal: Proposal) -> str:
    if state.editing:
        return "Change one answer."
    names = flow.order(state.mode, state.answers, proposal)
    return f"Question {names.index(state.step) + 1} of {len(names)}." if state.step in names else ""


def _choices(one: Decision, proposal: Proposal) -> tuple[Choice, ...]:
    if one.choices:
        return tuple(Choice(answer, text) for answer, text in one.choices)
    return tuple(_choice(option, many=one.many) for option in proposal.options.get(one.name, ()) if one.menu)


def _choice(option: Option, *, many: bool) -> Choice:
    text = f"{option.name}  {option.text}" if many and not option.text.startswith(option.name) else option.text
    if option.recommended and not many and not option.disabled:
        if not option.detail:
            return Choice(option.name, text, detail="recommended")
        text += " (recommended)"
    return Choice(option.name, text, option.disabled, option.detail)


def _default(one: Decision, answers: Answers, proposal: Proposal, choices: tuple[Choice, ...]) -> str:
    name, given = one.name, answers[one.name]
    if one.many:
        return ",".join(map(str, proposal.gpus))
    if choices:
        able = [choice.name for choice in choices if not choice.disabled]
        fitting = next((o.name for o in proposal.options.get(name, ()) if o.recommended and not o.disabled), "")
        for wish in (_choice_name(given), proposal.chosen.get(name, ""), fitting):
            if wish in able:
                return wish
        return able[0] if able else ""
    if given not in (None, "auto"):
        return (
            str(answers.model or decisions.as_typed(name, given))
            if name == "params"
            else decisions.as_typed(name, given)
        )
    if name == "accum":
        return str(proposal.accumulate)
    return proposal.chosen.get(name, "") if one.probed else ""


def _choice_name(given: object) -> str:
    """Return the name of the choice for a value."""
    return ("yes" if given else "no") if isinstance(given, bool) else str(given)


# ---- the questions about the wizard itself


def _start_question(state: State, scene: Scene) -> Question:
    choices = []
    if scene.draft is not None:
        choices.append(
            Choice("resume", f"Resume where you stopped ({scene.left_off or screens.left_off(scene.draft)})")
        )
    if scene.existing is not None:
        choices += [
            Choice("change", "Review and change it"),
            Choice("ask", "Start over: a few short questions"),
            Choice("everything", "Start over: all questions"),
            Choice("new", "Keep it and write a new file"),
        ]
    else:
        choices += [
            Choice("ask", "Answer a few short questions" + ("" if scene.draft else " (recommended)")),
            Choice("everything", "Ask me everything"),
            Choice("write", "Write this config as shown"),
        ]
    choices.append(Choice("quit", "Quit without writing"))
    return Question(
        flow.START,
        "What next?",
        "The table above shows what fits this machine, and the source of each value.\n"
        "The short questions are about what mgpu cannot detect: the model, the batch, the dataset and the\n"
        "learning rate. You can skip any of them, and change every row at the end.\n"
        "Nothing is written until you confirm. A file that is replaced is kept as a backup.",
        default="everything" if state.mode == "guided" and scene.draft is None else choices[0].name,
        choices=tuple(choices),
        note=state.note,
        first=True,
        saves=bool(state.asked),
    )


def _review_question(state: State, proposal: Proposal) -> Question:
    stopped = bool(proposal.problems)
    choices = [Choice(f"problem {n}", f"FAIL {text}", heading=True) for n, text in enumerate(proposal.problems)]
    if stopped:
        choices.append(Choice("write", "Write", disabled="fix the errors above first"))
    else:
        choices.append(Choice("write", "Write >>"))
    rows, seen = [], set()
    pad = max((len(s.label) for s in proposal.settings), default=0)
    for setting in proposal.settings:
        if setting.question and setting.question in flow.QUESTIONS and setting.question not in seen:
            seen.add(setting.question)
            text, narrow = f"{setting.label:<{pad}}  {setting.text}", f"{setting.label}: {setting.text}"
            rows.append(Choice(setting.question, text, detail=source_of(setting), narrow=narrow))
    choices += rows
    file = f"{'file':<{pad}}  {state.output}"
    choices.append(Choice(flow.FILE, file, detail="default", narrow=f"file: {state.output}"))
    choices.append(Choice("quit", "Quit without writing"))
    return Question(
        flow.REVIEW,
        "Review: press Enter on a row to change it",
        "Enter on a row asks its question again and returns here.\n"
        "The last column is the source of a value: detected = read from this machine, default = chosen by mgpu,\n"
        "you = your answer, flag = the command line, file = the file being edited.\n"
        "Write >> has accelerate's own loader check the config, then writes it. Nothing is written before that.",
        default=rows[0].name if stopped and rows else "write",
        choices=tuple(choices),
        numbered=False,
        panel=lambda chosen, width: screens.beside_review(chosen, proposal),
        note=state.note,
    )


def _confirm_question(names: Sequence[str]) -> Question:
    it = "it (the current one is" if len(names) == 1 else "them (the current ones are"
    return Question(
        flow.CONFIRM,
        f"Replace {' and '.join(names)}?",
        "The lines above are the changes. The file is replaced in one step, and the current one is kept\n"
        "next to it as a backup (.bak, .bak.2, ...).",
        default="write",
        choices=(
            Choice("write", f"Replace {it} kept as a backup)"),
            Choice("back", "Back to the review"),
            Choice("quit", "Quit without writing"),
        ),
        heading="Last question.",
    )


def _file_question(state: State) -> Question:
    def problem(text: str) -> str | None:
        if not text.strip() or not text.isprintable():
            return "enter a file name, for example fsdp.yaml"
        return None if text.strip().endswith((".yaml", ".yml")) else "the name must end in .yaml"

    return Question(
        flow.FILE,
        "Name of the file to write?",
        "mgpu finds accelerate.yaml in the current folder by itself. Any other name has to be passed:\n"
        "accelerate launch --config_file NAME, mgpu launch -c NAME.",
        default=state.output if state.editing else "",
        problem=problem,
    )


def reply(question: Question, typed: str, state: State, proposal: Proposal) -> object:
    """Return the argument for flow.take: the decided value, or the name of a choice."""
    if state.step in flow.SCREENS:
        return typed.strip()
    return value(question.name, typed, state.answers, proposal)
