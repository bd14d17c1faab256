"""What ended a job of a cluster: a step that never started, a small limit of host memory?

All logs are synthetic, in the form of Slurm, LSF, PBS, Grid Engine and HTCondor.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import read
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause

WAITS = "srun: {}step creation temporarily disabled, retrying (Requested nodes are busy)\n"
STILL = "srun: Job 92 step creation still disabled, retrying (Requested nodes are busy)\n"
CREATED = "srun: Step created for StepId=92.1\n"
CANCELLED = "slurmstepd: error: *** JOB 92 ON g1 CANCELLED AT 2026-03-01T10:00:00 {}***\n"
STEPS = "".join(f"epoch 1 step {step}/90 loss 0.{step}\n" for step in range(10, 30))
SUMMARY = """
------------------------------------------------------------
Sender: LSF System <admin@n7>
Subject: Job 92: <fit> in cluster <ours> Exited

Job <fit> was submitted from host <login> by user <ada> in cluster <ours> at Mon Nov  2 17:41:17 2026
Job was executed on host(s) <n7>, in queue <gpu>, as user <ada> in cluster <ours> at Mon Nov  2 17:41:19 2026
Your job looked like:

------------------------------------------------------------
# LSBATCH: User input
python main.py
------------------------------------------------------------

TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.
Exited with exit code 137.

Resource usage summary:

    CPU time :                                   3.00 sec.
    Max Memory :                                 {1} MB
    Average Memory :                             90.00 MB
    Total Requested Memory :                     {0} MB

The output (if any) is above this job summary.

"""
KILLED = "/home/ada/.lsbatch/1604335277.92.shell: line 14: 94460 Killed                  python main.py\n"
SMALL = "at a limit of 2 GB of host memory or less"


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (WAITS.format("Job 92 ") + CANCELLED.format(""), "log_slurm_cancelled"),
        ("Loading cuda/12\n" + WAITS.format("Job ") + CANCELLED.format(""), "log_slurm_cancelled"),
        (WAITS.format("Job 92 ") + STILL * 3 + CANCELLED.format("DUE TO TIME LIMIT "), "log_slurm_time_up"),
    ],
)
def test_the_step_never_started(text: str, row: str, tmp_path: Path) -> None:
    found, title, words = explained(tmp_path, text)
    assert found == row and title.startswith("srun never started the program"), (found, title)
    assert "--overlap" in words and "2026-03-01T10:00:00" in title and "probably waited for resources" in title
    other = text.replace("Requested nodes are busy", "Requested operation is presently disabled")
    found, title, words = explained(tmp_path, other)
    assert found == row and title.startswith("srun never started the program: Slurm did not create the step"), title
    assert "--overlap" not in words and "in brackets" in words


def test_the_reason_for_which_a_step_waits(tmp_path: Path) -> None:
    assert "another step of the same job" in explained(tmp_path, WAITS.format("Job 92 "))[1]
    other = WAITS.format("Job 92 ").replace("Requested nodes are busy", "Prolog is still running")
    _, title, words = explained(tmp_path, other)
    assert title == "srun waits: Slurm has not created the step yet, for the reason in brackets"
    assert "--overlap" not in words


@pytest.mark.parametrize(
    "text",
    [
        WAITS.format("Job 92 ") + CREATED + "loading data\n" + CANCELLED.format(""),
        WAITS.format("Job 92 ") + STEPS + CANCELLED.format(""),
        CANCELLED.format(""),
    ],
)
def test_a_step_that_started_or_another_one_that_trained(text: str, tmp_path: Path) -> None:
    found, title, _ = explained(tmp_path, text)
    assert found == "log_slurm_cancelled" and "was cancelled with scancel" in title, title


def test_a_step_that_was_created_later_did_not_fail(tmp_path: Path) -> None:
    assert cause(WAITS.format("Job 92 ") + CREATED + "epoch 1 step 10/90 loss 0.5\n", tmp_path) is None
    assert cause(WAITS.format("Job 92 ") + CREATED + STEPS + "Training complete.\n", tmp_path) is None
    # One of two waits.
    assert cause(WAITS.format("Job 92 ") + CREATED + WAITS.format("Job 92 "), tmp_path) == "log_slurm_step_waits"


@pytest.mark.parametrize(
    ("text", "small"),
    [
        (SUMMARY.format("1024.00", "1023"), True),
        (SUMMARY.format("2048.00", "2048.00"), True),
        (SUMMARY.format("2049.00", "2049.00"), False),
        (SUMMARY.format("65536.00", "65536.00"), False),
        (SUMMARY.format("1024.00", "48000"), False),  # the request is a reservation, the limit is another option
        (SUMMARY.format("65536.00", "1900"), False),
        ("=>> PBS: job killed: mem 1148580kb exceeded limit 1048576kb\n", True),
        ("=>> PBS: job killed: mem 16803280kb exceeded limit 16777216kb\n", False),
        ("Error from slot1_3@n7: Job has gone over cgroup memory limit of 1024 megabytes. Last measured usage: 1019 "
         "megabytes.  Consider resubmitting with a higher request_memory.\n", True),
        ("\tError from s1@n7: Job has gone over memory limit of 9000 megabytes. Peak usage: 9001 megabytes.\n", False),
        ('job 92 exceeds job hard limit "h_vmem" of queue "g.q@n7" (2147489999.00000 > limit:1073741824.00000) - '
         "sending SIGKILL\n", True),
        ('job 92 exceeds job hard limit "h_rss" of queue "g.q@n7" (68719489999.00000 > limit:68719476736.00000) - '
         "sending SIGKILL\n", False),
    ],
)  # fmt: skip
def test_a_small_limit_of_host_memory(text: str, small: bool, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, text)
    assert row == "log_memory_watcher_killed" and (SMALL in title) == small, (row, title)
    assert "request_memory" in words


def test_another_limit_of_grid_engine_is_no_memory(tmp_path: Path) -> None:
    text = 'job 92 exceeds job hard limit "h_rt" of queue "g.q@n7" (3601.00000 > limit:3600.00000) - sending SIGKILL\n'
    assert cause(text, tmp_path) != "log_memory_watcher_killed"


def test_the_report_of_a_job_below_the_shells_last_line_is_no_other_run(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(KILLED + SUMMARY.format("1024.00", "1024.00"))
    assert read.read_logs([path], last_run=True).last_run is None
