"""Ask a question on a terminal. The only file that imports questionary.

On a terminal that cannot move its cursor (TERM=dumb), or in accessible mode, the questions are plain numbered lines,
which screen readers and logs can follow. Elsewhere a prompt is drawn in place, with the consequences of the answer
below it, and is then replaced by one line with the answer.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from typing import Any, Final

from mgpu.messages import clean
from mgpu.prompts.question import Choice, Question
from mgpu.report.screen import WIDTH_MAX, Screen, unstyled, wrapped


class Back:
    """The user wants to go back to the previous question."""


BACK: Final = Back()
_NARROW = 60  # below this there are no columns


def ask(question: Question, *, plain: bool | None = None, shows_answer: bool = True) -> str | Back:
    """Return the answer: a choice's name, several joined by commas, or the text. Raises KeyboardInterrupt on Ctrl-C.

    `plain`: ask in plain lines; None: if the terminal or MGPU_ACCESSIBLE requires it. `shows_answer`: a drawn prompt
    leaves a line with the answer; otherwise the caller calls `show_answer` once it has accepted the answer.
    """
    plain = cursorless() or bool(os.environ.get("MGPU_ACCESSIBLE")) if plain is None else plain
    return _ask_plain(question) if plain else _ask_rich(question, shows_answer=shows_answer)


def cursorless() -> bool:
    """Return whether this terminal cannot move its cursor."""
    return os.environ.get("TERM", "") in ("", "dumb")


# ---- plain lines


def _ask_plain(question: Question) -> str | Back:
    screen = Screen.of()
    numbered = [choice for choice in question.choices if not choice.disabled]
    _print_lines(screen, question.heading, question.text, question.note, "" if question.default else question.hint)
    selected = question.default.split(",")
    for number, choice in enumerate(numbered, 1):
        if question.many:
            _print_lines(screen, f"{_sentence(choice)}{' Selected.' if choice.name in selected else ''}")
        else:
            _print_lines(screen, f"{number}. {_sentence(choice)}")
    for choice in question.choices:
        if choice.disabled and not choice.heading:
            _print_lines(screen, f"Not available: {choice.text}: {choice.disabled}.")
    while True:
        text = _read_line(screen, _plain_prompt(question, numbered))
        if text == "q":
            raise KeyboardInterrupt
        if text == "b":
            return BACK
        if text in ("h", "?"):
            _print_lines(screen, *_paragraphs(question.help))
            continue
        answer, wrong = _parse_answer(question, numbered, text)
        if answer is not None:
            _print_lines(screen, f"Chosen: {question.answer_text(answer)}.")
            if not question.many:
                _print_lines(screen, *question.panel(answer, 0))
            return answer
        _print_lines(screen, wrong)


def _sentence(choice: Choice) -> str:
    """Return a choice as a sentence, without the spaces that align it on a screen."""
    if choice.narrow:
        return f"{choice.narrow} ({choice.detail})." if choice.detail != "-" else f"{choice.narrow}."
    text = choice.text.removesuffix(" >>")
    return re.sub(r"\s{2,}", ", ", ", ".join(part for part in (text, choice.detail) if part)) + "."


def _print_lines(screen: Screen, *texts: str) -> None:
    for text in texts:
        if text:
            screen.show([[(line, "")] for line in wrapped(text, screen.width)])


def _plain_prompt(question: Question, numbered: list[Choice]) -> str:
    back = "" if question.first else "b for back, "
    keys = f"{back}h for help, q to {'save and ' if question.saves else ''}quit"
    if question.many:
        return f"Type numbers separated by commas, or Enter for the selected ones, {keys}: "
    if question.choices:
        default = next((n for n, c in enumerate(numbered, 1) if c.name == question.default), 1)
        return f"Type a number, or Enter for {default}, {keys}: "
    none = "- for none, " if question.skips else ""
    if question.default:
        return f"Type an answer, or Enter for {question.default}, {none}{keys}: "
    return f"Type an answer{'' if question.problem('') else ', or Enter to skip'}, {keys}: "


def _read_line(screen: Screen, prompt: str) -> str:
    *above, last = wrapped(prompt, screen.width)
    _print_lines(screen, *above)
    try:
        return input(f"{last} ").strip()
    except EOFError:
        raise KeyboardInterrupt from None


def _parse_answer(question: Question, numbered: list[Choice], text: str) -> tuple[str | None, str]:
    """Return the typed answer, or None and what is wrong with it."""
    if question.choices and not question.many:
        default = next((c.name for c in numbered if c.name == question.default), numbered[0].name)
        if not text or (text.isdigit() and 1 <= int(text) <= len(numbered)):
            return (numbered[int(text) - 1].name if text else default), ""
        return None, f"Type a number from 1 to {len(numbered)}."
    if question.many and text:
        words = [word for word in re.split(r"[,\s]+", text) if word]
        names = [choice.name for choice in numbered]
        if not set(words) <= set(names):
            return None, f"Type one or more of {', '.join(names)}, separated by commas."
        text = ",".join(name for name in names if name in words)
    elif not text:
        text = question.default
    elif text == "-":
        text = ""
    wrong = question.problem(text)
    return (None, f"Not accepted: {wrong}.") if wrong else (text, "")


# ---- drawn in place


def _ask_rich(question: Question, *, shows_answer: bool) -> str | Back:
    # Without this, prompt_toolkit waits for terminals that do not answer cursor queries, and prints a warning.
    os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")
    try:
        answer: str | Back = _prompt(question).unsafe_ask()
    except EOFError:
        raise KeyboardInterrupt from None
    if isinstance(answer, Back):
        return answer
    if shows_answer:
        show_answer(question, answer)
    return answer


def show_answer(question: Question, answer: str) -> None:
    """Print the line that takes the place of an answered prompt."""
    screen = Screen.of()
    screen.show(unstyled(wrapped(f"? {question.text}  {question.answer_text(answer)}", screen.width, "", "    ")))


def _prompt(question: Question) -> Any:
    import questionary

    room = _width() - (3 if question.choices else 12)  # room for what is typed after the text
    message = "\n  ".join(wrapped(question.text, room))
    if not question.choices:
        return _with_keys(questionary.text(f"{message} ", default=question.default, qmark="?"), question)
    choices = _menu_choices(question)
    if question.many:
        prompt = questionary.checkbox(message, choices=choices, qmark="?", pointer=">", instruction=" ")
    else:
        open_names = [choice.name for choice in question.choices if not choice.disabled and not choice.heading]
        prompt = questionary.select(
            message,
            choices=choices,
            qmark="?",
            pointer=">",
            instruction=" ",
            use_shortcuts=question.numbered,
            default=question.default if question.default in open_names else None,
        )
    return _with_keys(prompt, question)


def _menu_choices(question: Question) -> list[Any]:
    """Return the choices as questionary's: the details in a column, unless the terminal is narrow."""
    import questionary

    selected = question.default.split(",") if question.many else []
    pad = max((len(choice.text) for choice in question.choices if choice.detail and not choice.disabled), default=0)
    choices: list[Any] = []
    for choice in question.choices:
        text = choice.text
        if choice.narrow and _width() < _NARROW:
            text = choice.narrow
        elif choice.detail and not choice.disabled:
            text = f"{text:<{pad}}   {choice.detail}".rstrip()
        if choice.heading:
            choices.append(questionary.Separator(clean(text)))
            continue
        choices.append(
            questionary.Choice(
                clean(text),
                value=choice.name,
                disabled=clean(choice.disabled) if choice.disabled else None,
                checked=choice.name in selected and not choice.disabled,
            )
        )
    return choices


