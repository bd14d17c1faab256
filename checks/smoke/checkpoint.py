"""Is the model saved once, where every rank can load it again?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.memory import ADAPTER_SHARE, FP32, STATES
from mgpu.snapshot import Checkpoint, Config, Model, Ranks
from mgpu.text import counted, listed

from .._wording import gib
from ._rank_states import own_failure, rank_name

_CHECKPOINT = "https://huggingface.co/docs/accelerate/usage_guides/checkpoint"
_STAGE = "checkpoint"
_SAVING = "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints"
_SHARDED = "https://pytorch.org/docs/stable/distributed.checkpoint.html"
_CURES = {
    "ENOSPC": "Free some space, or save to another disk.",
    "EDQUOT": "Your quota is used up: delete files, request more quota, or save to another disk.",
    "EROFS": "It is mounted read-only: save elsewhere, or have it mounted read-write.",
    "EACCES": "You have no write permission: save elsewhere, or change the folder's permissions.",
    "EPERM": "You have no write permission: save elsewhere, or change the folder's permissions.",
}
_ANOTHER = "mgpu smoke-test --checkpoint-dir ANOTHER_FOLDER"


def _checkpoints(ranks: Ranks) -> dict[int, Checkpoint]:
    """Return the checkpoint as seen by each rank that got that far."""
    return {rank.rank: rank.checkpoint for rank in ranks.ranks if rank.checkpoint is not None}


@check(Severity.ERROR, source="https://man7.org/linux/man-pages/man2/write.2.html")
def checkpoint_not_writable(ranks: Ranks) -> Answer:
    """A checkpoint cannot be written to the training's checkpoint folder.

    Why: The training would fail when it saves for the first time.
    More: The disk is full, a quota is used up, the file system is read-only, or the folder belongs to another user.
    The training would show that only after hours.

    Fix: free some space, or save to another folder.
    """
    rank = own_failure(ranks, "checkpoint_not_writable")
    if rank is None:
        sizes = [met for met in _checkpoints(ranks).values() if met.size_bytes]
        if not sizes:
            return Skip("no checkpoint was written")
        return Ok(f"{gib(sizes[0].size_bytes or 0)} written to {sizes[0].folder}")
    folder, code = str(rank.evidence.get("folder")), str(rank.evidence.get("errno"))
    free = rank.evidence.get("free_bytes")
    room = f"; {gib(free)} free" if isinstance(free, int) else ""
    return Problem(
        f"{rank_name(rank)} cannot write a {_STAGE} to {folder}: {rank.evidence.get('error')} ({code}{room})",
        fix=Fix(
            f"{_CURES.get(code, 'Save to another folder, or fix this one.')} Then test that folder.",
            (
                shell("df -h {:path}", folder),
                shell("df -i {:path}", folder) if code == "ENOSPC" else shell("ls -ld {:path}", folder),
                _ANOTHER,
            ),
        ),
        evidence={
            "rank": rank.rank,
            "rung": _STAGE,
            "host": rank.host,
            "folder": folder,
            "errno": code,
            "free_bytes": free if isinstance(free, int) else None,
        },
        subjects=(f"rank {rank.rank}",),
    )


def _size_bytes(model: Model) -> int:
    """Return the minimum size of one checkpoint in bytes: the trained weights in fp32 and the optimizer state."""
    part = ADAPTER_SHARE if model.train != "full" else 1.0
    trained = model.trainable if model.trainable is not None else model.params * part
    return int(trained * (FP32 + STATES.get(model.optimizer, 0.0)))


@check(Severity.WARNING, source=_CHECKPOINT, because_of=("checkpoint_not_writable",))
def checkpoint_folder_too_small(ranks: Ranks, config: Config) -> Answer:
    """The checkpoint folder has less free space than one checkpoint of the model needs.

    Why: One checkpoint contains the weights in fp32 and the optimizer state. Most training runs keep several.
    More: With Adam that is three times the weights. The smoke test's small checkpoint fits, but the training's
    would not, and a partly written file may replace the last good one.

    Fix: Free some space, or save to another disk.
    """
    if config.model is None:
        return Skip("the config does not contain the model size")
    found = [met for met in _checkpoints(ranks).values() if met.named and met.free_bytes is not None]
    if not found:
        return Skip("the training's checkpoint folder was not tested (--checkpoint-dir)")
    folder, free, need = found[0].folder, found[0].free_bytes or 0, _size_bytes(config.model)
    if free >= need:
        return Ok(f"{gib(free)} free in {folder}, {gib(need)} for a checkpoint")
    return Problem(
        f"{_STAGE}: {gib(free)} free in {folder}, but one of this model needs {gib(need)}",
        fix=commands(shell("df -h {:path}", folder), _ANOTHER),
        evidence={"folder": folder, "free_bytes": free, "needed_bytes": need},
    )


@check(Severity.ERROR, source=_SAVING, because_of=("ranks_not_of_one_world",))
def checkpoint_saved_by_several_ranks(ranks: Ranks) -> Answer:
    """More than one rank writes the checkpoint.

    Why: They write the same file at the same time, so it may be mixed or incomplete.
    More: Each of them behaves as the main process. The file may load without an error, or not at all.

    Fix: save on the main process only.
    """
    rank = own_failure(ranks, "saved_on_every_rank")
    if rank is None:
        return Ok("one rank saved the checkpoint") if _checkpoints(ranks) else Skip("no checkpoint was written")
    writers = [number for number in rank.evidence.get("writers", ()) if isinstance(number, int)]
    everyone = "every rank saves" if len(writers) == ranks.expected else f"ranks {listed(writers)} all save"
    return Problem(
        f"{everyone} the {_STAGE}: {rank_name(rank)} is not the only one that behaves as the main process",
        fix=Fix(
            "Save inside `if accelerator.is_main_process:`, and make the other ranks wait "
            "(`accelerator.wait_for_everyone()`). If every rank is main, the ranks are not in one process group: "
            "check the world size.",
            ("mgpu doctor",),
        ),
        evidence={
            "rank": rank.rank,
            "rung": _STAGE,
            "writers": listed(writers),
            "folder": str(rank.evidence.get("folder")),
        },
        subjects=tuple(f"rank {number}" for number in writers),
    )


@check(Severity.ERROR, source=_SHARDED, because_of=("checkpoint_saved_by_several_ranks",))
def checkpoint_comes_back_altered(ranks: Ranks) -> Answer:
    """A saved checkpoint cannot be loaded, or contains different values.

    Why: the file system loses or alters data or serves an old copy, or a rank saved a different state than it
    trained. Training resumed from it starts from a wrong state.

    Fix: Try another file system; if that works, this one is at fault.
    """
    rank = own_failure(ranks, "checkpoint_altered")
    if rank is None:
        loaded = [number for number, met in _checkpoints(ranks).items() if met.shared]
        return Ok(f"bitwise equal on {counted(len(loaded), 'rank')}") if loaded else Skip("no rank loaded a checkpoint")
    folder = str(rank.evidence.get("folder"))
    return Problem(
        f"{rank_name(rank)}: the {_STAGE} in {folder} could not be restored as saved",
        f"Result: {rank.evidence.get('how')}.",
        commands(shell("df -hT {:path}", folder), _ANOTHER),
        {"rank": rank.rank, "rung": _STAGE, "host": rank.host, "folder": folder, "how": str(rank.evidence.get("how"))},
        (f"rank {rank.rank}",),
    )


def _invisible_files(ranks: Ranks) -> Problem | str:
    """Return the problem for ranks that cannot see the files of rank 0, else the text of an Ok."""
    met = _checkpoints(ranks)
    blind = [number for number, seen in met.items() if seen.shared is False]
    if not blind:
        return f"seen by {len(met)} ranks"
    first = next(rank for rank in ranks.ranks if rank.rank == blind[0])
    folder = met[blind[0]].folder
    return Problem(
        f"{rank_name(first)} on {first.host} does not see the {_STAGE} that rank 0 wrote to {folder}",
        "Each host has its own folder of that name: only ranks on the first host could resume from it.",
        Fix(
            "Save to a folder that all hosts share (NFS, Lustre, a bucket), or copy the checkpoint to every host "
            "before you resume.",
            (shell("df -hT {:path}", folder), "mgpu smoke-test --checkpoint-dir SHARED_FOLDER"),
        ),
        {"rank": first.rank, "rung": _STAGE, "host": first.host, "folder": folder, "ranks": listed(blind)},
        tuple(f"rank {number}" for number in blind),
    )


def _skip_shared(ranks: Ranks) -> str | None:
    """Return why it is unknown whether the hosts share the checkpoint folder, or None if it is known."""
    met = list(_checkpoints(ranks).values())
    if ranks.nodes < 2:
        return "one host"
    if not any(seen.shared is not None for seen in met):
        return "no rank looked for the checkpoint"
    if not any(seen.named for seen in met):
        return "the training's checkpoint folder was not given (--checkpoint-dir)"
    return None


@check(Severity.WARNING, source=_SAVING)
def checkpoint_not_shared(ranks: Ranks) -> Answer:
    """The hosts do not share the checkpoint folder.

    Why: the main process saves on its own host. Ranks on the other hosts find no checkpoint when the training is
    resumed.

    Fix: save to a shared folder.
    """
    if ranks.strategy != "ddp":
        return Skip("a sharded checkpoint: see sharded_checkpoint_not_shared")
    if (why := _skip_shared(ranks)) is not None:
        return Skip(why)
    found = _invisible_files(ranks)
    return Ok(found) if isinstance(found, str) else found


@check(Severity.ERROR, source=_SHARDED)
def sharded_checkpoint_not_shared(ranks: Ranks) -> Answer:
    """Every rank saves its own part of the checkpoint, but the hosts do not share the folder.

    Why: the parts are on different hosts. No host has the whole checkpoint, so it cannot be loaded until the parts
    are collected.

    Fix: save to a shared folder.
    """
    if ranks.strategy == "ddp":
        return Skip("the checkpoint is one file: see checkpoint_not_shared")
    if (why := _skip_shared(ranks)) is not None:
        return Skip(why)
    found = _invisible_files(ranks)
    return Ok(found) if isinstance(found, str) else found
