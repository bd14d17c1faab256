"""Does the folder for temporary files work?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Storage

from .._wording import gib
from ._folders import MEMORY, NETWORK, OBJECT_STORES, evidence_of, why_full


@check(
    Severity.WARNING,
    source="https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir",
    because_of=("output_folder_full",),
)
def temporary_folder_unusable(storage: Storage) -> Answer:
    """The folder for temporary files is missing, full, or cannot be written.

    Why: compilers, torch.compile's cache, sockets of loader workers and half-written checkpoints go there. They fail
    with "No usable temporary directory" or "No space left on device", some of them only later in the run. A job's own
    TMPDIR is often gone in a shell that outlived the job.

    Fix: point TMPDIR to a folder with room.
    """
    folder = storage.role("temporary")
    if folder is None or folder.exists is None:
        return Skip("the temporary folder did not answer")
    if folder.exists and folder.writable is None and folder.free_bytes is None:
        return Skip("the temporary folder tells nothing of itself")
    full = why_full(folder)
    what = (
        "does not exist" if not folder.exists
        else "cannot be written" if folder.writable is False
        else f"is full: {full}" if full
        else None
    )  # fmt: skip
    if what:
        return Problem(
            f"the temporary folder {folder.path} {what}",
            "Compilers, caches and sockets of loader workers go there, and fail.",
            Fix("Use another one.", ("mkdir -p ~/tmp && export TMPDIR=~/tmp", shell("df -h {:path}", folder.path))),
            evidence_of(folder),
            (folder.path,),
        )
    room = f", {gib(folder.free_bytes)} free" if folder.free_bytes is not None else ""
    return Ok(f"{folder.path} on {folder.filesystem or 'an unknown file system'}{room}")


@check(Severity.WARNING, source="https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir")
def temporary_folder_on_network(storage: Storage) -> Answer:
    """The folder for temporary files is on a file server.

    Why: it holds sockets, locks and compile caches, of all nodes in one place: they are slow there, collide between
    nodes, and "Stale file handle" or ".nfs... busy" end a worker.

    Fix: point TMPDIR to a disk of this machine.
    """
    folder = storage.role("temporary")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the temporary folder is not known")
    if folder.filesystem not in NETWORK | OBJECT_STORES:
        return Ok(f"{folder.path} is on {folder.filesystem}")
    return Problem(
        f"the temporary folder {folder.path} is on {folder.filesystem}",
        "Temporary files of all nodes lie on one server.",
        Fix("Use a disk of this machine.", ("export TMPDIR=/tmp",)),
        evidence_of(folder),
        (folder.path,),
    )


@check(Severity.INFO, source="https://docs.kernel.org/filesystems/tmpfs.html")
def temporary_folder_in_memory(storage: Storage) -> Answer:
    """The folder for temporary files is held in memory.

    Why: every file in it takes memory from the ranks, and counts against the limit of the job or container; a large
    one ends in the OOM killer.

    Fix: nothing for small files; for downloads and large caches, point TMPDIR to a disk.
    """
    folder = storage.role("temporary")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the temporary folder is not known")
    if folder.filesystem not in MEMORY:
        return Ok(f"{folder.path} is on {folder.filesystem}")
    return Problem(
        f"the temporary folder {folder.path} is in memory ({folder.filesystem})",
        "Its files take memory that the ranks may need.",
        Fix("Point it to a disk for large files.", ("mkdir -p ~/tmp && export TMPDIR=~/tmp",)),
        evidence_of(folder),
        (folder.path,),
    )
