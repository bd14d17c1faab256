"""Can names of files act on a terminal, or pass for each other or for a line of mgpu's?"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pexpect
import pytest

from mgpu import messages, text
from tests.conftest import environment

ACTING = "a\x1b]0;owned\x07b\rc\nmgpu: all is well\u202egpj\x9b31m\x7f"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_what_is_shown_of_a_text() -> None:
    assert text.clean("\x1b[31mred\x1b[0m\ttab\nline") == "red\ttab\nline"
    assert text.clean(ACTING) == "a\\x1b]0;owned\\x07b\\rc\nmgpu: all is well\\u202egpj\\x9b31m\\x7f"
    assert text.visible("a\nb\t\x1b[0mc") == "a\\nb\\t\\x1b[0mc"
    assert text.clean("caf\udce9") == "caf\\xe9"  # a byte of a name that is no UTF-8
    assert not RAW.search(messages.one_line(ACTING)) and "\n" not in messages.one_line(ACTING)


def test_two_names_never_look_equal() -> None:
    names = ("ab", "a\x07b", "a\rb", "a\nb", "a\u200bb", "a\x1b[0mb", "a\udcffb")
    assert len({text.visible(name) for name in names}) == len(names)


def test_the_names_of_a_message_are_visible() -> None:
    message = f"cannot read x/{ACTING}/y: No such file\nTry  mgpu configure"
    shown = text.with_visible(message, [f"x/{ACTING}/y", "plain"])
    assert shown.count("\n") == 1 and "c\\nmgpu: all is well" in shown


def test_a_document_keeps_the_exact_name() -> None:
    from mgpu.report import document

    written = document.text({"path": ACTING})
    assert json.loads(written) == {"path": ACTING} and not RAW.search(written)


NAME = ACTING.replace("/", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an acting name, full of files with acting names."""
    found = tmp_path / f"d{NAME}"
    found.mkdir()
    config = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: two\n"
    for kind, content in (
        (".yaml", config), (".py", "print('x'\n"), (".sh", "#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun nope.py\n"),
        (".log", "RuntimeError: CUDA error: out of memory\n"), (".json", "{"), (".toml", "= 1\n"),
    ):  # fmt: skip
        (found / f"{NAME}{kind}").write_text(content)
    return found


COMMANDS = (
    ("doctor", "--quick", "--only", "config", "-c", f"{NAME}.yaml"),
    ("doctor", "--script", f"{NAME}.py"), ("doctor", "--script", f"{NAME}.sh"), ("doctor", "--script", f"no{NAME}"),
    ("doctor", "--log", f"{NAME}.log"), ("doctor", "--from", f"{NAME}.json"),
    ("configure", "--validate", "--no-loader", f"{NAME}.yaml"),
    ("configure", "--validate", "--no-loader", f"no{NAME}.yaml"),
    ("configure", "--yes", "--gpus", "0", "--answers", f"{NAME}.toml"),
    ("launch", "--unverified", "allow", "-c", f"{NAME}.yaml", f"{NAME}.py"),
    ("launch", "--unverified", "allow", f"no{NAME}.py"), ("launch", f"--{NAME}"),
    ("smoke-test", "-c", f"no{NAME}.yaml"), ("smoke-test", "--show", f"no{NAME}"),
)  # fmt: skip


def test_no_name_of_a_file_acts_on_a_terminal(folder: Path, mgpu: Any) -> None:
    found = []
    for command in COMMANDS:
        done = mgpu(*command, cwd=folder)
        said = done.stdout + done.stderr
        assert said, command
        if RAW.search(said) or re.search(r"^mgpu: all is well", said, re.MULTILINE):
            found.append((command, said))
    assert found == []


def test_documents_hold_the_exact_name(folder: Path, mgpu: Any) -> None:
    done = mgpu("configure", "--validate", "--no-loader", "--format", "json", f"{NAME}.yaml", cwd=folder)
    assert json.loads(done.stdout)["config_path"] == f"{NAME}.yaml" and not RAW.search(done.stdout)
    done = mgpu("doctor", "--log", "--json", f"{NAME}.log", cwd=folder)
    assert not RAW.search(done.stdout + done.stderr)


def test_on_a_real_terminal(folder: Path, tmp_path: Path) -> None:
    import sys

    env = environment(tmp_path / "home", {"TERM": "xterm-256color", "COLUMNS": "100"})
    arguments = ["-m", "mgpu", "configure", "--validate", "--no-loader", f"{NAME}.yaml"]
    child = pexpect.spawn(sys.executable, arguments, cwd=os.fspath(folder), env=env, timeout=60, encoding="utf-8")
    said = child.read()
    child.close()
    assert "owned" in said and "\x1b]0;" not in said and "\x07" not in said and "\u202e" not in said
    assert not RAW.search(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r\n|\r", "", said))
