"""Is the last failure judged where a program was started again in one file, and one run left as it is?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import LastRun, Log
from tests.conftest import Run


def failed(error: str, line: int = 90, script: str = "/w/fit.py", name: str = "<module>") -> str:
    return (
        f'Traceback (most recent call last):\n  File "{script}", line {line}, in {name}\n    main()\n'
        f'  File "/w/parts.py", line 12, in main\n    work()\n{error}\n'
    )


CHILD = (
    "Process Process-1:\nTraceback (most recent call last):\n"
    '  File "/opt/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap\n    self.run()\n'
    "KeyboardInterrupt\n"
)
WARNING = 'fit.py:80: UserWarning: \nThe version_base parameter is not specified.\n  @hydra.main(config_path="conf")\n'
HYDRA = "Cannot find primary config 'small.out'. Check that it's in your config search path.\n"
USAGE = "usage: fit.py [-h] [--lr LR]\nfit.py: error: unrecognized arguments: --rate 3\n"
CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"
KEY, ODD = failed("KeyError: 'labels'"), failed("ValueError: the loss is odd")
TWO = "reading the data\n"  # what the attempts print between


STOPPED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 2\n"


def table(pid: int, rank: int = 0, script: str = "fit.py") -> str:
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 60 + f"\n{script} FAILED\n"
        f"{'-' * 60}\nRoot Cause (first observed failure):\n[0]:\n  rank      : {rank} (local_rank: 0)\n"
        f"  exitcode  : 1 (pid: {pid})\n  error_file: <N/A>\n{'=' * 60}\n"
    )


# What is in the file, the first line of its last run, the runs before, whether that is certain, and the cause.
SEVERAL = {
    "another exception": (KEY + TWO + ODD, 7, 1, True, "odd"),
    "without a line between": (KEY + ODD, 7, 1, True, "odd"),
    "three": (KEY + TWO + ODD + TWO + failed("RuntimeError: the sum is even"), 14, 2, True, "even"),
    "two that are the same": (KEY + KEY + TWO + ODD, 13, 1, True, "odd"),
    "the script was edited": (KEY + TWO + failed("ValueError: the loss is odd", 95), 7, 1, False, "odd"),
    "from another folder": (KEY + failed("ValueError: the loss is odd", script="fit.py"), 7, 1, True, "odd"),
    "a child was stopped with the first": (KEY + CHILD + TWO + ODD, 12, 1, True, "odd"),
    "a chained one": (KEY + CHAINED + failed("OSError: x") + TWO + ODD, 16, 1, True, "odd"),
    "Hydra's start": (KEY + CHILD + WARNING + HYDRA, 12, 1, True, "config"),
    "its arguments": (KEY + USAGE, 7, 1, True, "--rate 3"),
    "its arguments were repaired": (USAGE + TWO + KEY + TWO + ODD, 10, 2, True, "odd"),
    "a launcher": (
        "torchrun fit.py\n" + KEY + table(71) + TWO + failed("ValueError: the loss is odd") + table(83),
        18, 1, True, "odd",
    ),
    "a launcher that was stopped": (KEY + table(71) + TWO * 210 + STOPPED, 17, 1, True, "interrupted"),
}  # fmt: skip
ONE = {
    "the same": KEY + TWO + KEY,
    "the same but for a number": failed("KeyError: 4711") + failed("KeyError: 4712"),
    "another script": KEY + failed("ValueError: the loss is odd", script="/w/merge.py"),
    "arguments of another script": KEY + USAGE.replace("fit.py", "merge.py"),
    "Hydra's start of an unknown script": KEY + HYDRA,
    "caught in a function": failed("KeyError: 'labels'", name="train") + TWO + ODD,
    "chained": KEY + CHAINED + ODD,
    "a child fails first": CHILD.replace("KeyboardInterrupt", "KeyError: 'labels'") + ODD,
    "a child fails later": ODD + CHILD,
    "ranks": "[rank0]: ready\n" + KEY + ODD,
    "ranks that say who they are": "I am rank 1 of 2\n" + KEY + ODD,
    "another rank lost its peer": KEY + failed("RuntimeError: Connection closed by peer [10.0.0.1]:4711"),
    "a module that it did without": failed("ImportError: no fast_kernels", 3) + failed("NameError: name 'x' is unset"),
    "a command": failed("KeyError: 'a'", 8, "/opt/bin/tool.py") + failed("OSError: b", 8, "/opt/bin/tool.py"),
    "exceptions without end": (KEY + ODD) * 150,
    "tables of two nodes": KEY + table(71) + table(71, 8),
    "tables of two scripts": KEY + table(71) + ODD + table(83, script="merge.py"),
    "a launcher of another node was stopped": KEY + table(71) + TWO * 40 + STOPPED,
    "a table that is printed twice": KEY + table(71) + table(71),
}


def read_text(text: str, tmp_path: Path) -> Log:
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    return read.read_logs([path], last_run=True)


@pytest.mark.parametrize("name", SEVERAL)
def test_the_last_failure_counts(name: str, tmp_path: Path) -> None:
    text, line, earlier, certain, words = SEVERAL[name]
    log = read_text(text, tmp_path)
    assert log.last_run == LastRun(line, earlier, certain)
    first = root_cause.find_cause(log, None).first
    assert first and first.outcome.problem and first.outcome.problem.place
    assert words in first.outcome.problem.title and (first.outcome.problem.place.line or 0) >= line
    assert read_text(text.replace("\n", "\r\n"), tmp_path).last_run == LastRun(line, earlier, certain)


@pytest.mark.parametrize("name", ONE)
def test_one_run_is_one(name: str, tmp_path: Path) -> None:
    assert read_text(ONE[name], tmp_path).last_run is None


HEAD = "Configuration was written to out.json\nThe old configuration is replaced\n"


@pytest.mark.parametrize("after", ["", "\n"])
def test_first_lines_that_nothing_follows_do_not_hide_the_failure(tmp_path: Path, after: str) -> None:
    log = read_text(HEAD + TWO + ODD + HEAD + after, tmp_path)
    assert log.last_run is None
    first = root_cause.find_cause(log, None).first
    assert first and first.outcome.problem and "odd" in first.outcome.problem.title


def test_first_lines_that_something_follows_are_a_run(tmp_path: Path) -> None:
    assert read_text(HEAD + TWO + ODD + HEAD + "epoch 1\n", tmp_path).last_run == LastRun(10, 1)
    assert read_text(HEAD + ODD + HEAD, tmp_path).last_run == LastRun(9, 1)  # all of them
    timed = "The job starts on this node\n" + HEAD
    assert read_text(timed + TWO + ODD + timed, tmp_path).last_run == LastRun(11, 1)
    begun = "nohup: ignoring input\n" + HEAD
    assert read_text(begun + ODD + begun, tmp_path).last_run == LastRun(10, 1)


def test_the_report_says_that_there_may_be_more_runs(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(KEY + TWO + ODD, "utf-8")
    done = mgpu("doctor", "--log", "run.log", cwd=tmp_path)
    assert "The log has at least 1 earlier run before line 7." in done.stdout and done.returncode == 1
