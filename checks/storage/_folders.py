"""Which kind of file system is a folder on, is it full, and what is its name in messages?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Evidence
from mgpu.snapshot import Folder
from mgpu.text import counted

from .._wording import gib

# A disk with less free space counts as full: gpud's limit for the root disk (components/disk/component.go, 500 MB).
_FULL_BYTES = 500_000_000
# A sharded checkpoint and its logs are hundreds of files.
_FULL_INODES = 1000

# Types as in /proc/self/mountinfo. Files on these are on a server and shared by nodes.
# fmt: off
NETWORK = frozenset({
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "fuse.ceph", "fuse.ceph-fuse", "glusterfs",
    "fuse.glusterfs", "wekafs", "panfs", "pvfs2", "orangefs", "afs", "9p", "fuse.sshfs", "fuse.juicefs",
    "fuse.lizardfs", "fuse.mfs",
})
# fmt: on
# Object stores mounted as folders: no locks, slow with many small files, some cannot append.
# fmt: off
OBJECT_STORES = frozenset({
    "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys", "fuse.rclone", "fuse.mountpoint-s3", "fuse.mount-s3", "fuse.blobfuse",
    "fuse.blobfuse2", "fuse.ossfs", "fuse.obsfs", "fuse.cosfs",
})
# fmt: on
MEMORY = frozenset({"tmpfs", "ramfs"})


def folder_name(folder: Folder) -> str:
    """Return the name of a folder in titles: "the current folder", or its path."""
    return {"current": "the current folder", "temporary": "the temporary folder", "home": "the home folder"}.get(
        folder.role, folder.path
    )


def full_reason(folder: Folder) -> str | None:
    """Return what has run out ("0.2 GB free", "12 free inodes"); None if the disk is not full."""
    if folder.free_bytes is not None and folder.free_bytes < _FULL_BYTES:
        return f"{gib(folder.free_bytes)} free"
    if folder.free_inodes is not None and folder.free_inodes < _FULL_INODES:
        return f"{counted(folder.free_inodes, 'free inode')}"
    return None


def evidence_of(folder: Folder) -> Evidence:
    """Return the known facts of a folder as evidence."""
    facts = {
        "path": folder.path,
        "filesystem": folder.filesystem,
        "mount": folder.mount,
        "free_bytes": folder.free_bytes,
        "free_inodes": folder.free_inodes,
        "error": folder.error,
    }
    return {name: value for name, value in facts.items() if value is not None}


def paths_of(folders: Iterable[Folder]) -> tuple[str, ...]:
    """Return the paths of folders as subjects of a problem, without duplicates."""
    return tuple(dict.fromkeys(folder.path for folder in folders))
