"""checks/log/lone_work.py, and what the reader takes for the work of one rank (synthetic logs)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import LoneWork
from tests.checks.facts import Case, fails, log, table, well

CASES = (
    fails("log_rank_worked_alone", "until the timeout of 600 s, while rank 0 saved a checkpoint", "SHARDED_STATE_DICT",
        log=log(lone_work=LoneWork("save", "Saving checkpoint to out/", "run.log", 4, 0, timeout_s=600.0))),
    fails("log_rank_worked_alone", "while one rank, probably rank 0, prepared the data", "before the run",
        log=log(lone_work=LoneWork("data", "Map: 40%|", "run.log", 4))),
    fails("log_rank_worked_alone", "ranks waited in save_model() until the timeout", "SHARDED_STATE_DICT",
        log=log(lone_work=LoneWork("save", "in save_model", "run.log", 4, function="save_model"))),
    well("log_rank_worked_alone", "no work of one rank before a timeout in 60 lines", log=log()),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


NCCL = (
    "[rank{rank}]:[E1121 10:12:01.408123456 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=80, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600005 milliseconds before timing out.\n"
)
GLOO = "[rank2]: RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"
FRAME = '[rank2]:   File "/venv/lib/python3.12/site-packages/kit/train.py", line 7, in {}\n'
STEP = "step 40 loss 0.31\n"


def work_of(text: str, tmp_path: Path) -> LoneWork | None:
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    return read.read_logs([path]).lone_work


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Saving checkpoint. This takes a while ...\n", "save"),
        ("Saving model checkpoint to out/checkpoint-500\nConfiguration saved in out/config.json\n", "save"),
        ("Retrieving optimizer state dict...\nGetting optimizer state dict took 118.28 secs\n", "save"),
        ("[2026-11-21 10:02:01,408] [INFO] [x.py:3:save] [Torch] Saving out/zero_pp_rank_0_states.pt...\n", "save"),
        ("Map:  12%|#   | 10/100 [00:10<01:00,  1.0 examples/s]\rMap:  45%|##  | 45/100 [05:00<05:00,  1.0 ex/s]\n",
         "data"),
        ("Running tokenizer on dataset (num_proc=8):  45%|##  | 45/100 [05:00<05:00,  4.0 examples/s]\n", "data"),
        ("Tokenizing the training set ...\n", "data"), ("[rank0]: building train datasets ...\n", "data"),
        ("Fetching 4 files:  25%|##   | 1/4 [05:00<15:00, 300.0s/it]\n", "download"),
        ("Loading checkpoint shards:  50%|##   | 2/4 [05:00<05:00, 150.0s/it]\n", "load"),
        ("***** Running Evaluation *****\n", "evaluate"), ("Evaluating:  9%|#  | 9/99 [05:00<50:00, 30s/it]\n",
        "evaluate"),
        # It was finished, or the run trained again.
        ("Map: 100%|####| 100/100 [00:10<00:00,  1.0 examples/s]\n", None), (f"Saving checkpoint\n{STEP}", None),
        ("Saving checkpoint to out/\nCheckpoint saved\n", None), ("Saving checkpoint took 12 s\n", None),
        ("save_strategy=steps, saving checkpoints every 500 steps\n", None), (STEP, None), ("", None),
    ],
)  # fmt: skip
def test_the_last_work_before_a_timeout(text: str, kind: str | None, tmp_path: Path) -> None:
    found = work_of(STEP + text + NCCL.format(rank=1), tmp_path)
    assert (found and found.kind) == kind
    assert found is None or found.timeout_s == 600.0
    assert work_of(STEP + text + STEP, tmp_path) is None  # without a timeout it is normal work
    assert work_of(STEP + text + NCCL.format(rank=1) + NCCL.format(rank=0), tmp_path) is None  # rank 0 waits too


@pytest.mark.parametrize(
    ("functions", "kind"),
    [
        (("main", "train", "save_checkpoint", "barrier", "wrapper"), "save"), (("main", "_evaluate", "barrier"),
        "evaluate"),
        (("main", "main_process_first", "wait_for_everyone"), "data"), (("main", "backward", "all_reduce"), None),
        (("main", "_maybe_log_save_evaluate", "_nested_gather"), None), (("main", "checkpoint", "forward"), None),
    ],
)  # fmt: skip
def test_where_the_waiting_ranks_stand(functions: tuple[str, ...], kind: str | None, tmp_path: Path) -> None:
    text = "[rank2]: Traceback (most recent call last):\n" + "".join(map(FRAME.format, functions)) + GLOO
    found = work_of(STEP + text, tmp_path)
    assert (found and found.kind) == kind
    assert found is None or (found.timeout_s, found.function) == (1800.0, found.text.rpartition(" ")[2])


def test_the_file_of_the_rank_that_did_not_wait(tmp_path: Path) -> None:
    for rank, text in enumerate(("Tokenizing the corpus...\n", NCCL.format(rank=1), NCCL.format(rank=2))):
        (tmp_path / f"rank{rank}.log").write_text(STEP + text)
    found = root_cause.find_cause(read.read_logs(sorted(tmp_path.glob("*.log"))), None)
    assert found.first is not None and found.first.id == "log_rank_worked_alone"
    assert found.first.outcome.problem is not None
    assert "of 600 s, while rank 0 prepared the data" in found.first.outcome.problem.title


def test_an_exception_of_that_rank_is_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    full = "[rank0]: OSError: [Errno 28] No space left on device\n"
    path.write_text(f"{STEP}Saving checkpoint to out/\n[rank0]: Traceback (most recent call last):\n"
        f'[rank0]:   File "/home/u/train.py", line 7, in save\n{full}' + NCCL.format(rank=1))  # fmt: skip
    found = root_cause.find_cause(read.read_logs([path]), None)
    assert found.first is not None and found.first.role == "root"


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: Socket Timeout", "RuntimeError: [Rank 1] Caught collective operation timeout: BARRIER",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: "
        "store_based_barrier_key:2 (world_size=2, worker_count=1, timeout=0:30:00)",
        "torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /default_pg/0//key",
    ],
)  # fmt: skip
def test_every_wording_of_a_timeout_counts(said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"Map (num_proc=8):  35%|###5      | 120/340 [29:50<54:41, 67.0 examples/s]\n[rank1]: {said}\n")
    found = root_cause.find_cause(read.read_logs([path]), None)
    assert found.first is not None and found.first.id == "log_rank_worked_alone"
