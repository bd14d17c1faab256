"""Did a run fail because a file system was full, and which one?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Folder, Log, Run, Storage

from .._wording import gib
from ..storage._folders import evidence_of, full_reason

_STATVFS = "https://man7.org/linux/man-pages/man3/statvfs.3.html"
_SIGNATURES = ("log_disk_full", "log_checkpoint_write_failed")  # torch.save reports only that a write failed
_FILE = re.compile(r"No space left on device: '([^']+)'")


@check(Severity.ERROR, source=_STATVFS, role="root", kind="script", same_as=_SIGNATURES)
def run_disk_full(run: Run, log: Log, storage: Storage) -> Answer:
    """A file system that the run writes to is full, and the run failed when it wrote there.

    Why: A checkpoint with optimizer states takes 12 to 16 bytes per parameter. What was written of it fills the rest
    of the disk, and then no other file can be written either, including mgpu's log.

    Fix: Free up space, keep fewer checkpoints, or write to another disk.
    """
    seen = next((one for one in log.seen if one.signature in _SIGNATURES and not one.survived), None)
    if run.exit_code == 0 or (seen is None and not run.log_full):
        return Ok("the output reports no full disk")
    file = _file_named(seen.text if seen else "", storage)
    full = [folder for folder in storage.folders if folder.writable and full_reason(folder)]
    if file:
        full = [folder for folder in full if folder.path == file.rpartition("/")[0]]
    if not full:
        return Skip(f"{'its disk has' if file else 'the disks of the run have'} free space again")
    first = min(full, key=lambda folder: folder.free_bytes or 0)
    path = file or first.path
    return Problem(
        f"the disk is full: {_describe(first)}",
        f"{path} is on it. Checkpoints with optimizer states take 12 to 16 bytes per parameter."
        + (" The end of mgpu's log is missing for the same reason." if run.log_full else ""),
        (
            Fix(
                "Free up space there.",
                (
                    shell("df -h {:path}", first.path),
                    *((shell("df -i {:path}", first.path),) if first.free_inodes == 0 else ()),
                    shell("du -xsh {:path}", first.path),
                ),
            ),
            Fix("Keep fewer checkpoints, and write to another disk."),
        ),
        evidence_of(first),
    )


def _file_named(text: str, storage: Storage) -> str | None:
    """Return the absolute path of the file that Python's message names."""
    found, current = _FILE.search(text), storage.role("current")
    if not found or not current:
        return None
    name = found[1]
    return name if name.startswith("/") else f"{current.path}/{name.removeprefix('./')}"


def _describe(folder: Folder) -> str:
    """Return "/data (ext4), 0 MiB of 500 GiB free"."""
    kind = f" ({folder.filesystem})" if folder.filesystem else ""
    total = f" of {gib(folder.total_bytes)}" if folder.total_bytes else ""
    if folder.free_bytes is not None and folder.free_inodes is not None and not folder.free_inodes:
        return f"{folder.mount or folder.path}{kind}, no free inodes, {gib(folder.free_bytes)}{total} free"
    return f"{folder.mount or folder.path}{kind}, {gib(folder.free_bytes or 0)}{total} free"
