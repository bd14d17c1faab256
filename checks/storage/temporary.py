"""Does the folder for temporary files work?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Storage

from .._wording import gib
from ._folders import MEMORY, NETWORK, OBJECT_STORES, evidence_of, full_reason


@check(
    Severity.WARNING,
    source="https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir",
    because_of=("output_folder_full",),
)
def temporary_folder_unusable(storage: Storage) -> Answer:
    """The folder for temporary files is missing, full, or not writable.

    Why: Compilers, caches and sockets of loader workers use it, and fail.
    More: They fail with "No usable temporary directory" or "No space left on device", some of them only later in the
    run. A job's own TMPDIR often no longer exists in a shell that outlived the job.

    Fix: Use another folder.
    """
    folder = storage.role("temporary")
    if folder is None or folder.exists is None:
        return Skip("the temporary folder did not respond")
    if folder.exists and folder.writable is None and folder.free_bytes is None:
        return Skip("the state of the temporary folder is unknown")
    full = full_reason(folder)
    what = (
        "does not exist"
        if not folder.exists
        else "is not writable"
        if folder.writable is False
        else f"is full: {full}"
        if full
        else None
    )
    if what:
        return Problem(
            f"the temporary folder {folder.path} {what}",
            fix=Fix(commands=("mkdir -p ~/tmp && export TMPDIR=~/tmp", shell("df -h {:path}", folder.path))),
            evidence=evidence_of(folder),
            subjects=(folder.path,),
        )
    room = f", {gib(folder.free_bytes)} free" if folder.free_bytes is not None else ""
    return Ok(f"{folder.path} on {folder.filesystem or 'an unknown file system'}{room}")


@check(Severity.WARNING, source="https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir")
def temporary_folder_on_network(storage: Storage) -> Answer:
    """The folder for temporary files is on a file server.

    Why: The temporary files of all nodes are on one server.
    More: Sockets, locks and compile caches of all nodes are then in one place. They are slow there and collide between
    nodes, and workers fail with "Stale file handle" or ".nfs... busy".

    Fix: Use a local disk of the node.
    """
    folder = storage.role("temporary")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the temporary folder is unknown")
    if folder.filesystem not in NETWORK | OBJECT_STORES:
        return Ok(f"{folder.path} is on {folder.filesystem}")
    return Problem(
        f"the temporary folder {folder.path} is on {folder.filesystem}",
        fix=Fix(commands=("export TMPDIR=/tmp",)),
        evidence=evidence_of(folder),
        subjects=(folder.path,),
    )


@check(Severity.INFO, source="https://docs.kernel.org/filesystems/tmpfs.html")
def temporary_folder_in_memory(storage: Storage) -> Answer:
    """The folder for temporary files is in memory.

    Why: Its files use memory that the ranks may need.
    More: Every file in it takes memory from the ranks, and counts toward the limit of the job or container. A large
    file can trigger the OOM killer.

    Fix: For large files, use a folder on a disk.
    More: Small files need no change.
    """
    folder = storage.role("temporary")
    if folder is None or folder.filesystem is None:
        return Skip("the file system of the temporary folder is unknown")
    if folder.filesystem not in MEMORY:
        return Ok(f"{folder.path} is on {folder.filesystem}")
    return Problem(
        f"the temporary folder {folder.path} is in memory ({folder.filesystem})",
        fix=Fix(commands=("mkdir -p ~/tmp && export TMPDIR=~/tmp",)),
        evidence=evidence_of(folder),
        subjects=(folder.path,),
    )
