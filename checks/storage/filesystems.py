"""Do the file systems answer, and fast enough for many ranks?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Storage
from mgpu.text import counted, listed

from ._folders import NETWORK, OBJECT_STORES, called, evidence_of, paths_of

_NFS = "https://man7.org/linux/man-pages/man5/nfs.5.html"
# A healthy server answers in milliseconds; ranks that each look up thousands of files multiply it.
_SLOW_S = 1.0
# Windows drives mounted as folders: slow with many small files as well.
_WINDOWS = frozenset({"9p", "drvfs", "v9fs"})


@check(Severity.ERROR, source=_NFS)
def folder_does_not_answer(storage: Storage) -> Answer:
    """A folder of the run lies on a file system that does not answer.

    Why: whoever touches it waits for the file server, and cannot be killed while it waits.
    More: The training hangs in its imports, in the first batch or in a checkpoint, and cannot be killed.

    Fix: see which server it is.
    More: Have the server or the mount repaired; until then use another folder.
    """
    silent = [folder for folder in storage.folders if not folder.answered]
    if not silent:
        return Ok(f"{counted(len(storage.folders), 'folder')} answered")
    return Problem(
        f"{listed(called(folder) for folder in silent[:3])}: {silent[0].error or 'no answer'}",
        fix=(
            Fix(commands=("findmnt -t nfs,nfs4,lustre,cifs,ceph,gpfs",)),
            Fix("Bring the server back, or unmount it.", ("sudo umount -f -l MOUNT",), who="admin"),
        ),
        evidence={folder.role: folder.path for folder in silent},
        subjects=paths_of(silent),
    )


@check(Severity.WARNING, source=_NFS, because_of=("folder_does_not_answer",))
def folder_answers_slowly(storage: Storage) -> Answer:
    """A folder of the run took long to answer a simple question.

    Why: what takes a second for one look takes minutes for a data set of many files, times the ranks that look. One
    rank that falls behind so makes the others wait, past NCCL's timeout.

    Fix: put what is read often on a disk of this machine.
    """
    timed = [folder for folder in storage.folders if folder.stat_s is not None]
    slow = sorted((f for f in timed if (f.stat_s or 0) >= _SLOW_S), key=lambda f: -(f.stat_s or 0))
    if slow:
        worst = slow[0]
        return Problem(
            f"{called(worst)} took {worst.stat_s:.1f} s to answer",
            f"It lies on {worst.filesystem or 'a file system'} at {worst.mount or 'an unknown place'}; ranks that read "
            "many files from there wait for each.",
            Fix(commands=(shell("df -h {:path}", worst.path),)),
            {folder.path: folder.stat_s for folder in slow},
            paths_of(slow),
        )
    if not timed:
        return Skip("no folder answered")
    return Ok(f"the slowest of {counted(len(timed), 'folder')} took {max(f.stat_s or 0 for f in timed) * 1000:.0f} ms")


@check(Severity.WARNING, source="https://doc.lustre.org/lustre_manual.xhtml", because_of=("folder_does_not_answer",))
def lustre_unhealthy(storage: Storage) -> Answer:
    """Lustre says of itself that it is not healthy.

    Why: reads of files on servers it lost hang or fail.

    Fix: see which servers are missing.
    More: Tell the administrators; use another file system until then.
    """
    health = storage.lustre_health
    if health is None:
        return Skip("there is no Lustre here")
    if health == "healthy":
        return Ok("Lustre is healthy")
    return Problem(
        f"Lustre says: {health}",
        fix=Fix(commands=("lfs check servers",), who="admin"),
        evidence={"health_check": health},
    )


@check(Severity.INFO, source="https://github.com/stas00/ml-engineering/tree/master/storage")
def data_folder_on_slow_storage(storage: Storage) -> Answer:
    """Data would be read from a file server, an object store or a Windows drive.

    Why: every small file is a round trip, for each rank and each loader worker: the GPUs wait for data.
    More: Object stores have no locks and cannot append, so logs and checkpoints fail there in odd ways.

    Fix: copy the data here, or pack it.
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
            f"{called(first)} is on {first.filesystem}, slow for many small files",
            fix=Fix(commands=(shell("rsync -a {:path}/ /tmp/$USER/data/", first.path),)),
            evidence=evidence_of(first),
            subjects=paths_of(slow),
        )
    known = [folder for folder in storage.folders if folder.role in ("current", "named") and folder.filesystem]
    return Ok(f"{listed(dict.fromkeys(str(f.filesystem) for f in known))}") if known else Skip("no folder answered")