def _with_keys(prompt: Any, question: Question) -> Any:
    """Add back, help, errors and the live panel to a questionary prompt, through its prompt_toolkit application."""
    from prompt_toolkit.key_binding import merge_key_bindings

    app = prompt.application
    live = _Live(question, app)
    app.key_bindings = merge_key_bindings([app.key_bindings, live.keys()]) if app.key_bindings else live.keys()
    app.ttimeoutlen = 0.05  # otherwise Esc lags
    app.erase_when_done = True  # one line with the answer replaces it
    if live.menu is not None:
        _wrap_menu(live.menu)
    live.add_panel()
    return prompt


class _Live:
    """What a prompt shows below the answer while it is typed or chosen, and the keys that change it."""

    def __init__(self, question: Question, app: Any) -> None:
        self.question, self.app = question, app
        windows = app.layout.find_all_windows()
        self.menu = next((window.content for window in windows if hasattr(window.content, "pointed_at")), None)
        self.help = self.wrong = ""

    def value(self) -> str:
        """Return the answer so far."""
        if self.menu is None:
            return str(self.app.current_buffer.text)
        if self.question.many:
            return ",".join(str(choice.value) for choice in self.menu.get_selected_values())
        return str(self.menu.get_pointed_at().value)

    def keys(self) -> Any:
        """Return the keys for back, help, accept and suspend."""
        from prompt_toolkit.key_binding import KeyBindings

        keys = KeyBindings()
        for key in ("escape", "c-b", "s-tab"):
            keys.add(key, eager=True)(lambda event: event.app.exit(result=BACK))
        keys.add("c-d", eager=True)(lambda event: event.app.exit(exception=KeyboardInterrupt()))
        # The terminal is in raw mode, so Ctrl-Z is a key here. `fg` draws the question again, with what was typed.
        keys.add("c-z", eager=True)(lambda event: event.app.suspend_to_background())
        for key in ("f1", "c-g", "?") if self.question.choices else ("f1", "c-g"):
            keys.add(key, eager=True)(self._explain)
        if self.menu is None or self.question.many:
            keys.add("enter", eager=True)(self._accept)
        return keys

    def _explain(self, _event: Any) -> None:
        self.help = "" if self.help else self.question.help

    def _accept(self, event: Any) -> None:
        self.wrong = self.question.problem(self.value()) or ""
        if not self.wrong:
            event.app.exit(result=self.value())

    def add_panel(self) -> None:
        """Put the panel and the line of keys below the prompt."""
        from prompt_toolkit.filters import is_done, to_filter
        from prompt_toolkit.layout import ConditionalContainer, Dimension, HSplit, Layout, Window
        from prompt_toolkit.layout.controls import FormattedTextControl

        layout = self.app.layout
        panel = Window(FormattedTextControl(self._below), dont_extend_height=True, wrap_lines=False)
        key_line = Window(
            FormattedTextControl(lambda: _key_line(self.question, _width(), self.value())),
            height=Dimension(min=1),
            dont_extend_height=True,
        )
        # Space left by a longer panel goes to an empty window at the end, not between the lines.
        for window in layout.find_all_windows():
            window.dont_extend_height = to_filter(True)
        bottom = ConditionalContainer(HSplit([panel, key_line, Window()]), filter=~is_done)
        self.app.layout = Layout(HSplit([layout.container, bottom]), focused_element=layout.current_window)

    def _below(self) -> str:
        question, width, text = self.question, _width(), self.value()
        wrong = (question.problem(text) or "") if text != question.default or self.wrong else ""
        above = [f"! {wrong}"] if wrong and (text or self.wrong) else []
        hint = [question.hint] if question.hint and not text.strip() else []
        body = _paragraphs(self.help) if self.help else [*hint, *question.panel(text, width - 3)]
        rule = "-" * min(77, width - 3)
        lines = [*_lines(question.note, width), *_lines(" ".join(above), width), rule, *_wrapped_lines(body, width)]
        return "\n".join(f"  {clean(line)}" for line in lines)


