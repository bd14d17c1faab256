"""checks/log/other_programs.py: programs beside torch that stop a run, and what their warnings do not mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause

STEPS = "epoch 1 loss 0.53\nepoch 2 loss 0.41\n"


@pytest.mark.parametrize(
    ("text", "row", "title"),
    [
        (
            'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat edu.Main.main(Main.java:3)',
            "log_java_heap_full",
            "ran out of host memory",
        ),
        (
            "java.lang.OutOfMemoryError: unable to create new native thread",
            "log_java_native_memory",
            "memory or threads",
        ),
        ("run.pl: job failed, log is in exp/asr_train/train.log", "log_kaldi_job_failed", "exp/asr_train/train.log"),
        ("slurm.pl: 2 / 32 failed, log is in exp/decode/log/asr.*.log", "log_kaldi_job_failed", "slurm.pl"),
        (
            "Error in rule train_model:\n    jobid: 3\nExiting because a job execution failed. Look above for error",
            "log_snakemake_rule_failed",
            "rule train_model failed",
        ),
        ("./go.sh: line 8: /usr/bin/env: Argument list too long", "log_arguments_too_long", "/usr/bin/env"),
        ("forrtl: error (200): program aborting due to window-CLOSE event", "log_windows_console_closed", "was closed"),
        ("forrtl: error (200): program aborting due to control-C event", "log_interrupted", "Ctrl-C"),
        ("openmm.OpenMMException: Particle position is NaN", "log_simulation_unstable", "unstable"),
        (
            "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
            "log_service_not_running",
            "(redis)",
        ),
    ],
)
def test_another_program_stopped_the_run(text: str, row: str, title: str, tmp_path: Path) -> None:
    found, said, _ = explained(tmp_path, f"{STEPS}{text}\n")
    assert found == row and title in said, (found, said)


def test_the_reason_of_a_program_comes_before_who_reports_it(tmp_path: Path) -> None:
    error = frames((SCRIPT, "main", "x = f(3)")) + "NameError: name 'f' is not defined\n"
    log = f"{STEPS}{error}Error in rule train:\n    jobid: 3\n"
    assert cause(log, tmp_path) == "log_name_without_value"


def test_warnings_of_a_simulator_and_the_memory_of_a_gpu(tmp_path: Path) -> None:
    unstable = "WARNING: Nan, Inf or huge value in QACC at DOF 0. The simulation is unstable. Time = 0.1000.\n"
    assert cause(f"{STEPS}{unstable}{STEPS}", tmp_path) is None
    full = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert cause(STEPS + full, tmp_path) == "log_gpu_memory_full"
