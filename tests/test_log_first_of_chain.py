"""What the exception means during whose handling another one was raised, and who handled it."""

from __future__ import annotations

from pathlib import Path

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"
CLOSES = (
    frames((SCRIPT, "<module>", "log.close(now)"))
    + "TypeError: Log.close() takes 1 positional argument but 2 were given\n"
)


def words(first: str, second: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{first}{HANDLED}{second}"))


def test_the_first_exception_has_its_meaning(tmp_path: Path) -> None:
    first = frames((SCRIPT, "main", "n = len(samples)")) + "TypeError: object of type 'generator' has no len()\n"
    shown = words(first, CLOSES, tmp_path)
    assert "the length of a generator" in shown
    assert "(fit.py:7 in main); while it was handled, TypeError was raised too" in shown
    assert "list(" in shown
    assert "without that try block" in shown


def test_the_lines_that_complete_the_first_message_are_shown(tmp_path: Path) -> None:
    raised = ("/opt/isaaclab/utils/configclass.py", "_validate", "raise TypeError(")
    makes = ("gymnasium/envs/registration.py", "make", 'f"{e} was raised from the environment creator"')
    first = frames((SCRIPT, "main", "cfg.validate()"), raised) + (
        "TypeError: Missing values detected in object WalkEnvCfg for the following fields:\n  - scene.robot.prim_path\n"
    )
    second = frames((SCRIPT, "main", "env = gym.make(task, cfg=cfg)"), makes) + "AttributeError: no name\n"
    shown = words(first, second, tmp_path)
    assert "of the config WalkEnvCfg are not set, first scene.robot.prim_path" in shown
    assert "env_cfg" in shown
    assert "without that try block" not in shown  # the handler is in a package


def test_an_unknown_first_exception_is_quoted(tmp_path: Path) -> None:
    first = (
        frames((SCRIPT, "main", "raise Lost('no plan')"), ("acme/core.py", "plan", "self.go()"))
        + "acme.Lost: no plan\n"
    )
    shown = words(first, CLOSES, tmp_path)
    assert "Lost: no plan" in shown.split(" | ")[1]
    assert "while it was handled, TypeError" in shown


def test_an_exception_that_programs_expect_is_not_the_cause(tmp_path: Path) -> None:
    first = frames((SCRIPT, "main", "x = known[name]")) + "KeyError: 'a'\n"
    assert "while it was handled" not in words(first, CLOSES, tmp_path)