def _wrap_menu(menu: Any) -> None:
    """Wrap the lines of a menu at the terminal's width, and show selected lines with ASCII characters.

    questionary shows them with non-ASCII characters and cuts lines that are too long.
    """
    from prompt_toolkit.formatted_text.utils import split_lines

    drawn = menu.text

    def fitted() -> list[tuple[str, str]]:
        width = _width() - 1
        found: list[tuple[str, str]] = []
        for line in split_lines(drawn()):
            parts: list[tuple[str, str]] = []
            for style, text, *_ in line:
                text = {"● ": "[x] ", "○ ": "[ ] "}.get(text, text)
                if parts and parts[-1][0] == style and text.strip() and parts[-1][1].strip():
                    parts[-1] = (style, parts[-1][1] + text)
                else:
                    parts.append((style, text))
            found += [*_hanging_indent(parts, width), ("", "\n")]
        return found[:-1]

    menu.text = fitted


def _hanging_indent(parts: list[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """Return the parts of one line, the last text wrapped with a hanging indent."""
    last = max((n for n, (_, text) in enumerate(parts) if text.strip()), default=0)
    before = sum(len(text) for _, text in parts[:last])
    if not parts or before + len(parts[last][1]) <= width:
        return parts
    style, text = parts[last]
    under = " " * (3 if re.match(r"\d\) ", text) else 2)
    text = re.sub(r"\s{3,}", "  ", text)
    lines = textwrap.wrap(
        text, max(12, width - before), subsequent_indent=under, break_long_words=False, break_on_hyphens=False
    )
    return [*parts[:last], (style, ("\n" + " " * before).join(lines))]


def _wrapped_lines(lines: Any, width: int) -> list[str]:
    return [part for line in lines for part in (_lines(line, width) or [""])]


def _paragraphs(text: str) -> list[str]:
    """Return help text as paragraphs for any width. Commands (indented lines) stay on their own lines."""
    joined: list[str] = []
    for line in text.splitlines():
        if joined and not line.startswith("  ") and not joined[-1].startswith("  "):
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return joined


def _lines(text: str, width: int) -> list[str]:
    """Return text in lines that fit. A line that fits keeps its spaces: it may be a row of a table."""
    if len(text) <= width - 3:
        return [text] if text else []
    return wrapped(text, width - 3)


def _key_line(question: Question, width: int, text: str) -> str:
    """Return what the keys do, in lines that break between keys."""
    select = "Space select" if question.many else ""
    accept = "Enter skip" if not question.choices and not text.strip() and not question.problem("") else "Enter accept"
    explain = "? help" if question.choices else "F1 help"
    leave = "Ctrl-C save and quit" if question.saves else "Ctrl-C quit"
    words = [select, accept, "" if question.first else "Esc back", explain, leave]
    lines = [""]
    for word in filter(None, words):
        if lines[-1] and len(lines[-1]) + len(word) > width - 6:
            lines.append("")
        lines[-1] += f"{'   ' if lines[-1] else ''}{word}"
    return "\n".join(f"  {line}" for line in lines)


def _width() -> int:
    """Return the number of columns that a prompt may use."""
    return max(20, min(shutil.get_terminal_size((80, 24)).columns, WIDTH_MAX))
