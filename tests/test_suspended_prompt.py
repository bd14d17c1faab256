"""Does Ctrl-Z at a question suspend mgpu, and does `fg` show the question again with what was typed?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import environment
from tests.terminal import CONTROL_C, ENTER, Terminal

CONTROL_Z = "\x1a"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    """A shell with job control, with an empty prompt and no settings of the user."""
    env = environment(tmp_path / "home", {"PS1": "$ ", "HISTFILE": ""})
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], env=env, cwd=tmp_path, lines=60)
    yield terminal
    terminal.child.close(force=True)


def test_a_text_question_and_a_menu(shell: Terminal) -> None:
    shell.press(f"{shlex.quote(sys.executable)} -m mgpu configure --target 4xA100-80GB{ENTER}")
    shell.see("What next?")
    shell.see("Ctrl-C")
    shell.press(CONTROL_Z)  # in a menu
    shell.see("Stopped")
    shell.press(f"clear; echo the shell answers{ENTER}")
    shell.see("the shell answers\n")
    shell.press(f"fg{ENTER}")
    shell.see("What next?")
    shell.press(ENTER)
    shell.see("How big is the model?")
    shell.press("7.5")
    shell.see("How big is the model?  7.5")
    shell.press(CONTROL_Z)  # in a text question
    shell.see("Stopped")
    shell.press(f"clear; echo the shell answers{ENTER}")
    shell.see("the shell answers\n")
    assert "7.5" not in shell.text
    shell.press(f"fg{ENTER}")
    shell.see("How big is the model?  7.5")
    shell.press("B", ENTER)
    shell.see("? How big is the model?  7.5")
    shell.see("What will be trained?")
    shell.press(CONTROL_C)
    shell.see("mgpu configure --resume")
