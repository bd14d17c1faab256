"""Ends of runs whose programs print no word of it: a result after all epochs, the shell's prompt, no time left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_courses import cause, raised, read_text

EPOCHS = "".join(f"epoch: {epoch} loss: 0.{9 - epoch}\n" for epoch in range(4))
BAR = (
    "  9%|▉  | 9/99 [00:01<00:10, 9.0it/s]\r 50%|█  | 50/99 [00:05<00:05, 9.0it/s]\r"
    "100%|██ | 99/99 [00:10<00:00, 9.0it/s]\n"
)
PROMPT = "(env) ada@gpu7:~/work$ \n"
LINES = "".join(f"saved shard {number}\n" for number in range(30))
OF_MMENGINE = (
    "2026/11/21 10:12:01 - mmengine - INFO - Epoch(train) [10][100/109]  lr: 1e-05  eta: {eta}  time: 0.1826  "
    "loss: 0.2\n"
    "2026/11/21 10:12:03 - mmengine - INFO - Saving checkpoint at 10 epochs\n"
    "2026/11/21 10:12:05 - mmengine - INFO - Epoch(val) [10][7/7]    accuracy/top1: 90.8257\n"
)


@pytest.mark.parametrize(
    "text",
    [
        f"{EPOCHS}Test loss: 0.41\nTest accuracy: 0.70\n",
        f"{EPOCHS}Test loss: 0.41\nTest accuracy: 0.70\nTest loss: 0.41\nTest accuracy: 0.70\n",  # of two ranks
        f"{EPOCHS}test acc :: 0.390\n",
        f"{EPOCHS}Results saved to out/results.json\nTraining curve saved to out/curve.pdf\n",
        f"{EPOCHS}Wrote final metrics to out/result.json\n",
        f"{EPOCHS}Saved to: out/merged\nNext step: python export.py\n",
        f"{EPOCHS}모든 프로세스가 성공적으로 완료되었습니다.\n",
        f"{EPOCHS}训练已完成\n",
        f"{EPOCHS}Finished 10 runs.\nVal accuracy mean: 0.78\n",
        f"{EPOCHS}wandb: Program ended successfully.\nwandb: Find logs at: wandb/run-1/logs\n",
        f"{EPOCHS}Saving final epoch checkpoint.\n",
        f"{LINES}{PROMPT}",
        "=== Epoch 3/3 ===\nreward 0.4\nSaved checkpoint to out/epoch3.pt\n==end-of-epoch 3==\n",
        OF_MMENGINE.format(eta="0:00:01"),
    ],
)
def test_the_end_of_a_run(text: str, tmp_path: Path) -> None:
    log = read_text(text, tmp_path)
    assert log.finished is not None and not log.raised


@pytest.mark.parametrize(
    "text",
    [
        EPOCHS,
        "epoch: 0 loss: 0.9\nTest accuracy: 0.12\n",  # one epoch: the next ones can follow
        f"{BAR}Test accuracy: 0.12\n",
        "".join(f"epoch: {epoch} loss: 0.4\nTest accuracy: 0.{epoch}\n" for epoch in range(8)),  # in each epoch
        "".join(f"epoch: {epoch}\nmetrics saved to out/{epoch}.json\nlr 0.1\nlr 0.2\n" for epoch in range(8)),
        f"{EPOCHS}Test accuracy: 0.70\nError: no space left\n",
        f"{LINES}{raised('ValueError: x', '/home/u/train.py')}{PROMPT}",
        f"{LINES}Killed\n{PROMPT}",
        PROMPT,
        "=== Epoch 2/3 ===\nreward 0.4\n==end-of-epoch 2==\n",
        OF_MMENGINE.format(eta="0:00:21"),  # of another epoch
    ],
)
def test_no_end_of_a_run(text: str, tmp_path: Path) -> None:
    assert read_text(text, tmp_path).finished is None


STEPS = "[Rank 0] step={0}, skipped={1}, lr=[1e-05], mom=[(0.9, 0.99)]\n"
CPU_ONLY = (
    "2026-05-08 21:53:46,126 - __main__ - INFO - Starting finetuning process\n"
    "2026-05-08 21:53:48,163 - bitsandbytes.cextension - WARNING - The installed version of bitsandbytes was compiled "
    "without GPU support. 8-bit optimizers, 8-bit multiplication, and GPU quantization are unavailable.\n"
    "2026-05-08 21:54:22,533 - __main__ - INFO - Initial validation loss: 11.706221\n"
)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (STEPS.format(0, 0) * 9, None),  # no step was done: none was skipped
        ("".join(STEPS.format(step, step) for step in range(10, 100, 10)), "log_all_steps_skipped"),
        (CPU_ONLY, None),  # a warning of a package, after which the program goes on
        (f"{EPOCHS}Terminated\n", "log_asked_to_end"),
    ],
)
def test_what_is_no_failure(text: str, row: str | None, tmp_path: Path) -> None:
    found, _ = cause(read_text(text, tmp_path))
    assert found == row
