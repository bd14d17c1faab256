"""Is the message of an exception found that a program caught and printed itself? And what the log's values decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from tests.test_log_meanings import SCRIPT, explained, traceback

USAGE = (
    "05/30 18:04:29 - mmengine - WARNING - \n    Arguments received: ['tune', 'train', 'a.py']. tune commands use the "
    "following syntax:\n\n        tune MODE ARGS\n"
)


@pytest.mark.parametrize(
    ("text", "wanted", "words"),
    [
        (f"05/30 18:04:29 - mmengine - WARNING - WARNING: command error: '[Errno 2] No such file or directory: "
         f"'/data/notes.md''!\n{USAGE}", "log_file_missing", "/data/notes.md"),
        (f"10/18 16:45:32 - mmengine - WARNING - WARNING: command error: ''Adafactor is already registered in "
         f"optimizer at torch.optim''!\n{USAGE}", "log_registered_twice", "mmengine"),
        ("step 3\n[2026-03-17 09:22:24] 模型初始化失败: prepare_qat only works on models in training mode\n",
         "log_qat_not_in_training_mode", "model.train()"),
        ("step 3\n[2026-03-17 09:22:24] 数据读取错误：third column has no name\n", "log_program_reported_error",
         "printed only its message"),
        ("loading\nTraining failed: the plan has no stages at all\n", "log_program_reported_error", "print_exc"),
        ("loading\nAn error occurred while reading the plan: [Errno 2] No such file or directory: '/data/plan.txt'\n",
         "log_file_missing", "/data/plan.txt"),
    ],
)  # fmt: skip
def test_a_message_that_the_program_printed_itself_is_the_cause(
    tmp_path: Path, text: str, wanted: str, words: str
) -> None:
    found, _, why = explained(tmp_path, text)
    assert found == wanted and words in why, (found, why)


@pytest.mark.parametrize(
    "text",
    [
        "step 3\nmean absolute error: 0.25 of all points\n",
        "step 3\nWARNING: upload failed: the server gave no answer\n",
        "step 3\nupload failed: the server gave no answer, retrying\n",
        "WARNING: command error: 'the plan has no stages'!\nstep 4\n",
        "read error: the plan has no stages\nstep 4 loss 0.3\n",
    ],
)
def test_other_last_lines_are_no_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    assert root_cause.find_cause(read.read_logs([path]), None).first is None


def test_backends_that_jax_does_not_find_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("Unable to initialize backend 'rocm': module 'jaxlib.x' has no attribute 'Y'\nglobal step=3\n")
    assert root_cause.find_cause(read.read_logs([path]), None).first is None
    found, _, _ = explained(tmp_path, traceback("AttributeError: module 'jaxlib.x' has no attribute 'Y'", SCRIPT))
    assert found == "log_module_lacks_name"


def test_a_run_without_a_run_of_wandb_is_told_its_line_and_not_of_ranks(tmp_path: Path) -> None:
    error = "wandb.errors.Error: You must call wandb.init() before wandb.log()"
    _, title, why = explained(tmp_path, traceback(error, SCRIPT, "wandb"))
    assert "train.py:7 in run calls wandb.log()" in title and "is_main_process" not in why
    _, _, why = explained(tmp_path, traceback(error, SCRIPT, "wandb", prefix="[rank1]: "))
    assert "is_main_process" in why


def test_an_exception_that_reports_a_timeout_is_as_good_as_the_watchdog(tmp_path: Path) -> None:
    error = (
        "RuntimeError: [Rank 1] Caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, "
        "TensorShape=[], Timeout(ms)=1800000) ran for 1800031 milliseconds before timing out."
    )
    found, title, _ = explained(tmp_path, traceback(error, SCRIPT, "torch"))
    assert found == "log_collective_timed_out" and "the first collective of the run never completed" in title


def test_an_answer_that_was_checked_too_long_is_named(tmp_path: Path) -> None:
    text = traceback("TimeoutError: Operation timed out!", "math_verify/utils.py").replace(
        "Traceback", "Exception ignored in: <finalize object at 0x7f; dead>\nTraceback", 1
    )
    late = "".join(
        f"[rank{rank}]:[E516 06:09:16.2 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=49, OpType=_ALLGATHER_BASE, NumelIn=192, NumelOut=576, Timeout(ms)=1800000) ran for "
        "1800076 milliseconds before timing out.\n"
        for rank in (1, 2)
    )
    found, title, why = explained(tmp_path, text + late)
    assert found == "log_rank_never_came" and "stuck in a reward function" in title and "alarm" in why


def test_a_launcher_that_kills_the_others_while_weights_are_loaded(tmp_path: Path) -> None:
    text = (
        "Loading checkpoint shards:   0%|          | 0/2 [00:00<?, ?it/s][2026-12-01 15:14:47,133] [INFO] "
        "[launch.py:428:sigkill_handler] Killing subprocess 383754\n"
        "[2026-12-01 15:14:47,133] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 383755\n"
        "[2026-12-01 15:14:49,694] [ERROR] [launch.py:434:sigkill_handler] ['/opt/env/bin/python', '-u', 'train.py'\n"
    )
    assert explained(tmp_path, text)[0] == "log_ended_while_loading"
