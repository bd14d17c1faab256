"""Can the run write to its current and configured folders, and are they persistent?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Container, Folder, Storage
from mgpu.text import counted, listed

from .._wording import gib
from ._folders import MEMORY, evidence_of, folder_name, full_reason, paths_of

_STATVFS = "https://man7.org/linux/man-pages/man3/statvfs.3.html"
_CHECKPOINT = "https://github.com/NVIDIA/Megatron-LM/issues/878"
# One checkpoint of a model with 10^9 parameters, trained with Adam in fp32: 4 bytes per weight and 8 bytes of optimizer
# state (huggingface.co/docs/transformers/model_memory_anatomy).
_CHECKPOINT_BYTES = 12_000_000_000
# With less space, not even logs and compiler caches fit: the run fails within minutes.
_EXHAUSTED_BYTES = 100_000_000


def _outputs(storage: Storage) -> list[Folder]:
    """Return the known folders that the run writes to.

    They are the current folder, the folders named by the user, and the script's output folders. For an output folder
    that does not exist yet, the facts describe its parent.
    """
    written = ("current", "named", "output")
    return [folder for folder in storage.folders if folder.role in written and folder.exists is not None]


@check(Severity.ERROR, source=_STATVFS, because_of=("folder_does_not_answer",))
def named_folder_missing(storage: Storage) -> Answer:
    """A folder named for the run does not exist here.

    Why: The script stops when it opens its data or its output, on every node where the folder is not mounted.

    Fix: Create it, or mount it.
    """
    named = [folder for folder in storage.folders if folder.role == "named"]
    if not named:
        return Skip("no folder was named")
    missing = [folder for folder in named if folder.exists is False]
    if missing:
        return Problem(
            f"{missing[0].path} does not exist here",
            "The script stops when it opens it."
            + (f" {counted(len(missing), 'folder')} of {len(named)} are missing." if len(missing) > 1 else ""),
            Fix(commands=tuple(shell("mkdir -p {:path}", f.path) for f in missing)),
            {f"missing_{place}": folder.path for place, folder in enumerate(missing)},
            paths_of(missing),
        )
    known = [folder for folder in named if folder.exists]
    return Ok(f"{counted(len(known), 'named folder')} of {len(named)} found") if known else Skip("no folder responded")


@check(
    Severity.WARNING,
    source=_STATVFS,
    because_of=("folder_does_not_answer", "named_folder_missing"),
    stops_launch="always",
)
def output_folder_not_writable(storage: Storage) -> Answer:
    """The folder the run starts in, or one named for it, is not writable.

    Why: Checkpoints and logs with a relative path are written there. The run stops at the first write.

    Fix: Start the run in a folder you own.
    More: Or have the folder made writable.
    """
    known = [folder for folder in _outputs(storage) if folder.writable is not None]
    known = [f for f in known if f.role != "named" or not f.read_only]  # a named read-only mount contains data
    unwritable = [folder for folder in known if not folder.writable]
    if unwritable:
        first = unwritable[0]
        why = "its file system is mounted read-only" if first.read_only else "it belongs to another user"
        return Problem(
            f"{folder_name(first)} is not writable: {why}",
            fix=Fix(commands=("cd ~", "touch .mgpu-test && rm .mgpu-test")),
            evidence=evidence_of(first),
            subjects=paths_of(unwritable),
        )
    return Ok(f"{listed(paths_of(known))}: writable") if known else Skip("the current folder did not respond")


@check(Severity.ERROR, source=_STATVFS, because_of=("output_folder_not_writable",), stops_launch="always")
def output_folder_exhausted(storage: Storage) -> Answer:
    """The disk the run writes to has almost no free space.

    Why: Logs and caches fill the rest within minutes, and the run fails.

    Fix: Free up space, or write to another disk.
    """
    known = [folder for folder in _outputs(storage) if folder.writable and folder.free_bytes is not None]
    if not known:
        return Skip("the free space of the output folders is unknown")
    exhausted = [folder for folder in known if (folder.free_bytes or 0) < _EXHAUSTED_BYTES]
    if not exhausted:
        return Ok(f"{listed(gib(folder.free_bytes or 0) for folder in known)} free")
    first = exhausted[0]
    return Problem(
        f"only {(first.free_bytes or 0) // 1_000_000} MB free for {folder_name(first)}",
        fix=Fix(commands=(shell("df -h {:path}", first.path), shell("du -xsh {:path}", first.path))),
        evidence=evidence_of(first),
        subjects=paths_of(exhausted),
    )


@check(Severity.WARNING, source=_CHECKPOINT, because_of=("output_folder_not_writable", "output_folder_exhausted"))
def output_folder_full(storage: Storage) -> Answer:
    """The disk the run writes to is full.

    Why: A checkpoint does not fit, so the run fails when it writes the first one.
    More: The error is "No space left on device", or "PytorchStreamWriter failed writing file". A file system without
    free inodes reports the same error although space is left.

    Fix: Free up space, or write to another disk.
    """
    known = [folder for folder in _outputs(storage) if folder.writable and folder.free_bytes is not None]
    full = [folder for folder in known if full_reason(folder)]
    if full:
        first = full[0]
        return Problem(
            f"the disk of {folder_name(first)} is full: {full_reason(first)} of {gib(first.total_bytes or 0)}",
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
        return Skip("the free space of the output folders is unknown")
    return Ok(f"{listed(gib(folder.free_bytes or 0) for folder in known)} free")


@check(
    Severity.INFO,
    source="https://huggingface.co/docs/transformers/model_memory_anatomy",
    because_of=("output_folder_full", "output_folder_exhausted"),
)
def output_folder_small(storage: Storage) -> Answer:
    """The disk the run writes to has no space for a checkpoint of a model with a billion parameters.

    Why: One checkpoint needs 12 bytes per parameter with Adam in fp32: 12 GB for a billion parameters.

    Fix: Keep fewer checkpoints, or write to a larger disk.
    """
    known = [folder for folder in _outputs(storage) if folder.writable and folder.free_bytes is not None]
    small = [f for f in known if not full_reason(f) and (f.free_bytes or 0) < _CHECKPOINT_BYTES]
    if small:
        return Problem(
            f"{gib(small[0].free_bytes or 0)} free for checkpoints in {folder_name(small[0])}",
            fix=Fix(commands=(shell("df -h {:path}", small[0].path),)),
            evidence=evidence_of(small[0]),
            subjects=paths_of(small),
        )
    return Ok("enough space for a checkpoint") if known else Skip("the free space of the output folders is unknown")


@check(Severity.INFO, source="https://docs.docker.com/engine/storage/drivers/")
def current_folder_vanishes(storage: Storage, container: Container) -> Answer:
    """Files in the current folder are lost when the container or the node stops.

    Why: It is in the container's own layer, or in memory. Checkpoints written there do not survive a restart.

    Fix: Write to a persistent folder.
    More: Mount a volume and write there.
    """
    folder = storage.role("current")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the current folder is unknown")
    in_layer = folder.filesystem == "overlay" and container.kind is not None
    where = "in the layer of this container" if in_layer else "in memory"
    if not in_layer and folder.filesystem not in MEMORY:
        return Ok(f"the current folder is on {folder.filesystem}")
    return Problem(
        f"the current folder is {where}: checkpoints will be lost",
        f"It is on {folder.filesystem}, which is deleted when the {'container' if in_layer else 'node'} stops.",
        Fix(commands=("docker run -v /data/runs:/runs ...",) if in_layer else (shell("df -h {:path} ~", folder.path),)),
        evidence_of(folder),
        (folder.path,),
    )
