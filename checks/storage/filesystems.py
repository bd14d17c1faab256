"""Do the file systems respond, and fast enough for many ranks?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Storage
from mgpu.text import counted, listed

from ._folders import NETWORK, OBJECT_STORES, evidence_of, folder_name, paths_of

_NFS = "https://man7.org/linux/man-pages/man5/nfs.5.html"
# A healthy server responds in milliseconds. Every rank looks up thousands of files, which multiplies the delay.
_SLOW_S = 1.0
# Windows drives mounted as folders are also slow with many small files.
_WINDOWS = frozenset({"9p", "drvfs", "v9fs"})


@check(Severity.ERROR, source=_NFS)
def folder_does_not_answer(storage: Storage) -> Answer:
    """A folder of the run is on a file system that does not respond.

    Why: Every process that accesses it waits for the file server, and cannot be killed while it waits.
    More: The run hangs in its imports, in the first batch or in a checkpoint, and cannot be killed.

    Fix: Find out which server it is.
    More: Have the server or the mount repaired. Until then, use another folder.
    """
    silent = [folder for folder in storage.folders if not folder.answered]
    if not silent:
        return Ok(f"{counted(len(storage.folders), 'folder')} responded")
    return Problem(
        f"{listed(folder_name(folder) for folder in silent[:3])}: {silent[0].error or 'no response'}",
        fix=(
            Fix(commands=("findmnt -t nfs,nfs4,lustre,cifs,ceph,gpfs",)),
            Fix("Bring the server back, or unmount it.", ("sudo umount -f -l MOUNT",), who="admin"),
        ),
        evidence={folder.role: folder.path for folder in silent},
        subjects=paths_of(silent),
    )


@check(Severity.WARNING, source=_NFS, because_of=("folder_does_not_answer",))
def folder_answers_slowly(storage: Storage) -> Answer:
    """A folder of the run responds slowly.

    Why: If one lookup takes a second, a dataset of many files takes minutes, multiplied by the number of ranks. A rank
    that falls behind makes the others wait, possibly past NCCL's timeout.

    Fix: Move data that is read often to a local disk of the node.
    """
    timed = [folder for folder in storage.folders if folder.stat_s is not None]
    slow = sorted((f for f in timed if (f.stat_s or 0) >= _SLOW_S), key=lambda f: -(f.stat_s or 0))
    if slow:
        worst = slow[0]
        return Problem(
            f"{folder_name(worst)} took {worst.stat_s:.1f} s to respond",
            f"It is on {worst.filesystem or 'a file system'} at {worst.mount or 'an unknown mount point'}. Ranks that "
            "read many files from it wait for each one.",
            Fix(commands=(shell("df -h {:path}", worst.path),)),
            {folder.path: folder.stat_s for folder in slow},
            paths_of(slow),
        )
    if not timed:
        return Skip("no folder responded")
    return Ok(f"the slowest of {counted(len(timed), 'folder')} took {max(f.stat_s or 0 for f in timed) * 1000:.0f} ms")


@check(Severity.WARNING, source="https://doc.lustre.org/lustre_manual.xhtml", because_of=("folder_does_not_answer",))
def lustre_unhealthy(storage: Storage) -> Answer:
    """Lustre reports that it is not healthy.

    Why: Reads of files on lost servers hang or fail.

    Fix: Find out which servers are missing.
    More: Report them to the administrators, and use another file system until then.
    """
    health = storage.lustre_health
    if health is None:
        return Skip("there is no Lustre here")
    if health == "healthy":
        return Ok("Lustre is healthy")
    return Problem(
        f"Lustre reports: {health}",
        fix=Fix(commands=("lfs check servers",), who="admin"),
        evidence={"health_check": health},
    )


@check(Severity.INFO, source="https://github.com/stas00/ml-engineering/tree/master/storage")
def data_folder_on_slow_storage(storage: Storage) -> Answer:
    """Training data is on a file server, an object store or a Windows drive.

    Why: Every small file needs a round trip, for each rank and each loader worker. The GPUs wait for data.
    More: Object stores have no locks and cannot append, so logs and checkpoints fail with unclear errors.

    Fix: Copy the data to a local disk, or pack it into larger files.
    """
    slow = [
        folder
        for folder in storage.folders
        if (folder.role == "named" and folder.filesystem in NETWORK | OBJECT_STORES)
        or (folder.role == "current" and folder.filesystem in OBJECT_STORES | _WINDOWS)
    ]
    if slow:
        first = slow[0]
        return Problem(
            f"{folder_name(first)} is on {first.filesystem}, slow for many small files",
            fix=Fix(commands=(shell("rsync -a {:path}/ /tmp/$USER/data/", first.path),)),
            evidence=evidence_of(first),
            subjects=paths_of(slow),
        )
    known = [folder for folder in storage.folders if folder.role in ("current", "named") and folder.filesystem]
    return Ok(f"{listed(dict.fromkeys(str(f.filesystem) for f in known))}") if known else Skip("no folder responded")
