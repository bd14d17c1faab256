"""checks/log/diverged.py: what the run did before its ranks waited, in synthetic logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.log.diverged import CASES as REASONS
from mgpu import signature
from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import Circumstance, LastStep, Log, SignatureMatch, StalledCollective
from tests.checks.facts import Case, fails, log, table, well

WAIT = SignatureMatch("log_collective_timed_out", "[Rank 1] Watchdog caught ...", "run.log", 50)


def waited(*names: str, step: LastStep | None = None, near: int = 45) -> Log:
    shows = tuple(Circumstance(name, "x", "run.log", near, near) for name in names)
    stall = StalledCollective(1, 80, "_ALLGATHER_BASE", 600.0)
    return log(seen=(WAIT,), shows=shows, last_step=step, stalled=(stall,))


def step(at: float, of: float | None, *, inner: bool = False, epoch: float | None = None) -> LastStep:
    return LastStep("step", "run.log", 40, at, of, inner, epoch)


CASES = (
    fails("log_ranks_diverged", "at the end of an epoch", "drop_last", log=waited(step=step(411, 412))),
    fails("log_ranks_diverged", "at the end of an epoch", "drop_last", log=waited(step=step(412, 900, epoch=1.99))),
    fails("log_ranks_diverged", "during an evaluation", "synced_gpus", log=waited(step=step(3, 9, inner=True))),
    fails("log_ranks_diverged", "different experts", "set_z3_leaf_modules",
        log=waited("zero_three", "expert_model", "multimodal_model", step=step(3, 900))),
    well("log_ranks_diverged", "no rank waited", log=log()),
    well("log_ranks_diverged", "nothing shows why", log=waited()),
    well("log_ranks_diverged", "nothing shows why", log=waited("expert_model", step=step(3, 900))),
    well("log_ranks_diverged", "nothing shows why", log=waited(step=step(412, None))),
    well("log_ranks_diverged", "nothing shows why", log=waited(step=step(2, 9))),
    well("log_ranks_diverged", "nothing shows why",  # it trained again after the line
        log=waited("training_finished", step=step(3, 900), near=30)),
    well("log_ranks_diverged", "nothing shows why",  # too long before
        log=log(seen=(SignatureMatch("log_gloo_timed_out", "Timed out", "run.log", 500),),
                shows=(Circumstance("batch_skipped", "x", "run.log", 45, 45),))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.title[:70])
def test_a_reason_is_the_first_cause_of_its_own_sample(reason: signature.Case, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(reason.sample + "\n", "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.id == "log_ranks_diverged", first
    assert first.outcome.problem is not None and first.outcome.problem.cause == reason.why


@pytest.mark.parametrize(
    "line",
    [
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536", "Skipping the first 3 batches",
        "EarlyStopping callback with patience=5", "rank 1 done loading", "Rank 0 finished initialization",
        "Training finished for epoch 3", "Finished training epoch 3", "skipped steps: 0",
    ],
)  # fmt: skip
def test_normal_lines_show_nothing(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"step 40/900 loss 0.3\n{line}\n{REASONS[0].sample.splitlines()[-1]}\n", "utf-8")
    found = read.read_logs([path])
    assert not {one.name for one in found.shows} & {
        "batch_skipped", "stopped_early", "rank_finished", "training_finished",
    }  # fmt: skip


def test_the_message_can_follow_the_bar_in_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    stall = REASONS[0].sample.splitlines()[-1]
    path.write_text(f"Evaluating: 99%|##| 497/499 [18:29:58<05:20, 160.1s/it][rank1]:[E x.cpp:4] {stall}\n", "utf-8")
    last = read.read_logs([path]).last_step
    assert last is not None and (last.inner, last.at, last.line) == (True, 497, 1)


@pytest.mark.parametrize(
    ("text", "inner", "at"),
    [
        (" 25%|##| 103/412 [08:11<24:35,  4.77s/it]\n  0%|  | 0/21 [00:00<?, ?it/s]\n", True, 0),
        (" 25%|##| 103/412 [08:11<24:35,  4.77s/it]\n 26%|##| 104/412 [08:15<24:35,  4.77s/it]\n", False, 104),
        ("100%|##| 412/412 [08:11<00:00,  4.77s/it]\n  0%|  | 0/21 [00:00<?, ?it/s]\n", False, 0),
        ("Steps:  3%|#| 100/3000 [22:18<10:41:20]\nValidation:  0%|  | 0/64 [00:00<?, ?it/s]\n", True, 0),
    ],
)
def test_a_bar_within_the_training(text: str, inner: bool, at: float, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(text + REASONS[0].sample.splitlines()[-1] + "\n", "utf-8")
    last = read.read_logs([path]).last_step
    assert last is not None and (last.inner, last.at) == (inner, at)
