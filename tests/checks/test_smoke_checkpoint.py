"""checks/smoke/checkpoint.py"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import Checkpoint, Config, Model, Rank, Ranks, Step
from tests.checks.facts import Case, config, fails, rank, ranks, skips, table, warns, well

SAVED = Checkpoint("/data/out", True, True, 4_000_000, 9 << 30)
SEEN = Checkpoint("/data/out", True, True)
BLIND = Checkpoint("/data/out", True, False)
BOTH = ranks(rank(0, checkpoint=SAVED), rank(1, checkpoint=SEEN))


def failed(number: int, kind: str, **evidence: object) -> Rank:
    """A rank whose checkpoint went wrong."""
    steps = (Step("start", True), Step("checkpoint", False, "wrong"))
    return rank(number, kind=kind, evidence=evidence, steps=steps, error="wrong", failed_at=5.0 + number)


def unwritable(code: str, said: str, folder: str = "/data/out", free: int | None = None) -> Ranks:
    """Rank 0 could not save."""
    trouble = failed(0, "checkpoint_not_writable", folder=folder, errno=code, error=said, free_bytes=free)
    return ranks(trouble, rank(1), ended="died")


def far(strategy: str, *met: Checkpoint, nodes: int = 2) -> Ranks:
    """Two hosts, a rank on each."""
    return ranks(*(rank(n, checkpoint=c, host=f"node{n}") for n, c in enumerate(met)), strategy=strategy, nodes=nodes)


def trains(params: int, train: str = "full", **more: int) -> Config:
    """A config that says how large its model is."""
    return replace(config(), model=Model(params, train, "adamw", **more))


CASES = (
    # checkpoint_folder_too_small: 12 bytes a parameter with Adam; 9 GiB are free
    warns("checkpoint_folder_too_small", "checkpoint: 9.0 GiB free in /data/out, but one of this model needs 78 GiB",
        "df -h /data/out", ranks=BOTH, config=trains(7_000_000_000)),
    warns("checkpoint_folder_too_small", "needs 11 GiB", "another disk",
        ranks=BOTH, config=trains(70_000_000_000, "lora", trainable=1_000_000_000)),
    well("checkpoint_folder_too_small", "9.0 GiB free in /data/out, 1.1 GiB for a checkpoint",
        ranks=BOTH, config=trains(100_000_000)),
    well("checkpoint_folder_too_small", "for a checkpoint", ranks=BOTH, config=trains(7_000_000_000, "lora")),
    skips("checkpoint_folder_too_small", "does not contain", ranks=BOTH, config=config()),
    skips("checkpoint_folder_too_small", "was not tested", config=trains(7_000_000_000),
        ranks=ranks(rank(0, checkpoint=Checkpoint(".mgpu/runs/x", False, True, 4, 5)), rank(1))),
    # checkpoint_not_writable
    fails("checkpoint_not_writable",
        "rank 0 (cuda:0, pid 5000) cannot write a checkpoint to /data/out: No space left on device (ENOSPC; 3 MiB",
        "df -i /data/out", ranks=unwritable("ENOSPC", "No space left on device", free=3 << 20)),
    fails("checkpoint_not_writable", "Read-only file system (EROFS)", "mounted read-only",
        ranks=unwritable("EROFS", "Read-only file system")),
    fails("checkpoint_not_writable", "Permission denied (EACCES)", "ls -ld '/my data'",
        ranks=unwritable("EACCES", "Permission denied", "/my data")),
    fails("checkpoint_not_writable", "Disk quota exceeded", "quota is used up",
        ranks=unwritable("EDQUOT", "Disk quota exceeded")),
    fails("checkpoint_not_writable", "Input/output error (EIO)", "--checkpoint-dir ANOTHER_FOLDER",
        ranks=unwritable("EIO", "Input/output error")),
    well("checkpoint_not_writable", "4 MiB written to /data/out", ranks=BOTH),
    skips("checkpoint_not_writable", "no checkpoint was written"),
    # checkpoint_saved_by_several_ranks
    fails("checkpoint_saved_by_several_ranks", "every rank saves the checkpoint: rank 0 (cuda:0, pid 5000)",
        "is_main_process",
        ranks=ranks(failed(0, "saved_on_every_rank", writers=[0, 1], folder="/data/out"), rank(1), ended="died")),
    fails("checkpoint_saved_by_several_ranks", "ranks 0 and 4 all save the checkpoint", "mgpu doctor",
        ranks=ranks(failed(0, "saved_on_every_rank", writers=[0, 4]), rank(1), expected=8, ended="died")),
    well("checkpoint_saved_by_several_ranks", "one rank saved", ranks=BOTH),
    skips("checkpoint_saved_by_several_ranks", "no checkpoint"),
    # checkpoint_comes_back_altered
    fails("checkpoint_comes_back_altered",
        "rank 1 (cuda:1, pid 5001): the checkpoint in /data/out could not be restored as saved", "df -hT /data/out",
        ranks=ranks(rank(0), failed(1, "checkpoint_altered", folder="/data/out", how="other numbers"), ended="died")),
    well("checkpoint_comes_back_altered", "bitwise equal on 2 ranks", ranks=BOTH),
    skips("checkpoint_comes_back_altered", "no rank loaded", ranks=ranks(rank(0, checkpoint=BLIND))),
    # checkpoint_not_shared, sharded_checkpoint_not_shared
    warns("checkpoint_not_shared",
        "rank 1 (cuda:1, pid 5001) on node1 does not see the checkpoint that rank 0 wrote to /data/out",
        "--checkpoint-dir SHARED_FOLDER", ranks=far("ddp", SAVED, BLIND)),
    well("checkpoint_not_shared", "seen by 2 ranks", ranks=far("ddp", SAVED, SEEN)),
    skips("checkpoint_not_shared", "one host", ranks=far("ddp", SAVED, BLIND, nodes=1)),
    skips("checkpoint_not_shared", "was not given", ranks=far("ddp", Checkpoint(".mgpu/runs/x", False, False))),
    skips("checkpoint_not_shared", "no rank looked", ranks=far("ddp", Checkpoint("/data/out", True, None))),
    skips("checkpoint_not_shared", "sharded", ranks=far("fsdp", SAVED, BLIND)),
    fails("sharded_checkpoint_not_shared", "does not see the checkpoint that rank 0 wrote", "all hosts share",
        ranks=far("deepspeed", SAVED, BLIND)),
    well("sharded_checkpoint_not_shared", "seen by 2 ranks", ranks=far("fsdp", SAVED, SEEN)),
    skips("sharded_checkpoint_not_shared", "one file", ranks=far("ddp", SAVED, BLIND)),
    skips("sharded_checkpoint_not_shared", "one host", ranks=far("fsdp", SAVED, BLIND, nodes=1)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
