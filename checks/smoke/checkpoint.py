"""Is what was trained saved, once, where every rank can load it again?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.memory import ADAPTER_SHARE, FP32, STATES
from mgpu.snapshot import Checkpoint, Config, Model, Ranks
from mgpu.text import listed

from .._wording import gib
from ._rank_states import own_failure, who

_CHECKPOINT = "https://huggingface.co/docs/accelerate/usage_guides/checkpoint"
_RUNG = "checkpoint"
_SAVING = "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints"
_SHARDED = "https://pytorch.org/docs/stable/distributed.checkpoint.html"
_CURES = {
    "ENOSPC": "Make room on it, or save to another disk.",
    "EDQUOT": "Your quota is used up: delete something, ask for more, or save to another disk.",
    "EROFS": "It is mounted read-only: save somewhere else, or have it mounted for writing.",
    "EACCES": "You may not write there: save somewhere else, or take the folder over.",
    "EPERM": "You may not write there: save somewhere else, or take the folder over.",
}
_ANOTHER = "mgpu smoke-test --checkpoint-dir ANOTHER_FOLDER"


def _met(ranks: Ranks) -> dict[int, Checkpoint]:
    """The checkpoint as each rank met it, as far as they came."""
    return {rank.rank: rank.checkpoint for rank in ranks.ranks if rank.checkpoint is not None}


@check(Severity.ERROR, source="https://man7.org/linux/man-pages/man2/write.2.html")
def checkpoint_not_writable(ranks: Ranks) -> Answer:
    """A checkpoint cannot be written to the folder the training would save to.

    Why: The training would fail here when it saves for the first time.
    More: The disk is full, a quota is used up, the file system is read-only, or the folder belongs to somebody else: it
    would be known after hours.

    Fix: make room, or save to another folder.
    """
    rank = own_failure(ranks, "checkpoint_not_writable")
    if rank is None:
        sizes = [met for met in _met(ranks).values() if met.size_bytes]
        if not sizes:
            return Skip("no checkpoint was written")
        return Ok(f"{gib(sizes[0].size_bytes or 0)} written to {sizes[0].folder}")
    folder, code = str(rank.evidence.get("folder")), str(rank.evidence.get("errno"))
    free = rank.evidence.get("free_bytes")
    room = f"; {gib(free)} free" if isinstance(free, int) else ""
    return Problem(
        f"{who(rank)} cannot write a {_RUNG} to {folder}: {rank.evidence.get('error')} ({code}{room})",
        fix=Fix(
            f"{_CURES.get(code, 'Save to another folder, or mend this one.')} Then try that folder.",
            (
                shell("df -h {:path}", folder),
                shell("df -i {:path}", folder) if code == "ENOSPC" else shell("ls -ld {:path}", folder),
                _ANOTHER,
            ),
        ),
        evidence={
            "rank": rank.rank,
            "rung": _RUNG,
            "host": rank.host,
            "folder": folder,
            "errno": code,
            "free_bytes": free if isinstance(free, int) else None,
        },
        subjects=(f"rank {rank.rank}",),
    )


def _size_bytes(model: Model) -> int:
    """What one checkpoint of a training takes at least: the trained weights in fp32 and the optimizer's state."""
    part = ADAPTER_SHARE if model.train != "full" else 1.0
    trained = model.trainable if model.trainable is not None else model.params * part
    return int(trained * (FP32 + STATES.get(model.optimizer, 0.0)))


@check(Severity.WARNING, source=_CHECKPOINT, because_of=("checkpoint_not_writable",))
def checkpoint_folder_too_small(ranks: Ranks, config: Config) -> Answer:
    """There is less room where the training saves than one checkpoint of its model takes.

    Why: Weights in fp32 and the optimizer's state, once. Most trainings keep more than one.
    More: With Adam that is three times the weights. The small one of the smoke test fits; the training's own would not,
    and what is half written may replace the last good one.

    Fix: Make room on it, or save to another disk.
    """
    if config.model is None:
        return Skip("the config does not say how large the model is")
    found = [met for met in _met(ranks).values() if met.named and met.free_bytes is not None]
    if not found:
        return Skip("where the training saves was not tried (--checkpoint-dir)")
    folder, free, need = found[0].folder, found[0].free_bytes or 0, _size_bytes(config.model)
    if free >= need:
        return Ok(f"{gib(free)} free in {folder}, {gib(need)} for a checkpoint")
    return Problem(
        f"{_RUNG}: {gib(free)} free in {folder}, and one of this model takes {gib(need)}",
        fix=commands(shell("df -h {:path}", folder), _ANOTHER),
        evidence={"folder": folder, "free_bytes": free, "needed_bytes": need},
    )


