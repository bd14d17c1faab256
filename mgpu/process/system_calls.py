"""In which system call does a process wait, and for which file?"""

from __future__ import annotations

import os

from mgpu import file_reading
from mgpu.secrets_masking import masked
from mgpu.text import clean

# Calls in which a program waits for one descriptor, by machine (linux/unistd.h).
_READS = {
    "x86_64": {0: "read", 17: "pread64", 19: "readv", 45: "recvfrom", 47: "recvmsg", 73: "flock", 1: "write"},
    "aarch64": {63: "read", 67: "pread64", 65: "readv", 207: "recvfrom", 212: "recvmsg", 32: "flock", 64: "write"},
}


def waits_for(pid: int) -> str | None:
    """Return "read of /data/fifo": the file, pipe or socket in whose system call the main thread is, if it is known."""
    try:
        words = file_reading.read_part(f"/proc/{pid}/syscall", most=4096, start=0).decode("ascii", "replace").split()
        calls = _READS.get(os.uname().machine, {})
        name = calls.get(int(words[0])) if words and words[0].lstrip("-").isdigit() else None
        if name is None:
            return None
        return masked(clean(f"{name} of {os.readlink(f'/proc/{pid}/fd/{int(words[1], 16)}')}"))[:200]
    except (OSError, ValueError, IndexError):
        return None
