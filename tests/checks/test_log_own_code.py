"""checks/log/own_code.py, started_twice.py and lost_folder.py"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu.snapshot import Circumstance, Log, TracedCall, UncaughtException
from tests.checks.facts import Case, fails, log, table, well


def raised(type: str, message: str = "", **changes: Any) -> Log:
    given: dict[str, Any] = {"place": "fit.py:41 in main", "packages": ("",), "raised_in": "fit.py in main", "line": 40}
    return log(raised=(UncaughtException(type, message, "run.log", **given | changes),))


FULL = "CUDA out of memory. Process 71 has 30.00 GiB memory in use."


def failed(rank: int, message: str, line: int) -> UncaughtException:
    return UncaughtException("torch.OutOfMemoryError", message, "run.log", line, rank, ranks=(rank,), by_torch=True)


TWICE = (failed(0, FULL, 20), failed(0, f"{FULL} Tried again.", 40), failed(1, FULL, 60))
RESTARTED = (Circumstance("ranks_restarted", "will restart worker group", "run.log", 30, 30),)


def missed(path: str, line: int, at: int, **changes: Any) -> UncaughtException:
    calls = (TracedCall(f"fit.py:{at} in main"),)
    message = f"[Errno 2] No such file or directory: '{path}'"
    return UncaughtException("FileNotFoundError", message, "run.log", line, calls=calls, **changes)


LATER = missed("data/words.model", 90, 30, times=3)

CASES = (
    fails("log_name_without_value", "fit.py:41 in main reads scale before it has a value", "grep -nw scale fit.py",
        log=raised("UnboundLocalError", "cannot access local variable 'scale' where it is not associated with a "
                                        "value")),
    fails("log_name_without_value", "reads scale before it has a value", "Set scale before that line",
        log=raised("UnboundLocalError", "local variable 'scale' referenced before assignment")),
    fails("log_name_without_value", "uses dist without importing it", "import torch.distributed as dist",
        log=raised("NameError", "name 'dist' is not defined")),
    fails("log_name_without_value", "uses evalute, which does not exist there", "pyflakes fit.py",
        log=raised("NameError", "name 'evalute' is not defined. Did you mean: 'evaluate'?")),
    well("log_name_without_value", "no such exception",
        log=raised("NameError", "name 'x' is not defined", packages=("", "peft"))),
    fails("log_not_implemented", "pick_loss has no implementation for what this run asks of it", "Read the branches",
        log=raised("NotImplementedError", raised_in="losses.py in pick_loss")),
    fails("log_not_implemented", "no reward function for the data_source", "custom_reward_function.path",
        log=raised("NotImplementedError", packages=("", "verl"), frames=("verl/utils/reward_score/x.py in score",))),
    well("log_not_implemented", "no such exception", log=raised("NotImplementedError", "only linear layers")),
    fails("log_checkpoint_lacks_entry", "the loaded checkpoint has no epoch", "weights_only=False",
        log=raised("KeyError", "'epoch'", code="start = checkpoint['epoch'] + 1", frames=("fit.py in load_last",))),
    fails("log_checkpoint_lacks_entry", "has neither step nor iteration", "Print what it has",
        log=raised("KeyError", "'iteration'", code="n = state_dict['iteration']", cause="KeyError: 'step'",
                   frames=("fit.py in resume",))),
    well("log_checkpoint_lacks_entry", "no such exception",
        log=raised("KeyError", "'label'", code="y = row['label']", frames=("fit.py in load",))),
    fails("log_sample_not_readable", "a DataLoader worker could not read a file of the dataset", "skip it",
        log=raised("soundfile.LibsndfileError", "Error opening 'a.flac': File does not exist", loader=True)),
    fails("log_sample_not_readable", "could not read a file of the dataset (BadZipFile)", "find DATA_FOLDER",
        log=raised("zipfile.BadZipFile", "File is not a zip file")),
    fails("log_sample_not_readable", ": /d/7.h5", "find DATA_FOLDER",
        log=raised("OSError", "Unable to synchronously open file (truncated file: name = '/d/7.h5')", loader=True)),
    well("log_sample_not_readable", "no such exception", log=raised("OSError", "file truncated")),
    fails("log_started_twice", "started twice on this node: rank 0 failed twice", "--ntasks-per-node=1",
        log=log(raised=TWICE)),
    well("log_started_twice", "no rank failed twice", log=log(raised=TWICE[1:])),
    well("log_started_twice", "no rank failed twice", log=log(raised=TWICE, shows=RESTARTED)),
    fails("log_folder_lost", "files in data probably vanished while the job ran: first data/b.bin was missing",
        "ls -ld data", log=log(raised=(missed("./data/b.bin", 40, 80, caught=True), LATER))),
    well("log_folder_lost", "no files of one folder vanished",
        log=log(raised=(missed("data/b.bin", 40, 20, caught=True), LATER))),
    well("log_folder_lost", "no files of one folder vanished",
        log=log(raised=(missed("/mnt/data/b.bin", 40, 80, caught=True), LATER))),
    well("log_started_twice", "no GPU was full", log=log(raised=(failed(0, "a", 20), failed(0, "b", 40)))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
