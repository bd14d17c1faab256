"""Several attempts in one file, and errors that a program reported and went on after.

All logs are synthetic, in the form of the programs that write them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import LastRun, Log
from tests.test_log_meanings import explained

START = (
    "Using the usual model\nReading weights from checkpoint 70\nWeights are ready\nBeginning with batches of {size}\n"
)
MEMORY = (
    "CUDA out of memory. Tried to allocate 1.17 GiB (GPU 0; 11.17 GiB total capacity; 3.15 GiB already allocated; "
    "75.44 MiB free; 3.20 GiB reserved in total by PyTorch)\n"
)
STEPS = "".join(f"epoch=0 i={n}/530 total=3.{n} spectral=1.{n}\n" for n in range(60))
ANSWERS = (
    "The square root of the number is five.\nIt is not minus five in most of the books.\nThe second answer is one of "
    "the others.\n"
)
EPILOGUE = (
    "Job 17 ended on node n01 today\nThe total wall clock was two hours\nRequested nodes were one of the usual\n"
    "Average CPU load was three of sixteen\n"
)
NOT_LOADED = f"Error loading model:  {MEMORY}"
DENIED = (
    'Traceback (most recent call last):\n  File "draw.py", line 7, in main\n    get(url)\n'
    "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/org/one/resolve/x\n"
)
RELAY = "[relay] Handshake was fine\nhandle: term one\nstatus: running now\noldest cursor: 0\nlatest cursor: 15\n"
COMMAND = "(env) ada@node7:~/draw$ python draw.py --shard 0\n"
BANNER = "[{time}] === draw images: start ===\n  shard of images 0/500\n  teacher: flux with steps 25\n"
NO_FORMAT = "".join(f"[14:2{n}:55] failed idx={n} cat - ValueError: unknown file extension: .tmp\n" for n in range(6))


def read_text(text: str, folder: Path) -> Log:
    path = folder / "run.log"
    path.write_text(text, "utf-8")
    return read.read_logs([path], last_run=True)


def cause(text: str, folder: Path) -> str | None:
    first = root_cause.find_cause(read_text(text, folder), None).first
    return first.id if first else None


def test_a_start_that_is_printed_again_after_a_bare_message_begins_another_run(tmp_path: Path) -> None:
    first = START.format(size=4) * 3
    log = read_text(f"{first}{MEMORY}{START.format(size=4)}{STEPS}", tmp_path)
    assert log.last_run == LastRun(14, 1)
    assert root_cause.find_cause(log, None).first is None
    assert cause(f"{first}{MEMORY}{START.format(size=4)}{MEMORY}", tmp_path) == "log_gpu_memory_full"


def test_some_lines_of_a_start_that_come_again_and_again_begin_nothing(tmp_path: Path) -> None:
    again = "Using the usual model\nWeights are ready\n"
    log = read_text(f"{START.format(size=4)}{again * 3}{MEMORY}{again}", tmp_path)
    assert log.last_run is None and cause(f"{START.format(size=4)}{again * 3}{MEMORY}{again}", tmp_path)


@pytest.mark.parametrize(
    "line", ["epoch=0 i={n}/530 total=3.1", "Epoch 1/9, step {n}/530 - loss 3.1", "epoch: 2 | batch: {n}/530"]
)
def test_the_steps_of_an_epoch_show_that_the_run_went_on(line: str, tmp_path: Path) -> None:
    steps = "".join(f"{line.format(n=n)}\n" for n in range(1, 60))
    assert cause(f"loading\n{MEMORY}{steps}", tmp_path) is None
    assert cause(f"loading\n{MEMORY}{line.format(n=7)}\n" * 2, tmp_path) == "log_gpu_memory_full"


def test_text_after_an_error_that_the_program_reported_shows_that_it_went_on(tmp_path: Path) -> None:
    log = read_text(f"reading\n{NOT_LOADED}{ANSWERS * 4}", tmp_path)
    assert root_cause.find_cause(log, None).first is None and log.seen[0].survived


@pytest.mark.parametrize(
    "text",
    [
        f"{NOT_LOADED}",
        f"{NOT_LOADED}Please try a smaller one of the models.\n{ANSWERS}",
        f"{NOT_LOADED}{ANSWERS.splitlines()[0]}\n",
        f"{NOT_LOADED}{EPILOGUE}",
        f"Error during training: {MEMORY}{ANSWERS * 4}",
        f"{MEMORY}{ANSWERS}",
        f"Error: {MEMORY}{ANSWERS}",
        f"{NOT_LOADED}{ANSWERS}Aborted (core dumped)\n",
    ],
    ids=(
        "the last line",
        "advice",
        "one line",
        "of a job",
        "the whole work",
        "not reported",
        "no action",
        "a signal after it",
    ),
)
def test_other_text_after_an_error_shows_nothing(text: str, tmp_path: Path) -> None:
    assert cause(f"reading\n{text}", tmp_path) is not None


def test_the_last_command_of_a_terminal_begins_a_run(tmp_path: Path) -> None:
    first, last = BANNER.format(time="13:49:57"), BANNER.format(time="14:09:28")
    log = read_text(f"{RELAY}{COMMAND}{first}{DENIED}{last}{NO_FORMAT}", tmp_path)
    assert log.last_run == LastRun(14, 1)
    assert cause(f"{RELAY}{COMMAND}{first}{DENIED}{last}", tmp_path) is None
    assert cause(f"{RELAY}{COMMAND}{first}{DENIED}", tmp_path) == "log_hub_access_denied"


def test_a_spawned_rank_that_was_asked_to_end_did_not_succeed(tmp_path: Path) -> None:
    head = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    spawn(run)\n'
    ended = f"{head}torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGTERM\n"
    found, title, words = explained(tmp_path, ended)
    assert found == "log_spawned_rank_asked_to_end" and title.startswith("process 0 received SIGTERM")
    assert "journalctl" in words and "sacct" not in words  # nothing shows Slurm
    own = 'Traceback (most recent call last):\n  File "train.py", line 9, in run\n    x = rows[9]\nKeyError: 9\n'
    assert explained(tmp_path, own + ended)[0] != "log_spawned_rank_asked_to_end"
