"""checks/rehearsal"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import (
    Batch,
    Call,
    KeptFile,
    Loss,
    RehearsedRank,
    SavedCheckpoint,
    ScriptCause,
    Wrapper,
    WrittenFile,
)
from tests.checks.facts import (
    Case,
    batches,
    checksum,
    fails,
    informs,
    rehearsal,
    rehearsed_loader,
    rehearsed_optimizer,
    rehearsed_rank,
    rehearsed_step,
    skips,
    table,
    warns,
    well,
)

FSDP = (Wrapper("FSDP2", 2),)
LOCKED = WrittenFile("/data/tokens.arrow", "write", "/run/train.py:44", lock="/data/tokens.arrow.lock")
DDP = (Wrapper("DDP", 2, 2),)
CAUSE = ScriptCause(
    "matrix_shapes_differ", "mat1 and mat2 do not fit", "A layer has other sizes.", "Compare the shapes."
)
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection reset by peer"


def two(first: dict[str, Any] | None = None, second: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A rehearsal on two ranks with changes of each."""
    return rehearsal(rehearsed_rank(0, **(first or {})), rehearsed_rank(1, **(second or {})), **changes)


def stepping(*optimizers: Any, **changes: Any) -> Any:
    """Ranks with one optimizer each."""
    return rehearsal(*(rehearsed_rank(n, optimizers=(one,), **changes) for n, one in enumerate(optimizers)))


def reading(*loaders: Any, **changes: Any) -> Any:
    """Ranks with one loader each."""
    return rehearsal(*(rehearsed_rank(number, one) for number, one in enumerate(loaders)), **changes)


def late(*values: float, **changes: Any) -> Any:
    """An optimizer with one accumulated step."""
    return rehearsed_optimizer(rehearsed_step(1, *values, batches=2, **changes))


def drawing(*counts: int, trained: int = 1) -> Any:
    """An optimizer before whose steps a loader had delivered so many batches."""
    steps = (rehearsed_step(n, of_pass=0, drawn=count, batches=trained) for n, count in enumerate(counts, 1))
    return rehearsed_optimizer(*steps)


def wrote(how: str, *paths: str) -> dict[str, Any]:
    return {"files": tuple(WrittenFile(path, how, "/run/train.py:44") for path in paths)}


