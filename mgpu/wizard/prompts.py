"""Asks a question on a terminal. The only file that imports questionary.

On a terminal that cannot move its cursor (TERM=dumb), or with MGPU_ACCESSIBLE set, the same questions are asked as
plain numbered lines: screen readers and logs can follow those.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from mgpu.report import clean, wrapped
from mgpu.wizard.questions import Question


class Back:
    """The user wants the question before this one."""


BACK: Final = Back()
_HELP: Final = object()
_KEYS = "Enter accept   Esc back   F1 explain   Ctrl-C quit"


def ask(question: Question) -> str | Back:
    """The answer: a choice's name, or the text. BACK when the user goes back. Raises KeyboardInterrupt on Ctrl-C."""
    return _ask_plain(question) if plain() else _ask_rich(question)


def plain() -> bool:
    """Whether questions are asked as plain lines."""
    return os.environ.get("TERM", "") in ("", "dumb") or bool(os.environ.get("MGPU_ACCESSIBLE"))


def _ask_plain(question: Question) -> str | Back:
    if question.choices:
        open_choices = [choice for choice in question.choices if not choice.disabled]
        print(clean(question.text))
        for number, choice in enumerate(open_choices, 1):
            print(f"{number}. {clean(choice.text)}")
        for choice in question.choices:
            if choice.disabled:
                print(f"Not possible: {clean(choice.text)}: {clean(choice.disabled)}")
        default = next((n for n, c in enumerate(open_choices, 1) if c.name == question.default), 1)
        prompt = f"Type a number, or Enter for {default}, b for back, h for help: "
    else:
        print(clean(question.text))
        prompt = (
            f"[{question.default}] (b for back, h for help): " if question.default else "(b for back, h for help): "
        )
    while True:
        try:
            text = input(prompt).strip()
        except EOFError:
            raise KeyboardInterrupt from None
        if text == "b":
            return BACK
        if text == "h":
            print(question.help)
        elif question.choices:
            if not text:
                return open_choices[default - 1].name
            if text.isdigit() and 1 <= int(text) <= len(open_choices):
                print(f"Chosen: {open_choices[int(text) - 1].text}")
                return open_choices[int(text) - 1].name
            print(f"Type a number from 1 to {len(open_choices)}.")
        elif wrong := question.problem(text or question.default):
            print(wrong)
        else:
            return text or question.default


def _ask_rich(question: Question) -> str | Back:
    # A terminal that does not answer cursor queries makes prompt_toolkit wait and complain.
    os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")
    while True:
        try:
            answer = _prompt(question).unsafe_ask()
        except EOFError:
            raise KeyboardInterrupt from None
        if answer is _HELP:
            print(question.help, flush=True)
        else:
            return answer  # type: ignore[no-any-return]


def _prompt(question: Question) -> Any:
    import questionary

    if question.choices:
        choices = [
            questionary.Choice(choice.text, value=choice.name, disabled=choice.disabled) for choice in question.choices
        ]
        prompt = questionary.select(
            question.text, choices=choices, default=question.default or None, qmark="?", pointer=">", instruction=" ",
            use_shortcuts=True,
        )  # fmt: skip
    else:
        prompt = questionary.text(
            question.text + " ",
            default=question.default,
            qmark="?",
            validate=lambda text: question.problem(text) or True,
        )
    return _with_keys(prompt, question)


def _with_keys(prompt: Any, question: Question) -> Any:
    """Add back, help and the live panel to a questionary prompt, through its public prompt_toolkit application."""
    from prompt_toolkit.filters import is_done
    from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings
    from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
    from prompt_toolkit.layout.controls import FormattedTextControl

    app = prompt.application
    keys = KeyBindings()
    for key in ("escape", "c-b", "s-tab"):
        keys.add(key, eager=True)(lambda event: event.app.exit(result=BACK))
    for key in ("f1", "c-g", "?") if question.choices else ("f1", "c-g"):
        keys.add(key, eager=True)(lambda event: event.app.exit(result=_HELP))
    keys.add("c-d", eager=True)(lambda event: event.app.exit(exception=KeyboardInterrupt()))
    app.key_bindings = merge_key_bindings([app.key_bindings, keys]) if app.key_bindings else keys
    app.ttimeoutlen = 0.05  # or Esc lags

    def below() -> str:
        width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 80
        panel = question.panel(app.current_buffer.text) if not question.choices else ""
        lines = [line for text in (panel, _KEYS) if text for line in wrapped(text, width - 2)]
        return "\n".join(["-" * min(77, width - 3), *lines])

    panel = ConditionalContainer(
        Window(FormattedTextControl(below), dont_extend_height=True, wrap_lines=False), filter=~is_done
    )
    app.layout = Layout(HSplit([app.layout.container, panel]), focused_element=app.layout.current_window)
    return prompt
