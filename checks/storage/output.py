"""Can the run write where it starts and where it was told to, and does it last?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Folder, Storage
from mgpu.text import counted, listed

from .._wording import gib
from ._folders import MEMORY, called, evidence_of, paths_of, why_full

_STATVFS = "https://man7.org/linux/man-pages/man3/statvfs.3.html"
_CHECKPOINT = "https://github.com/NVIDIA/Megatron-LM/issues/878"
# One checkpoint of a model of 10^9 parameters trained with Adam in fp32: 4 bytes a weight and 8 of optimizer state
# (huggingface.co/docs/transformers/model_memory_anatomy).
_CHECKPOINT_BYTES = 12_000_000_000
# Not even logs and the caches of compilers have room: the run fails within minutes.
_NOTHING_BYTES = 100_000_000


def _outputs(storage: Storage) -> list[Folder]:
    """Where the run writes, as far as that is known: the current folder, those the user named, and those the script
    was told to write to; of one that is not there yet, what is known of the one above it."""
    written = ("current", "named", "output")
    return [folder for folder in storage.folders if folder.role in written and folder.exists is not None]


@check(Severity.ERROR, source=_STATVFS, because_of=("folder_does_not_answer",))
def named_folder_missing(storage: Storage) -> Answer:
    """A folder that was named for the run does not exist here.

    Why: the script stops when it opens its data or its output, on every node where the folder is not mounted.

    Fix: make it, or mount what belongs there.
    """
    named = [folder for folder in storage.folders if folder.role == "named"]
    if not named:
        return Skip("no folder was named")
    missing = [folder for folder in named if folder.exists is False]
    if missing:
        return Problem(
            f"{missing[0].path} does not exist here",
            "The script would stop when it opens it."
            + (f" {counted(len(missing), 'folder')} of {len(named)} are missing." if len(missing) > 1 else ""),
            Fix(commands=tuple(shell("mkdir -p {:path}", f.path) for f in missing)),
            {f"missing_{place}": folder.path for place, folder in enumerate(missing)},
            paths_of(missing),
        )
    known = [folder for folder in named if folder.exists]
    return Ok(f"{counted(len(known), 'named folder')} of {len(named)} found") if known else Skip("none answered")


@check(
    Severity.WARNING,
    source=_STATVFS,
    because_of=("folder_does_not_answer", "named_folder_missing"),
    stops_launch="always",
)
def output_folder_not_writable(storage: Storage) -> Answer:
    """The folder the run starts in, or one that was named, cannot be written.

    Why: checkpoints and logs with a relative path go there; the run stops at the first.

    Fix: start the run in a folder of yours.
    More: Or have the folder made writable.
    """
    known = [folder for folder in _outputs(storage) if folder.writable is not None]
    known = [f for f in known if f.role != "named" or not f.read_only]  # a read-only mount that is named holds data
    shut = [folder for folder in known if not folder.writable]
    if shut:
        first = shut[0]
        why = "its file system is mounted read-only" if first.read_only else "it belongs to somebody else"
        return Problem(
            f"{called(first)} cannot be written: {why}",
            fix=Fix(commands=("cd ~", "touch .mgpu-test && rm .mgpu-test")),
            evidence=evidence_of(first),
            subjects=paths_of(shut),
        )
    return Ok(f"{listed(paths_of(known))} can be written") if known else Skip("the current folder did not answer")


@check(Severity.ERROR, source=_STATVFS, because_of=("output_folder_not_writable",), stops_launch="always")
def output_folder_exhausted(storage: Storage) -> Answer:
    """The disk the run writes to has no room at all.

    Why: logs and caches fill that within minutes, and the run ends.

    Fix: free space, or write to another disk.
    """
    known = [folder for folder in _outputs(storage) if folder.writable and folder.free_bytes is not None]
    if not known:
        return Skip("no folder to write to tells its free space")
    bare = [folder for folder in known if (folder.free_bytes or 0) < _NOTHING_BYTES]
    if not bare:
        return Ok(f"{listed(gib(folder.free_bytes or 0) for folder in known)} free")
    first = bare[0]
    return Problem(
        f"{(first.free_bytes or 0) // 1_000_000} MB are free for {called(first)}",
        fix=Fix(commands=(shell("df -h {:path}", first.path), shell("du -xsh {:path}", first.path))),
        evidence=evidence_of(first),
        subjects=paths_of(bare),
    )


@check(Severity.WARNING, source=_CHECKPOINT, because_of=("output_folder_not_writable", "output_folder_exhausted"))
def output_folder_full(storage: Storage) -> Answer:
    """The disk the run writes to is full.

    Why: a checkpoint does not fit: the run ends when it writes its first.
    More: The first checkpoint ends the run: "No space left on device", or "PytorchStreamWriter failed writing file". A
    file system that has run out of inodes says the same with space to spare.

    Fix: free space, or write to another disk.
    """
    known = [folder for folder in _outputs(storage) if folder.writable and folder.free_bytes is not None]
    full = [folder for folder in known if why_full(folder)]
    if full:
        first = full[0]
        return Problem(
            f"the disk of {called(first)} is full: {why_full(first)} of {gib(first.total_bytes or 0)}",
            fix=Fix(
                commands=(
                    shell("df -h {:path}", first.path),
                    shell("df -i {:path}", first.path),
                    shell("du -xsh {:path}", first.path),
                )
            ),
            evidence=evidence_of(first),
            subjects=paths_of(full),
        )
    if not known:
        return Skip("no folder to write to tells its free space")
    return Ok(f"{listed(gib(folder.free_bytes or 0) for folder in known)} free")


@check(
    Severity.INFO,
    source="https://huggingface.co/docs/transformers/model_memory_anatomy",
    because_of=("output_folder_full", "output_folder_exhausted"),
)
def output_folder_small(storage: Storage) -> Answer:
    """The disk the run writes to has no room for a checkpoint of a model of a billion parameters.

    Why: one checkpoint takes 12 bytes a parameter with Adam in fp32: 12 GB for a billion parameters.

    Fix: keep few checkpoints, or write to a larger disk.
    """
    known = [folder for folder in _outputs(storage) if folder.writable and folder.free_bytes is not None]
    small = [f for f in known if not why_full(f) and (f.free_bytes or 0) < _CHECKPOINT_BYTES]
    if small:
        return Problem(
            f"{gib(small[0].free_bytes or 0)} free for checkpoints in {called(small[0])}",
            fix=Fix(commands=(shell("df -h {:path}", small[0].path),)),
            evidence=evidence_of(small[0]),
            subjects=paths_of(small),
        )
    return Ok("there is room for a checkpoint") if known else Skip("no folder to write to tells its free space")


@check(Severity.INFO, source="https://docs.docker.com/engine/storage/drivers/")
def current_folder_vanishes(storage: Storage, container: Container) -> Answer:
    """What is written to the current folder is gone when the container or the machine ends.

    Why: it lies in the container's own layer, or in memory. Checkpoints written there do not survive a restart.

    Fix: write to a folder that stays.
    More: Mount a volume and write there.
    """
    folder = storage.role("current")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the current folder is not known")
    in_layer = folder.filesystem == "overlay" and container.kind is not None
    where = "in the layer of this container" if in_layer else "in memory"
    if not in_layer and folder.filesystem not in MEMORY:
        return Ok(f"the current folder is on {folder.filesystem}")
    return Problem(
        f"the current folder is {where}: checkpoints do not last",
        f"It is on {folder.filesystem}, which goes when the {'container' if in_layer else 'machine'} does.",
        Fix(commands=("docker run -v /data/runs:/runs ...",) if in_layer else (shell("df -h {:path} ~", folder.path),)),
        evidence_of(folder),
        (folder.path,),
    )
