"""Are lint, format and types clean, and does the README give the commands that CI runs?"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import LONG_FILES, ROOT, missing


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=["ruff check", "ruff format", "mypy --strict"],
)
def test_the_tree_is_clean(arguments: tuple[str, ...]) -> None:
    """mypy keeps its cache, as when it is run by hand: 0.4 s of CPU instead of 18 if little has changed."""
    done = _run(*arguments)
    if f"No module named {arguments[0]}" in done.stderr:
        missing(f"{arguments[0]} is not installed")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_long_files_are_there() -> None:
    """A name in the list that is no file any more would be silent."""
    assert [name for name in LONG_FILES if not (ROOT / "tests" / f"{name}.py").is_file()] == []


def test_ci_runs_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^    (python3 -m venv .*pytest.*)$", readme, re.MULTILINE)
    assert len(commands) == 1, "the README gives one test command, on one line"
    assert commands[0] in (ROOT / "tests" / "README.md").read_text("utf-8")
    assert "README.md" in (ROOT / ".ci" / "run").read_text("utf-8")


def _tracked(*options: str) -> list[str]:
    """The lines of `git ls-files`."""
    done = subprocess.run(["git", "ls-files", *options], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return done.stdout.splitlines()


def test_nothing_else_is_at_the_top_level() -> None:
    """A test that wrote into the current folder left its files, links to a folder under /tmp, in a commit."""
    wanted = {
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-hooks.yaml",
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "action.yml",
        "checks",
        "docs",
        "mgpu",
        "pyproject.toml",
        "tests",
    }
    assert {name.split("/")[0] for name in _tracked()} <= wanted
    assert not [line for line in _tracked("--stage") if line.startswith("120000")], "a symbolic link"


def test_no_path_of_a_workplace_is_in_the_tree() -> None:
    bad = re.compile(r"/work/(main|shared|venv|\.library)|\.\./shared")
    for name in _tracked():
        text = (ROOT / name).read_text("utf-8", errors="replace") if (ROOT / name).is_file() else ""
        if name != "tests/test_style.py":
            assert not bad.search(text), name


def test_the_words_are_plain() -> None:
    """Spelling, and the glossary (words.txt): text on the screen, docstrings, comments, names and pages.

    A line that quotes another program ends with `# codespell:ignore`.
    """
    done = _run("codespell_lib", "mgpu", "checks", *(name for name in _tracked() if name.endswith(".md")))
    if "No module named codespell_lib" in done.stderr:
        missing("codespell is not installed")
    assert done.returncode == 0, done.stdout + done.stderr
