"""The errors of a job are in another file than its output: its batch system names it, and the launcher shows when."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import read, several_runs
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause

ERRORS = "/work/ada/out/fit.err"
NAMED = f"PS:\n\nRead file <{ERRORS}> for stderr output of this job.\n"


def report(code: int, named: str = NAMED, job: int = 17) -> str:
    """LSF's report below the output of a job."""
    end = f"Exited with exit code {code}." if code else "Successfully completed."
    return (
        f"\n{'-' * 60}\nSender: LSF System <lsfadmin@gpu3>\nSubject: Job {job}: <fit> in cluster <main> Exited\n\n"
        f"Job <fit> was submitted from host <login> by user <ada> in cluster <main> at Sun Nov 8 10:00:00 2026\n"
        f"{'-' * 60}\n\n{end}\n\nResource usage summary:\n\n    CPU time :    13.55 sec.\n    Run time :    94 sec.\n\n"
        f"The output (if any) is above this job summary.\n\n\n\n{named}\n"
    )


def started(seconds: float, between: str = "", code: int = 1) -> str:
    """DeepSpeed's launcher starts two processes, of which one exits."""
    said = f"[2026-11-08 10:00:0{seconds:.3f}] [{{}}] [launch.py:325:sigkill_handler] ".replace(".", ",", 1)
    return (
        "[2026-11-08 10:00:00,071] [INFO] [launch.py:256:main] process 71 spawned with command: ['python', 'fit.py']\n"
        "[2026-11-08 10:00:00,098] [INFO] [launch.py:256:main] process 72 spawned with command: ['python', 'fit.py']\n"
        f"{between}{said.format('INFO')}Killing subprocess 71\n{said.format('INFO')}Killing subprocess 72\n"
        f"{said.format('ERROR')}['python', '-u', 'fit.py', '--local_rank=1'] exits with return code = {code}\n"
    )


def test_lsf_names_the_file_of_the_errors(tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, "epoch 1 loss 0.3\n" + report(1))
    assert row == "log_errors_in_another_file" and ERRORS in title and f"mgpu doctor --log {ERRORS}" in words
    assert "right at its start" not in title + words
    row, title, words = explained(tmp_path, started(1.1) + report(1))
    assert row == "log_errors_in_another_file" and ERRORS in title and "right at its start" in title
    for word in ("syntax", "import", "argument", "code 1", "1.0 s"):
        assert word in words, word


@pytest.mark.parametrize("text", [started(9.5), started(1.1, "loading the model\n")])
def test_a_process_that_printed_or_lasted_did_not_fail_at_its_start(text: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, text + report(1))
    assert row == "log_errors_in_another_file" and "right at its start" not in title + words
    assert "right at its start" not in explained(tmp_path, text)[1]


def test_a_process_that_fails_at_its_start_without_another_file(tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, started(1.1))
    assert row == "log_child_failed" and "right at its start" in title and "py_compile" in words


def test_a_log_with_its_own_errors_needs_no_other_file(tmp_path: Path) -> None:
    error = frames((SCRIPT, "main", "x = f(3)")) + "NameError: name 'f' is not defined\n"
    assert "f, which does not exist there" in explained(tmp_path, f"{error}{report(1)}")[1]
    assert cause(f"epoch 2 loss 0.2\n{report(0)}", tmp_path) is None
    assert cause(f"epoch 2 loss 0.2\n{report(1, '')}", tmp_path) == "log_lsf_job_exited"


@pytest.mark.parametrize(
    ("script", "row"),
    [
        ("#SBATCH --output=logs/fit.out\n#SBATCH --error=logs/fit.err\n", "log_errors_in_another_file"),
        ("#SBATCH -o logs/fit.out\n#SBATCH -e logs/fit.err\n", "log_errors_in_another_file"),
        ("   StdErr=/w/logs/fit.err\n   StdIn=/dev/null\n   StdOut=/w/logs/fit.out\n", "log_errors_in_another_file"),
        ("#SBATCH --output=logs/fit.out\n", "log_child_failed"),
        ("#SBATCH --output=logs/fit.log\n#SBATCH --error=logs/fit.log\n", "log_child_failed"),
        ("#SBATCH --error=logs/run.log\n", "log_child_failed"),  # the name of the log that is read
        ("#SBATCH --error=logs/%x.log\n", "log_child_failed"),
    ],
)
def test_slurms_file_of_the_errors(script: str, row: str, tmp_path: Path) -> None:
    found, title, words = explained(tmp_path, f"#!/bin/bash\n{script}{started(1.1)}")
    assert found == row
    if row == "log_errors_in_another_file":
        assert "logs/fit.err" in title and "right at its start" in title and "mgpu doctor --log" in words


def test_a_file_whose_name_has_the_number_of_the_job(tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, f"#SBATCH --output=%j.out\n#SBATCH --error=%j.err\n{started(9.5)}")
    assert "%j.err" in title and "scontrol show job" in words and "mgpu doctor --log %j.err" not in words
    error = "srun: error: gpu3: task 1: Exited with exit code 1\n"
    assert cause(f"#SBATCH --error=%j.err\n{started(9.5)}{error}", tmp_path) != "log_errors_in_another_file"


def test_the_report_of_lsf_belongs_to_the_job_above_it(tmp_path: Path) -> None:
    path = tmp_path / "fit.out"
    first, second = f"{report(1, job=16)}\n{started(9.5)}{report(1)}", f"{started(1.1)}{report(1, job=18)}"
    path.write_text(first + second)
    last, _ = several_runs.of_last_run(path, iter(()))
    assert last is not None and last.line == first.count("\n") + 1 and last.earlier == 2
    log = read.read_logs([path], last_run=True)
    assert any(one.signature == "log_child_failed" and one.line > last.line for one in log.seen)
    path.write_text(second)
    assert several_runs.of_last_run(path, iter(()))[0] is None
