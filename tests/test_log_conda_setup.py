"""A job script loads conda from a folder that does not exist: the path and the line, not what a batch shell reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause

AT_LOGIN = (
    "/home/ada/.bashrc: line 4: rbenv: command not found\n"
    "/home/ada/.bashrc: line 9: /data/ada/conda3/etc/profile.d/conda.sh: No such file or directory\n"
)
IN_JOB = "/var/spool/pbs/jobs/17.SC: line 22: /data/ada/conda3/etc/profile.d/conda.sh: No such file or directory\n"
NOT_ACTIVE = "\nCondaError: Run 'conda init' before 'conda activate'\n\n"
NO_TORCH = frames((SCRIPT, "<module>", "import torch")) + "ModuleNotFoundError: No module named 'torch'\n"


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        (AT_LOGIN + IN_JOB + NOT_ACTIVE + NO_TORCH, "22"),
        (IN_JOB + NOT_ACTIVE, "22"),
        (
            IN_JOB.replace("/var/spool/pbs/jobs/17.SC", "train.sh") + "train.sh: line 23: conda: command not found\n",
            "22",
        ),
        ("run.sh: 7: .: cannot open /data/ada/conda3/etc/profile.d/conda.sh: No such file\n" + NO_TORCH, "7"),
        ("run.zsh:source:7: no such file or directory: /data/ada/conda3/etc/profile.d/conda.sh\n" + NO_TORCH, "7"),
    ],
)
def test_the_path_without_conda_is_named(lines: str, number: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, lines)
    assert (
        row == "log_conda_folder_missing" and "no conda at /data/ada/conda3" in title and f"line {number} of" in title
    )
    assert "ls -d /data/ada/conda3" in words and f"sed -n {number}p" in words
    assert "does not read .bashrc" not in words and "conda shell.bash hook" not in words


def test_a_path_that_only_the_login_files_have(tmp_path: Path) -> None:
    row, title, _ = explained(tmp_path, AT_LOGIN + NOT_ACTIVE + NO_TORCH)
    assert row == "log_conda_folder_missing" and "line 9 of .bashrc" in title
    # Without an attempt to activate an environment, the program may not need conda.
    assert cause(AT_LOGIN + NO_TORCH, tmp_path) == "log_module_missing"
    assert cause(AT_LOGIN + frames((SCRIPT, "main", "f(3)")) + "ValueError: no\n", tmp_path) == "log_exception"


def test_a_run_that_went_on_did_not_need_conda(tmp_path: Path) -> None:
    steps = "".join(f"epoch {n} step {n}: loss 0.{n}1\n" for n in range(1, 9))
    assert cause(AT_LOGIN + IN_JOB + NOT_ACTIVE + steps, tmp_path) is None
    error = frames((SCRIPT, "main", "f(3)")) + "ValueError: no\n"
    assert cause(AT_LOGIN + IN_JOB + steps + error, tmp_path) == "log_exception"


def test_a_shell_that_read_its_bashrc(tmp_path: Path) -> None:
    row, _, words = explained(tmp_path, "/home/ada/.bashrc: line 4: rbenv: command not found\n" + NOT_ACTIVE)
    assert row == "log_environment_not_active" and "does not read .bashrc" not in words and "conda init" in words
    row, _, words = explained(tmp_path, NOT_ACTIVE)
    assert row == "log_environment_not_active" and "A batch shell does not read .bashrc" in words
