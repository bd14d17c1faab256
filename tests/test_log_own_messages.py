"""A log that was copied away from its run still carries what mgpu found in the hang, and that mgpu stopped the run."""

from __future__ import annotations

from pathlib import Path

from checks.log import own_messages
from mgpu import engine
from mgpu.engine import root_cause, selections
from mgpu.process import notices, run_log
from mgpu.readers.log import read
from tests.conftest import Run

_STOP = (
    "W1201 10:55:02.503000 254 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting "
    "down workers\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 254 got signal: 15\n"
)
_HANG = (
    "no progress for 17 s: rank 1 sleeps at t_hang.py:61. Rank 0 waits in broadcast #37 (t_hang.py:62). The line is: "
    "time.sleep(1e6) [hang_rank_sleeps]"
)
_SENT = "SIGTERM to the launcher: --on-hang stop"


def cause_of(text: str, folder: Path) -> engine.Outcome:
    log = folder / "copied.log"
    log.write_text(text)
    first = root_cause.find_cause(read.read_logs([log]), None).first
    assert first is not None and first.outcome.problem is not None
    return first.outcome


def test_messages_that_matter_are_in_the_run_s_own_log(tmp_path: Path) -> None:
    log, shown = run_log.RunLog(tmp_path, print), notices.Notices()
    log.write(memoryview(b"epoch 0 step 3  10%|#  "))  # a bar, which does not end its line
    shown.add(_HANG, important=True, log=log)
    shown.add("Let every rank wait for the same event.", important=False, log=log)
    log.write(memoryview(b"Received 15 death signal\n"))
    shown.add(_SENT, important=True, log=log)
    log.close()
    assert (tmp_path / "run.log").read_text().splitlines() == [
        "epoch 0 step 3  10%|#  ",
        f"mgpu: {_HANG}",
        "Received 15 death signal",
        f"mgpu: {_SENT}",
    ]


def test_a_copied_log_of_a_hang_names_the_rank(tmp_path: Path) -> None:
    found = cause_of(f"epoch 0 step 0 loss 2.3\nmgpu: {_HANG}\nmgpu: {_SENT}\n{_STOP}", tmp_path)
    problem = found.problem
    assert problem is not None
    assert (found.check.id, problem.title) == ("log_run_hung", "rank 1 sleeps at t_hang.py:61")
    assert "Rank 0 waits in broadcast #37" in problem.cause and "--on-hang stop" in problem.cause
    assert problem.fixes[0].commands == ("mgpu doctor --explain hang_rank_sleeps",)


def test_a_run_that_went_on_did_not_hang(tmp_path: Path) -> None:
    again = "mgpu: the run makes progress again\n"
    found = cause_of(f"step 1 of 90 loss 2.3\nmgpu: {_HANG}\n{again}step 2 of 90 loss 2.2\n{_STOP}", tmp_path)
    assert found.check.id == "log_asked_to_end"
    raised = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    f()\nValueError: bad sample\n'
    assert cause_of(f"mgpu: {_HANG}\n{again}{raised}", tmp_path).check.id != "log_run_hung"


def test_sigterm_alone_says_nothing_of_the_ranks(tmp_path: Path) -> None:
    problem = cause_of(f"step 1 loss 2.3\n{_STOP}", tmp_path).problem
    assert problem is not None
    texts = f"{problem.cause} {problem.fixes}"
    assert "were fine" not in texts and "sacct" not in texts
    of_slurm = cause_of(f"SLURM_JOB_ID=7\nstep 1 loss 2.3\n{_STOP}", tmp_path).problem
    assert of_slurm is not None and "sacct" in of_slurm.fixes[0].commands[0]
    by_limit = cause_of(f"step 1\nmgpu: SIGTERM to the launcher: --timeout 60 s reached\n{_STOP}", tmp_path).problem
    assert by_limit is not None and by_limit.title == "mgpu stopped the run" and "--timeout 60 s" in by_limit.cause


def test_messages_of_mgpu_are_no_errors_of_the_program(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("step 1\nmgpu: rank 1: CUDA error: out of memory, ModuleNotFoundError: No module named 'x'\n")
    assert not read.read_logs([log]).seen


def test_uncertain_findings_are_those_that_stop_no_run() -> None:
    of_hang = [check for check in engine.checks_of(selections.HANG) if check.severity.name == "INFO"]
    assert {check.id for check in of_hang} == set(own_messages.UNCERTAIN)


def test_github_has_the_root_cause_first(mgpu: Run, tmp_path: Path) -> None:
    raised = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\n    f()\nValueError: bad\n'
    child = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n"
    lines = "".join(f"[rank1]: {line}\n" for line in raised.splitlines())
    (tmp_path / "run.log").write_text(f"[rank0]: step 1\n{lines}Traceback (most recent call last):\n{child}")
    shown = mgpu("doctor", "--log", "run.log", "--format", "github").stdout.splitlines()
    assert len(shown) > 2 and ",title=log_exception::" in shown[0], shown