@check(Severity.ERROR, source=_SAVING, because_of=("ranks_not_of_one_world",))
def checkpoint_saved_by_several_ranks(ranks: Ranks) -> Answer:
    """More than one rank writes the checkpoint.

    Why: They write the same file at the same time; it may hold a mixture, or half of one.
    More: Each of them takes itself for the main process. It may load without a word, or not at all.

    Fix: save on the main process only.
    """
    rank = own_failure(ranks, "saved_on_every_rank")
    if rank is None:
        return Ok("one rank saved the checkpoint") if _met(ranks) else Skip("no checkpoint was written")
    writers = [number for number in rank.evidence.get("writers", ()) if isinstance(number, int)]
    everyone = "every rank saves" if len(writers) == ranks.expected else f"ranks {listed(writers)} all save"
    return Problem(
        f"{everyone} the {_RUNG}: {who(rank)} is not the only one that takes itself for the main process",
        fix=Fix(
            "Save behind `if accelerator.is_main_process:`, and let the others wait "
            "(`accelerator.wait_for_everyone()`). That all ranks count as main means that they do not know of each "
            "other: see the world they are in.",
            ("mgpu doctor",),
        ),
        evidence={
            "rank": rank.rank,
            "rung": _RUNG,
            "writers": listed(writers),
            "folder": str(rank.evidence.get("folder")),
        },
        subjects=tuple(f"rank {number}" for number in writers),
    )


@check(Severity.ERROR, source=_SHARDED, because_of=("checkpoint_saved_by_several_ranks",))
def checkpoint_comes_back_altered(ranks: Ranks) -> Answer:
    """A checkpoint that was saved cannot be loaded, or holds other numbers.

    Why: the file system loses or alters data, serves an old copy, or a rank saved another state than it trained. A
    training that is continued from it starts from something else than it was.

    Fix: Try another file system; when that works, this one is at fault.
    """
    rank = own_failure(ranks, "checkpoint_altered")
    if rank is None:
        loaded = [number for number, met in _met(ranks).items() if met.shared]
        return Ok(f"bit for bit the same on {len(loaded)} ranks") if loaded else Skip("no rank loaded a checkpoint")
    folder = str(rank.evidence.get("folder"))
    return Problem(
        f"{who(rank)}: the {_RUNG} in {folder} does not come back as it was saved",
        f"What was found: {rank.evidence.get('how')}.",
        commands(shell("df -hT {:path}", folder), _ANOTHER),
        {"rank": rank.rank, "rung": _RUNG, "host": rank.host, "folder": folder, "how": str(rank.evidence.get("how"))},
        (f"rank {rank.rank}",),
    )


def _unseen(ranks: Ranks) -> Problem | str:
    """The problem of ranks that do not see what rank 0 wrote; else what was found."""
    met = _met(ranks)
    blind = [number for number, seen in met.items() if seen.shared is False]
    if not blind:
        return f"seen by {len(met)} ranks"
    first = next(rank for rank in ranks.ranks if rank.rank == blind[0])
    folder = met[blind[0]].folder
    return Problem(
        f"{who(first)} on {first.host} does not see the {_RUNG} that rank 0 wrote to {folder}",
        "Each host has a folder of its own under that name: only the first one's ranks could go on from it.",
        Fix(
            "Save to a folder that all hosts share (NFS, Lustre, a bucket), or copy the checkpoint to every host "
            "before you resume.",
            (shell("df -hT {:path}", folder), "mgpu smoke-test --checkpoint-dir SHARED_FOLDER"),
        ),
        {"rank": first.rank, "rung": _RUNG, "host": first.host, "folder": folder, "ranks": listed(blind)},
        tuple(f"rank {number}" for number in blind),
    )


def _why_not_judged(ranks: Ranks) -> str | None:
    """Why it is not known whether the hosts share the folder the training saves to."""
    met = list(_met(ranks).values())
    if ranks.nodes < 2:
        return "one host"
    if not any(seen.shared is not None for seen in met):
        return "no rank looked for the checkpoint"
    if not any(seen.named for seen in met):
        return "where the training saves was not said (--checkpoint-dir)"
    return None


@check(Severity.WARNING, source=_SAVING)
def checkpoint_not_shared(ranks: Ranks) -> Answer:
    """The hosts do not share the folder in which the checkpoint is saved.

    Why: the main process saves on its own host. The ranks of the others find nothing there when the training is
    continued.

    Fix: save to a shared folder.
    """
    if ranks.strategy != "ddp":
        return Skip("a sharded checkpoint: sharded_checkpoint_not_shared")
    if (why := _why_not_judged(ranks)) is not None:
        return Skip(why)
    found = _unseen(ranks)
    return Ok(found) if isinstance(found, str) else found


@check(Severity.ERROR, source=_SHARDED)
def sharded_checkpoint_not_shared(ranks: Ranks) -> Answer:
    """Every rank saves its own part of the checkpoint, and the hosts do not share the folder.

    Why: the parts lie on different hosts. No host has a whole checkpoint, and nothing can be loaded from it until
    somebody has collected the parts.

    Fix: save to a shared folder.
    """
    if ranks.strategy == "ddp":
        return Skip("the checkpoint is one file: checkpoint_not_shared")
    if (why := _why_not_judged(ranks)) is not None:
        return Skip(why)
    found = _unseen(ranks)
    return Ok(found) if isinstance(found, str) else found
