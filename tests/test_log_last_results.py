"""Ends of runs whose programs print no word of it: a result after all epochs, no time left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_courses import cause, read_text

EPOCHS = "".join(f"epoch: {epoch} loss: 0.{9 - epoch}\n" for epoch in range(4))
OF_TOTAL = "".join(f"Epoch {epoch}/100: train loss 0.{9 - epoch}\n" for epoch in range(1, 8))
LINES = "".join(f"saved shard {number}\n" for number in range(30))
PROMPT = "(env) ada@gpu7:~/work$ \n"
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
        f"{EPOCHS}训练已完成\n",
        f"{EPOCHS}Finished all 10 runs.\nVal accuracy mean: 0.78\n",
        f"{EPOCHS}wandb: Program ended successfully.\nwandb: Find logs at: wandb/run-1/logs\n",
        "=== Epoch 3/3 ===\nreward 0.4\nSaved checkpoint to out/epoch3.pt\n==end-of-epoch 3==\n",
        OF_MMENGINE.format(eta="0:00:01"),
        "max_epochs = 10\n" + OF_MMENGINE.format(eta="0:00:21"),
    ],
)
def test_the_end_of_a_run(text: str, tmp_path: Path) -> None:
    log = read_text(text, tmp_path)
    assert log.finished is not None and not log.raised


EACH = "".join(f"step {step} of this epoch has loss 0.4\n" * 9 for step in range(60))


@pytest.mark.parametrize(
    "text",
    [
        EPOCHS,
        "epoch: 0 loss: 0.9\nTest accuracy: 0.12\n",  # one epoch: the next ones can follow
        "Args: epochs: 100 lr: 0.1\nepoch: 1 loss: 0.9\nTest accuracy: 0.12\n",
        f"{OF_TOTAL}Test accuracy: 0.12\n",  # the seventh of a hundred
        f"{OF_TOTAL}Saved predictions to out/epoch7.json\n",
        f"max_steps = 9000\n{''.join(f'step {step} loss 0.4' + chr(10) for step in range(9))}test loss: 0.44\n",
        f"{EACH}Test accuracy: 0.5\n{EACH}Test accuracy: 0.6\n",  # of each epoch, far above the next
        "".join(f"epoch: {epoch} loss: 0.4\nTest accuracy: 0.{epoch}\n" for epoch in range(8)),
        "".join(f"epoch: {epoch}\nmetrics saved to out/{epoch}.json\nlr 0.1\nlr 0.2\n" for epoch in range(8)),
        f"{EPOCHS}Test accuracy: 0.70\nError: no space left\n",
        f"{EPOCHS}Time limit reached. Saved history to out/h.json\n",
        f"{EPOCHS}Preempted: summary saved to disk\n",
        f"{EPOCHS}训练集加载完成\n",
        f"{EPOCHS}Finished 5 epochs\n",
        f"{EPOCHS}Saved final metrics of fold 1 of 5\n",
        f"{EPOCHS}Next step: 11\n",
        f"{LINES}{PROMPT}",  # of whatever shell
        "=== Epoch 2/3 ===\nreward 0.4\n==end-of-epoch 2==\n",
        "Fold 1 Epoch 10/10\nEnd of epoch 10\nFold 2 of 5 begins\n",
        OF_MMENGINE.format(eta="0:00:21"),  # of another epoch
    ],
)
def test_no_end_of_a_run(text: str, tmp_path: Path) -> None:
    assert read_text(text, tmp_path).finished is None


@pytest.mark.parametrize(
    ("error", "row"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.\nMemory report saved to oom.txt\n", "log_gpu_memory_full"),
        ("cannot write checkpoint: No space left on device\nhistory saved\n", "log_disk_full"),
    ],
)
def test_a_result_does_not_show_that_an_error_was_survived(error: str, row: str, tmp_path: Path) -> None:
    assert cause(read_text(f"{EPOCHS}{error}", tmp_path))[0] == row


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
