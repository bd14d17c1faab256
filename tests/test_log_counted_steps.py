"""Which lines count steps of the training: bars of datasets, options and references to code lines do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

MAPPED = "Applying chat template (num_proc=8):  52%|####  | 640/1200 [00:03<00:02, 200.00 examples/s]"
STEP = "Steps:  10%|#    | 10/100 [00:09<01:21,  1.10it/s, loss=0.4]"
KILLED = (
    "slurmstepd-n1: error: Detected 2 oom_kill events in StepId=25.batch. Some of the step tasks have been OOM Killed."
)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-06-10 08:48:31] iters=4 task=open:6",
        "08:48:31.917 [I] Found 0 of them in /data/steps (5785:manager.py:1701)\n"
        "08:48:32.917 [I] Found 0 of them in /data/steps (5801:manager.py:1701)",
        MAPPED,
        "label:  80%|####  | 4/5 [00:17<00:04,  4.18s/it]\nlabel: 100%|#####| 5/5 [00:20<00:00,  4.14s/it]",
    ],
    ids=("an option", "code lines", "a bar of datasets", "a bar of other work"),
)
def test_an_exception_did_not_follow_a_step(line: str, tmp_path: Path) -> None:
    raised = f"{frames((SCRIPT, 'main', 'check(batch)'))}ValueError: odd\n"
    assert "came after steps" not in explained(tmp_path, f"{line}\n{raised}")[2]
    assert "came after steps" in explained(tmp_path, f"{line}\n{STEP}\n{raised}")[2]


def test_a_number_without_a_total_counts_if_it_grew(tmp_path: Path) -> None:
    raised = f"{frames((SCRIPT, 'main', 'check(batch)'))}ValueError: odd\n"
    assert "came after steps" in explained(tmp_path, f"step 10 loss 0.4\nstep 20 loss 0.3\n{raised}")[2]
    assert "came after steps" not in explained(tmp_path, f"step 20 loss 0.4\n{raised}")[2]


def test_a_bar_that_shows_losses_counts_steps(tmp_path: Path) -> None:
    raised = f"{frames((SCRIPT, 'main', 'check(batch)'))}ValueError: odd\n"
    for bar in ("d: -37.755;gen: -2.093:  10%|#  | 2000/20000 [21:18<3:11:02,  1.57it/s]",
                "CelebA:  10%|#  | 2000/20000 [21:18<3:11:02,  1.57it/s, mse=0.031]"):  # fmt: skip
        assert "came after steps" in explained(tmp_path, f"{bar}\n{raised}")[2], bar


def test_a_bar_at_its_end_is_not_called_a_step(tmp_path: Path) -> None:
    raised = f"{frames((SCRIPT, 'main', 'check(batch)'))}ValueError: odd\n"
    said = explained(tmp_path, f"100%|####| 40/40 [00:04<00:00,  9.78it/s]\n{raised}")[2]
    assert "A bar had reached its end before it" in said and "came after steps" not in said, said
    assert "its end before it" not in explained(tmp_path, f" 50%|##  | 20/40 [00:04<00:04,  4.7it/s]\n{raised}")[2]


@pytest.mark.parametrize("line", [MAPPED, MAPPED.replace("Applying chat template (num_proc=8)", "Adding weights")])
def test_memory_ran_out_while_datasets_worked(line: str, tmp_path: Path) -> None:
    name, title, _ = explained(tmp_path, f"{line}\n{KILLED}\n")
    assert name == "log_slurm_out_of_memory" and "while the data was prepared" in title
    steps = "".join(f"Steps:  {n}%|#  | {n}/100 [00:09<01:21,  1.10it/s, loss=0.4]\n" for n in range(10, 14))
    assert "in the middle of training" in explained(tmp_path, f"{line}\n{steps}{KILLED}\n")[1]


def test_what_is_printed_behind_a_bar_is_not_of_its_step(tmp_path: Path) -> None:
    raised = f"{frames((SCRIPT, 'main', 'check(batch)'))}ValueError: odd\n"
    for rate in ("1.57it/s]", "3.20s/it]"):
        said = explained(tmp_path, f" 10%|#  | 20/200 [21:18<3:11, {rate}/opt/x/loss.py:7: UserWarning: old\n{raised}")[
            2
        ]
        assert f'{rate}"' in said and "UserWarning" not in said, said
