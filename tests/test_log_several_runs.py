"""Several runs in one file: is the last one judged, and does one run stay one?"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

from mgpu import errors
from mgpu.engine import root_cause
from mgpu.readers.log import read, several_runs
from mgpu.snapshot import LastRun, Log
from tests.conftest import Run

HEAD = "Loading the tokenizer of the model\nUsing 2 GPUs of this machine\n"
STEPS = "step 1 loss 0.4\nstep 2 loss 0.3\n"
TRAIN = 'Traceback (most recent call last):\n  File "train.py", line {line}, in main\n    {code}\n{error}\n'
TABLE = (
    "W1121 10:12:01.408000 4711 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4712 closing "
    "signal SIGTERM\nTraceback (most recent call last):\n"
    '  File "/opt/v/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent\n'
    "    raise ChildFailedError(\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "train.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_10:12:01\n"
    "  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 4713)\n"
)
STOPPED = (
    "W1121 10:12:01.408000 4711 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting "
    'down workers\nTraceback (most recent call last):\n  File "/opt/v/bin/torchrun", line 8, in <module>\n'
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15\n"
)
ONCE = "train.py:8: FutureWarning: this default will change soon\n  x = read()\n"
CANCELLED = "slurmstepd: error: *** JOB {job} ON n1 CANCELLED AT 2026-11-21T10:12:01 ***\n"


def failed(error: str, line: int = 7, code: str = "call()") -> str:
    return TRAIN.format(error=error, line=line, code=code)


FIRST, LAST = failed("KeyError: 'labels'", code="x = batch['labels']"), failed("ValueError: the loss is odd", line=9)
# What is in the file, the first line of its last run, the runs before, and the cause.
SEVERAL = {
    "nohup": ("nohup: ignoring input\n" + HEAD + STEPS + "nohup: ignoring input\n" + HEAD + LAST, 6, 1, "odd"),
    "nohup after an error": (
        "nohup: ignoring input\n" + HEAD + FIRST + "nohup: ignoring input\n" + HEAD + LAST, 8, 1, "odd"),
    "its first lines after others": (
        HEAD + FIRST + "activating the environment\n" + HEAD + "reading\n" * 250 + LAST, 8, 1, "odd"),
    "one process": ((HEAD + STEPS + FIRST) * 2 + HEAD + STEPS + LAST, 17, 2, "odd"),
    "a warning that a process prints once": (ONCE + "lr 0.1 is used here\n" + FIRST + ONCE + LAST, 8, 1, "odd"),
    "interrupted": (HEAD + STEPS + failed("KeyboardInterrupt") + HEAD + LAST, 9, 1, "odd"),
    "torchrun": (HEAD + STEPS + FIRST + TABLE + HEAD + STEPS + LAST + TABLE, 20, 1, "odd"),
    "torchrun that was stopped": (
        HEAD + STEPS + STOPPED + HEAD + STEPS + LAST + TABLE, 9, 1, "odd"),
    "Slurm jobs": (
        "Sun Nov 8 10:12:01 2026\n" + HEAD + CANCELLED.format(job=7) + "Mon Dec 9 11:13:02 2026\n" + HEAD
        + STEPS + CANCELLED.format(job=8), 5, 1, "job 8",
    ),
    "usage": (
        ("usage: train.py [-h] [--lr LR]\n                [--steps STEPS]\n"
         "train.py: error: argument --lr: invalid float value: 'x'\n") * 2
        + "usage: train.py [-h] [--lr LR]\n                [--steps STEPS]\n"
        "train.py: error: argument --steps: invalid int value: 'y'\n", 7, 2, "'y'",
    ),
    "one process, after a task of srun": (
        HEAD + FIRST + "srun: error: n1: task 0: Exited with exit code 1\n" + HEAD + FIRST + HEAD + STEPS + LAST,
        14, 1, "odd",
    ),
    "a job that was cancelled, after jobs that ended well": (
        ("Sun Nov 8 10:12:01 2026\n" + HEAD + STEPS) * 4 + CANCELLED.format(job=7)
        + "Mon Dec 9 11:13:02 2026\n" + HEAD + LAST, 22, 1, "odd",
    ),
    "the last one succeeded": (HEAD + FIRST + HEAD + STEPS + "{'train_runtime': 8.1, 'train_loss': 0.4}\n", 7, 1, None),
}  # fmt: skip
# One run, although its first lines or an error occur several times.
ONE = {
    "ranks that print the same, one of which fails early": (
        "[launch.py:1] WORLD INFO DICT: {'localhost': [0, 1]}\n" + HEAD + FIRST + HEAD + STEPS
    ),
    "torchrun's ranks": "torchrun --nproc-per-node 2 train.py\n" + HEAD + FIRST + HEAD + FIRST + TABLE,
    "Slurm's tasks": HEAD + FIRST + "srun: error: n1: task 0: Exited with exit code 1\n" + HEAD + STEPS,
    "Slurm's tasks, of which each prints the same": (
        HEAD
        + FIRST
        + "srun: error: n1: task 0: Exited with exit code 1\n"
        + HEAD
        + FIRST
        + "srun: error: n1: task 1: Exited with exit code 1\n"
    ),
    "srun's tasks, of which one fails early": "srun: job 7 has been allocated resources\n"
    + HEAD
    + FIRST
    + HEAD
    + STEPS,
    "an exception that was caught": HEAD + STEPS + FIRST + STEPS,
    "another program after it": HEAD + STEPS + FIRST + "Merging the checkpoint\nNo weights in out/\n" + LAST,
    "conda's own error": "CondaError: Run 'conda init' before 'conda deactivate'\n" + "reading\n" * 250,
    "ranks of which one fails early": "[rank0]: ready\n" + FIRST + "reading\n" * 250,
    "a tracker's summary": HEAD + FIRST + "wandb:  loss 0.3\n" * 150,
    "a tracker's summary of many metrics": HEAD + FIRST + "wandb:\n" + "wandb:  class_7/loss 0.3\n" * 900,
    "a warning of each item": ONCE.replace("Future", "Convergence")
    + "lr 0.1 is used here\n"
    + FIRST
    + (ONCE.replace("Future", "Convergence") + FIRST) * 2,
    "a warning that comes later": ONCE + "lr 0.1 is used here\n" + FIRST + "reading the next part\n" + ONCE,
    "nothing": "",
    "only errors": FIRST * 3,
    "steps": STEPS * 40,
}


def read_text(text: str, tmp_path: Path) -> Log:
    path = tmp_path / "nohup.out"
    path.write_text(text, "utf-8")
    return read.read_logs([path], last_run=True)


@pytest.mark.parametrize("name", SEVERAL)
def test_the_last_run_counts(name: str, tmp_path: Path) -> None:
    text, line, earlier, words = SEVERAL[name]
    log = read_text(text, tmp_path)
    assert log.last_run == LastRun(line, earlier)
    assert (log.lines, log.size_bytes) == (text.count("\n"), len(text))
    first = root_cause.find_cause(log, None).first
    if words is None:
        assert first is None and log.finished
        return
    assert first and first.outcome.problem and first.outcome.problem.place
    assert words in first.outcome.problem.title and (first.outcome.problem.place.line or 0) >= line
    assert "labels" not in first.outcome.problem.title


def test_much_output_after_an_exception_is_of_another_run_or_it_was_caught(mgpu: Run, tmp_path: Path) -> None:
    text = FIRST + "reading\n" * 250
    assert read_text(text + LAST, tmp_path).last_run == LastRun(5, 1, certain=False)
    done = mgpu("doctor", "--log", "nohup.out", cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert "goes on after the exception before line 5. Another run began there, or the program caught it" in said
    assert "Before it: head -n 4 nohup.out | mgpu doctor --log -" in said and "the loss is odd" in said
    read_text(text, tmp_path)
    assert mgpu("doctor", "--log", "nohup.out", cwd=tmp_path).returncode == errors.UNKNOWN


def test_the_command_for_the_run_before(mgpu: Run, tmp_path: Path) -> None:
    text = SEVERAL["nohup"][0]
    (tmp_path / "-my run.log").write_text(text, "utf-8")
    with gzip.open(tmp_path / "a.log.gz", "wt") as packed:
        packed.write(text)
    for option, before in (
        ("--log=-my run.log", "head -n 5 './-my run.log' | mgpu"),
        ("--log=a.log.gz", "zcat a.log.gz | head -n 5 | mgpu"),
    ):
        done = mgpu("doctor", option, cwd=tmp_path)
        (shown,) = [line for line in done.stdout.splitlines() if line.startswith("The run before it:  ")]
        assert before in shown
        command = shown.partition(":  ")[2].partition(" | mgpu")[0]
        part = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)
        assert part.stdout == "".join(text.splitlines(keepends=True)[:5])


@pytest.mark.parametrize("name", ONE)
def test_one_run_is_one(name: str, tmp_path: Path) -> None:
    assert read_text(ONE[name], tmp_path).last_run is None


@pytest.mark.parametrize("name", SEVERAL)
def test_line_ends_and_pieces_do_not_matter(name: str, tmp_path: Path) -> None:
    text, line, earlier, _ = SEVERAL[name]
    assert read_text(text.replace("\n", "\r\n"), tmp_path).last_run == LastRun(line, earlier)
    pieces = iter([part.encode() for part in text.splitlines(keepends=True)])
    (pipe, other) = os.pipe()  # what can be read only once
    os.close(other)
    found, parts = several_runs.of_last_run(Path(f"/dev/fd/{pipe}"), pieces)
    os.close(pipe)
    assert b"".join(parts).decode() == text
    heads = text.startswith("nohup")  # the first lines must be in one piece
    assert found == (LastRun(line, earlier) if heads else found)


def test_a_stream_that_is_too_long_is_one_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(several_runs, "_KEPT", 10)
    text = SEVERAL["nohup"][0].encode()
    found, parts = several_runs.of_last_run(tmp_path / "gone", iter([text, b"more\n"]))
    assert found is None and b"".join(parts) == text + b"more\n"


def test_the_report_says_which_run_it_is_about(mgpu: Run, tmp_path: Path) -> None:
    text, line, earlier, _ = SEVERAL["one process"]
    (tmp_path / "nohup.out").write_text(text, "utf-8")
    done = mgpu("doctor", "--log", "nohup.out", cwd=tmp_path)
    assert f"The log has at least {earlier} earlier runs before line {line}." in done.stdout and done.returncode == 1
    assert f"The run before it:  head -n {line - 1} nohup.out | mgpu doctor --log -\n" in done.stdout
    for name in ("nohup.out", "-"):
        with (tmp_path / "nohup.out").open() as stdin:
            document = json.loads(mgpu("doctor", "--log", name, "--json", cwd=tmp_path, stdin=stdin).stdout)
        assert document["log"]["last_run"] == {"line": line, "earlier": earlier, "certain": True}
        assert document["probable_cause"]["id"] == "log_exception"


SYNTAX = (
    'Traceback (most recent call last):\n  File "/w/fit.py", line 4, in <module>\n    from nets import Net\n'
    "  File \"/w/nets.py\", line 31\n    def forward(self, x)\n                        ^\nSyntaxError: expected ':'\n"
)
LATER = (
    'Traceback (most recent call last):\n  File "/w/fit.py", line 52, in <module>\n    main()\n'
    '  File "/w/fit.py", line 40, in main\n    x = rows["a"]\nKeyError: \'a\'\n'
)


@pytest.mark.parametrize("between", ["", "epoch 1\n", "\0\0\0 "])
def test_a_script_that_a_syntax_error_had_ended_ran_again(tmp_path: Path, between: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(SYNTAX + between + LATER)
    log = read.read_logs([path], last_run=True)
    assert log.last_run is not None and log.last_run.line == 8 + between.count("\n")
    first = root_cause.find_cause(log, None).first
    assert first is not None and first.outcome.problem is not None
    assert "'a'" in first.outcome.problem.title


@pytest.mark.parametrize(
    "text",
    [
        SYNTAX + "\nDuring handling of the above exception, another exception occurred:\n\n" + LATER,
        SYNTAX + SYNTAX,  # of two ranks
        SYNTAX + LATER.replace("/w/fit.py", "/w/other.py"),  # another program of the same job
    ],
)
def test_what_follows_a_syntax_error_can_be_of_the_same_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(text)
    assert read.read_logs([path], last_run=True).last_run is None