KEPT = KeptFile("/run/ckpt/best.pt", "/run/train.py:44")
TOO_LARGE = KeptFile("/run/best.pt", "/run/train.py:44", "mgpu copies at most 8 GiB", True, 14 << 30)
ALONE = {"world": None, "wrappers": ()}
OTHER = rehearsed_optimizer(rehearsed_step(1), rehearsed_step(2, 0.7, 0.25))
SECOND = (*batches(10), *batches(10, 4, epoch=1))
EXTRA: tuple[Call, ...] = (Call("all_reduce", "2", "float32", 2), Call("barrier", ranks=2, line="/run/train.py:40"))
KILLED = RehearsedRank(1, 6001, 2, 2, "gloo", calls=EXTRA, inside_call=True)
CASES = (
    # script_failed
    fails("script_failed", "the script fails on rank 1 (train.py:30): mat1 and mat2 do not fit", "Compare the shapes.",
        rehearsal=two(None, {"raised": "RuntimeError: mat1", "raised_line": "/run/train.py:30"}, ended="failed",
            cause=CAUSE)),
    fails("script_failed", "the script fails on rank 0 (train.py:30): ValueError: no",
        "--log .mgpu/runs/smoke-1/script.log",
        rehearsal=two({"raised": "ValueError: no", "raised_line": "/run/train.py:30"}, ended="failed")),
    fails("script_failed", "the script fails: exit code 9", "doctor", rehearsal=two(ended="failed", exit_code=9)),
    well("script_failed", "no error"),
    # script_stalls
    fails("script_stalls", "no progress after 4 optimizer steps: rank 0: 4 steps", "same collectives",
        rehearsal=two(ended="stalled")),
    fails("script_stalls", "rank 0: 4 steps, at train.py:30; rank 1: 4 steps, at train.py:26", "same collectives",
        rehearsal=two({"stopped_line": "/run/train.py:30"}, {"stopped_line": "/run/train.py:26"}, ended="stalled")),
    fails("script_stalls", "before its first optimizer step: rank 1 is stopped (SIGSTOP)", "Continue it",
        rehearsal=two({"optimizers": ()}, {"optimizers": ()}, ended="stalled", cause=ScriptCause(
            "hang_rank_stopped", "rank 1 is stopped (SIGSTOP)", "Rank 0 waits.", "Continue it.", 1))),
    well("script_stalls", "no stall"),
    # script_never_stepped: nothing is proved
    warns("script_never_stepped", "no rank made an optimizer step before the script ended", "--timeout",
        rehearsal=two({"optimizers": ()}, {"optimizers": ()}, ended="finished")),
    warns("script_never_stepped", "within 300 s", "--timeout", rehearsal=rehearsal(ended="timed_out", ranks=())),
    well("script_never_stepped", "4 of 4 steps"),
    skips("script_never_stepped", "did not run", rehearsal=two({"optimizers": ()}, {"optimizers": ()}, ended="failed")),
    # rank_steps_differ
    fails("rank_steps_differ", "rank 1 made 3 optimizer steps, rank 0 made 4 (train.py:31)", "all_reduce",
        rehearsal=stepping(rehearsed_optimizer(), rehearsed_optimizer(*map(rehearsed_step, (1, 2, 3))))),
    well("rank_steps_differ", "the same number on every rank"),
    skips("rank_steps_differ", "did not run to its last step",  # the run was cut off in the middle of a step
        rehearsal=two(None, {"optimizers": (rehearsed_optimizer(rehearsed_step(1)),), "reached": False, "ended": False},
            ended="timed_out")),
    skips("rank_steps_differ", "one rank", rehearsal=rehearsal(rehearsed_rank(0), expected=1)),
    fails("rank_steps_differ", "the script of rank 1 ends after 4 optimizer steps, and rank 0 goes on", "all_reduce",
        rehearsal=two({"raised": LOST, "reached": False}, {"reached": False}, ended="failed")),
    skips("rank_steps_differ", "did not run to its last step",  # rank 0 failed by itself
        rehearsal=two({"raised": "ValueError: no", "reached": False}, {"reached": False}, ended="failed")),
    # learning_rates_differ
    fails("learning_rates_differ", "step 2 has the learning rate 0.1 on rank 0 and 0.05 on rank 1 (train.py:31)",
        "every rank", rehearsal=stepping(*(rehearsed_optimizer(rehearsed_step(1), rehearsed_step(2, rate=rate))
            for rate in (0.1, 0.05)))),
    well("learning_rates_differ", "equal learning rates",
        rehearsal=stepping(*(rehearsed_optimizer(rehearsed_step(1, rate=0.1)) for _ in range(2)))),
    skips("learning_rates_differ", "no learning rate",
        rehearsal=stepping(*(rehearsed_optimizer(rehearsed_step(1, rate=None)) for _ in range(2)))),
    # optimizer_without_gradients
    fails("optimizer_without_gradients", "SGD makes 1 step on rank 0, and none of its 2 parameters has a gradient",
        "after the model is wrapped", rehearsal=stepping(*(rehearsed_optimizer(
            replace(rehearsed_step(1), gradients=(None, None))) for _ in range(2)))),
    well("optimizer_without_gradients", "gradients in 8 steps"),
    skips("optimizer_without_gradients", "DeepSpeed keeps",
        rehearsal=two(*({"wrappers": (Wrapper("DeepSpeed", 2),)} for _ in range(2)))),
    # batch_norm_of_few_samples
    informs("batch_norm_of_few_samples", "3 BatchNorm layers over 4 samples on each rank", "SyncBatchNorm",
        rehearsal=two(*({"wrappers": (Wrapper("DDP", 2, 2, batch_norms=3),),
                         "loaders": (rehearsed_loader(batch=4, batches=()),)} for _ in range(2)))),
    well("batch_norm_of_few_samples", "no BatchNorm"),
    well("batch_norm_of_few_samples", "BatchNorm over 64 samples",
        rehearsal=two(*({"wrappers": (Wrapper("DDP", 2, 2, batch_norms=3),),
                         "loaders": (rehearsed_loader(batch=64, batches=()),)} for _ in range(2)))),
    well("batch_norm_of_few_samples", "BatchNorm over 16 samples",  # split_batches: 32 are those of both ranks
        rehearsal=two(*({"wrappers": (Wrapper("DDP", 2, 2, batch_norms=3),),
                         "loaders": (rehearsed_loader(batch=32, batches=(Batch(0, samples=16), Batch(1, samples=9))),)}
            for _ in range(2)))),
    # same_file_appended
    informs("same_file_appended", "ranks 0 and 1 both append to /run/all.log (train.py:44)", "is_main_process",
        rehearsal=two(*(wrote("append", "/run/all.log") for _ in range(2)))),
    well("same_file_appended", "no file appended to"),
    well("same_file_appended", "2 files",
        rehearsal=two(wrote("append", "/run/0.log"), wrote("append", "/run/1.log"))),
    # separate_trainings
    fails("separate_trainings", "2 ranks train separately: they start no process group", "accelerator.prepare",
        rehearsal=two(ALONE, ALONE)),
    fails("separate_trainings", "they start a process group of one rank each", "--script",
        rehearsal=two({"world": 1}, {"world": 1})),
    fails("separate_trainings", "rank 1 trains separately", "under no condition", rehearsal=two(None, ALONE)),
    fails("separate_trainings", "nothing wraps the model, and their gradients differ (train.py:31)", "--script",
        rehearsal=stepping(rehearsed_optimizer(), OTHER, wrappers=())),
    well("separate_trainings", "2 ranks in one group (gloo, DDP)"),
    well("separate_trainings", "2 ranks in one group (gloo)",  # averaged by hand
        rehearsal=two({"wrappers": ()}, {"wrappers": ()})),
    skips("separate_trainings", "horovod exchanges",
        rehearsal=two({**ALONE, "other_library": "horovod"}, {**ALONE, "other_library": "horovod"})),
    skips("separate_trainings", "the optimizer exchanges data itself",
        rehearsal=stepping(rehearsed_optimizer(), OTHER, wrappers=(), optimizer_exchanges=True)),
    # collectives_differ
    fails("collectives_differ",
        "rank 0 calls barrier (train.py:40), rank 1 does not, and is at train.py:31", "every rank",
        rehearsal=two({"calls": EXTRA})),
    fails("collectives_differ", "rank 0 calls all_reduce of 2 float32, rank 1 calls all_reduce of 3 float32", "order",
        rehearsal=two(None, {"calls": (Call("all_reduce", "3", "float32", 2),)})),
    fails("collectives_differ", "rank 1 calls barrier (train.py:40), rank 0 does not", "order",
        rehearsal=rehearsal(rehearsed_rank(0, raised=LOST), KILLED, ended="failed")),
    well("collectives_differ", "1 collective of the script"),
    well("collectives_differ", "no explicit", rehearsal=two({"calls": ()}, {"calls": ()})),
    skips("collectives_differ", "no optimizer step",
        rehearsal=two({"calls": (), "optimizers": ()}, {"calls": (), "optimizers": ()})),
    well("collectives_differ", "2 collectives",  # rank 1 failed before its call
        rehearsal=two({"calls": EXTRA}, {"raised": "ValueError: no"}, ended="failed")),
    well("collectives_differ", "2 collectives",  # of a group of one rank
        rehearsal=two({"calls": (*EXTRA, Call("all_reduce", ranks=1))}, {"calls": EXTRA})),
    fails("collectives_differ", "rank 0 calls broadcast with src=0, rank 1 calls broadcast with src=1", "order",
        rehearsal=two(*({"calls": (Call("broadcast", ranks=2, detail=f"src={n}"),)} for n in (0, 1)))),
    well("collectives_differ", "2 collectives",  # rank 1 is stopped, and would have called it
        rehearsal=two({"calls": EXTRA}, ended="stalled", cause=ScriptCause("hang_rank_stopped", "rank 1 is stopped"))),
    # different_start
    fails("different_start", "another order on rank 1: bias is where rank 0 has weight", "one order",
        rehearsal=stepping(rehearsed_optimizer(), replace(rehearsed_optimizer(), names=("bias", "weight")))),
    fails("different_start", "bias (2) differs between ranks 0 and 1 before the first step (train.py:31)", "one seed",
        rehearsal=stepping(rehearsed_optimizer(), rehearsed_optimizer(start=(checksum(1.0), checksum(0.6))))),
    fails("different_start", "the number of parameters differs", "one seed",
        rehearsal=stepping(rehearsed_optimizer(), rehearsed_optimizer(start=(checksum(1.0),)))),
    well("different_start", "2 parameters equal at the start"),
    skips("different_start", "FSDP2 shards parameters", rehearsal=two({"wrappers": FSDP}, {"wrappers": FSDP})),
    # gradients_differ_between_ranks
    fails("gradients_differ_between_ranks",
        "the gradient of weight (2x8) differs between ranks 0 and 1 in step 2 (train.py:31)",
        "the wrapped model itself", rehearsal=stepping(rehearsed_optimizer(), OTHER)),
    well("gradients_differ_between_ranks", "equal gradients in 4 steps"),
    well("gradients_differ_between_ranks", "equal gradients in 1 step",  # rounded differently
        rehearsal=stepping(*(rehearsed_optimizer(rehearsed_step(1, value)) for value in (0.5, 0.5000001)))),
    well("gradients_differ_between_ranks", "all steps accumulate", rehearsal=stepping(late(0.5), late(0.5))),
    skips("gradients_differ_between_ranks", "divides its ranks",
        rehearsal=two({"subgroups": (2,), "world": 4}, {"world": 4})),
    skips("gradients_differ_between_ranks", "exchanges data itself",
        rehearsal=stepping(rehearsed_optimizer(), OTHER, optimizer_exchanges=True)),
    # gradients_differ_in_accumulation
    fails("gradients_differ_in_accumulation", "the gradient of weight (2x8) differs between ranks 0 and 1 in step 1",
        "accelerator.accumulate", rehearsal=stepping(late(0.5), late(0.7, unsynced=True))),
    well("gradients_differ_in_accumulation", "in 1 step of accumulation", rehearsal=stepping(late(0.5), late(0.5))),
    skips("gradients_differ_in_accumulation", "no accumulation"),
    skips("gradients_differ_in_accumulation", "average parameters from time to time",
        rehearsal=stepping(late(0.5), late(0.7), averages_parameters="LocalSGD")),
    # same_data
    fails("same_data", "ranks 0 and 1 get the same 7 batches of Images (train.py:28)", "DistributedSampler",
        rehearsal=reading(rehearsed_loader(), rehearsed_loader())),
    well("same_data", "different batches on all ranks (7 compared)"),
    skips("same_data", "all batches of a rank are equal",
        rehearsal=reading(*(rehearsed_loader(batches=batches(3, 1) * 4) for _ in range(2)))),
    skips("same_data", "no DataLoader delivered training batches",
        rehearsal=reading(*(rehearsed_loader(trains=False) for _ in range(2)))),
    skips("same_data", "tensor parallelism",
        rehearsal=stepping(*(rehearsed_optimizer(sharded=2) for _ in range(2)), wrappers=())),
    skips("same_data", "may share data", rehearsal=two({"wrappers": (Wrapper("DDP", 2, 1),)})),
    # data_repeated
    warns("data_repeated", "4 of the 8 samples of rank 1 were also on rank 0 (Images) (train.py:28)", "prepare",
        rehearsal=reading(rehearsed_loader(), rehearsed_loader(2))),
    well("data_repeated", "no sample on two ranks (8 samples compared)"),
    well("data_repeated", "no sample on two ranks",  # the last one, which pads the epoch
        rehearsal=reading(rehearsed_loader(), rehearsed_loader(3))),
    skips("data_repeated", "no samples to compare",
        rehearsal=reading(*(rehearsed_loader(sampler="WeightedRandomSampler") for _ in range(2)))),
    # data_not_covered
    warns("data_not_covered", "the ranks read 16 of the 32 samples of Images in an epoch (train.py:28)", "replicas",
        rehearsal=reading(*(rehearsed_loader(first, samples=32) for first in (0, 10)))),
    well("data_not_covered", "16 samples in an epoch"),
    skips("data_not_covered", "no whole epoch",
        rehearsal=reading(*(rehearsed_loader(first, delivered=()) for first in (0, 10)))),
    # batches_differ
    fails("batches_differ", "rank 1 has 5 batches of Images, rank 0 has 4 (train.py:28)", "drop_last",
        rehearsal=reading(rehearsed_loader(), rehearsed_loader(10, length=5))),
    fails("batches_differ", "rank 1 has 5 batches of Images, rank 0 has 4", "drop_last",
        rehearsal=reading(*(rehearsed_loader(n, length=None, delivered=(4 + n // 10,)) for n in (0, 10)))),
    well("batches_differ", "4 batches on every rank"),
    skips("batches_differ", "known length",
        rehearsal=reading(*(rehearsed_loader(n, length=None, delivered=()) for n in (0, 10)))),
    fails("batches_differ", "rank 0 has 5 batches of Images, rank 1 has 4", "drop_last",  # rank 0 waits in its fifth
        rehearsal=reading(rehearsed_loader(length=None, delivered=(), batches=batches(5, 5)),
            rehearsed_loader(10, length=None, delivered=(4,)))),
    skips("batches_differ", "Join", rehearsal=two(*({"joins_uneven": True} for _ in range(2)))),
    # batches_skipped
    fails("batches_skipped", "for step 3, rank 1 reads 2 batches and rank 0 reads 1", "all_reduce",
        rehearsal=stepping(drawing(1, 2, 3, 4), drawing(1, 2, 4, 5))),
    well("batches_skipped", "as many batches in 3 steps", rehearsal=stepping(drawing(1, 2, 3, 4), drawing(5, 6, 7, 8))),
    well("batches_skipped", "in 2 steps", rehearsal=stepping(drawing(1, 2, 3, 3), drawing(1, 3, 5, 7, trained=2))),
    skips("batches_skipped", "one pass", rehearsal=stepping(drawing(1, 1), drawing(1, 1))),
    skips("batches_skipped", "Join", rehearsal=two(*({"joins_uneven": True} for _ in range(2)))),
    # sampler_without_set_epoch
    warns("sampler_without_set_epoch", "epoch 2 has the same batches as epoch 1 on rank 0", "set_epoch(epoch)",
        rehearsal=reading(*(rehearsed_loader(batches=SECOND, epochs=(0, 0)) for _ in range(2)))),
    well("sampler_without_set_epoch", "another order"),
    skips("sampler_without_set_epoch", "no second epoch",  # a look at the data before set_epoch
        rehearsal=reading(*(rehearsed_loader(batches=(*batches(n, 1), *batches(n, 4, epoch=1)), epochs=(0, 0))
            for n in (0, 10)))),
    skips("sampler_without_set_epoch", "no second epoch",
        rehearsal=reading(*(rehearsed_loader(n, epochs=(0,)) for n in (0, 10)))),
    # same_random_state
    informs("same_random_state", "ranks 0 and 1 start with one random state", "device_specific",
        rehearsal=two({"random_states": {"torch": "a"}}, {"random_states": {"torch": "a"}})),
    well("same_random_state", "different random states"),
    skips("same_random_state", "no dropout",
        rehearsal=two(*({"random_states": {"torch": "a"}, "wrappers": DDP} for _ in range(2)))),
    # loss_not_finite, loss_far_apart
    fails("loss_not_finite", "the loss of rank 1 is nan in backward pass 2 (train.py:30)", "learning rate",
        rehearsal=two(None, {"losses": (Loss(0.7), Loss(None, "nan", "/run/train.py:30"))})),
    well("loss_not_finite", "8 losses finite"),
    skips("loss_not_finite", "no loss", rehearsal=two({"losses": ()}, {"losses": ()})),
    warns("loss_far_apart", "the median loss is 70 on rank 1 and 0.7 on rank 0", "compute the loss",
        rehearsal=two(None, {"losses": (Loss(70.0), Loss(70.0))})),
    well("loss_far_apart", "losses from 0.7 to 0.7"),
    skips("loss_far_apart", "fewer than two ranks", rehearsal=two({"losses": ()})),
    # same_file_written
    warns("same_file_written", "ranks 0 and 1 both write /run/out/model.pt (train.py:44)", "is_main_process",
        rehearsal=two(wrote("save", "/run/out/model.pt"), wrote("save", "/run/out/model.pt"))),
    well("same_file_written", "no files written"),
    well("same_file_written", "2 files, each written by one rank",
        rehearsal=two(wrote("write", "/run/0.csv"), wrote("write", "/run/1.csv"))),
    well("same_file_written", "no files", rehearsal=two(*(wrote("append", "/run/all.log") for _ in range(2)))),
    well("same_file_written", "no files", rehearsal=two(*(wrote("write", "/home/me/.cache/x") for _ in range(2)))),
    well("same_file_written", "no files",
        rehearsal=two(*({"files": (WrittenFile("/hf/modules/x", "write", None, True),)} for _ in range(2)))),
    well("same_file_written", "1 file, no two ranks", rehearsal=two(*({"files": (LOCKED,)} for _ in range(2)))),
    warns("same_file_written", "both write /data/tokens.arrow", "is_main_process",  # one of them has no lock
        rehearsal=two({"files": (LOCKED,)}, {"files": (replace(LOCKED, lock=None),)})),
    well("same_file_written", "1 file, no two ranks",
        rehearsal=two(*(wrote("rename", "/data/refs/main") for _ in range(2)))),
    well("same_file_written", "no files", rehearsal=two(*(wrote("write", "/hub/CACHEDIR.TAG") for _ in range(2)))),
    # checkpoint_unreadable
    fails("checkpoint_unreadable", "/run/model.pt cannot be read on rank 0: RuntimeError: cut", "one rank",
        rehearsal=two({"checkpoints": (SavedCheckpoint("/run/model.pt", False, "RuntimeError: cut"),)})),
    well("checkpoint_unreadable", "1 checkpoint read again"),
    skips("checkpoint_unreadable", "no checkpoint",
        rehearsal=two({"checkpoints": (SavedCheckpoint("/run/model.pt", None, "objects"),)})),
    # file_not_kept
    fails("file_not_kept", "stopped before the script changed best.pt (14 GiB), which was there: mgpu copies at most",
        "Move the file", rehearsal=two(kept=(TOO_LARGE,))),
    well("file_not_kept", "no file"),
    # file_not_put_back
    fails("file_not_put_back", "best.pt was changed and could not be put back: Is a directory (train.py:44)", "Copy",
        rehearsal=two(kept=(KeptFile("/run/best.pt", "/run/train.py:44", "Is a directory", copy="/run/kept/0"),))),
    well("file_not_put_back", "no changed file", rehearsal=two(kept=(TOO_LARGE, KEPT))),
    # files_put_back
    informs("files_put_back", "ckpt/best.pt was there: it has its content from before again", "Move what you want",
        rehearsal=two(wrote("save", "/run/ckpt/best.pt"), kept=(KEPT,))),
    informs("files_put_back", "2 files were there, and have their content from before again: ckpt/best.pt, a.pt",
        "Move what you want", rehearsal=two(kept=(KEPT, KeptFile("/run/a.pt", late=True)))),
    informs("files_put_back", "put back as at the first change that mgpu saw: a.pt", "Move what you want",
        rehearsal=two(kept=(KeptFile("/run/a.pt", late=True),))),
    well("files_put_back", "no file changed", rehearsal=two(kept=(TOO_LARGE,))),
    # files_outside
    well("files_outside", "nothing written", rehearsal=two(wrote("save", "/run/ckpt/best.pt"), kept=(KEPT,))),
    informs("files_outside", "the script wrote 2 files: out/model.pt, /data/cached.bin", "Remove",
        rehearsal=two(wrote("save", "/run/out/model.pt", "/data/cached.bin", "/tmp/x", "/run/.mgpu/runs/smoke-1/a"))),
    well("files_outside", "nothing written outside"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
