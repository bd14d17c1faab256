"""On what kind of file system does a folder lie, is it full, and what is it called?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Evidence
from mgpu.snapshot import Folder
from mgpu.text import counted

from .._wording import gib

# Below this a disk counts as full: gpud's limit for the root disk (components/disk/component.go, 500 MB).
_FULL_BYTES = 500_000_000
# A sharded checkpoint and its logs are hundreds of files.
_FULL_INODES = 1000

# Types as in /proc/self/mountinfo. Files on these live on a server and are shared by nodes.
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


def called(folder: Folder) -> str:
    """A folder as a title names it."""
    return {"current": "the current folder", "temporary": "the temporary folder", "home": "the home folder"}.get(
        folder.role, folder.path
    )


def why_full(folder: Folder) -> str | None:
    """Why nothing more fits."""
    if folder.free_bytes is not None and folder.free_bytes < _FULL_BYTES:
        return f"{gib(folder.free_bytes)} free"
    if folder.free_inodes is not None and folder.free_inodes < _FULL_INODES:
        return f"{counted(folder.free_inodes, 'free inode')}"
    return None


def evidence_of(folder: Folder) -> Evidence:
    """What is known of a folder."""
    found = {
        "path": folder.path,
        "filesystem": folder.filesystem,
        "mount": folder.mount,
        "free_bytes": folder.free_bytes,
        "free_inodes": folder.free_inodes,
        "error": folder.error,
    }
    return {name: value for name, value in found.items() if value is not None}


def paths_of(folders: Iterable[Folder]) -> tuple[str, ...]:
    """Folders as subjects of a problem, each once."""
    return tuple(dict.fromkeys(folder.path for folder in folders))
