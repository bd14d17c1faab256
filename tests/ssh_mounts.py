"""What a host of the ssh tests has of its own: the shell lines that mount its files over this machine's.

An ordinary user must be able to run the Python under test there, but it is often below a folder that only its owner can
enter (/root, the checkout of a CI). An empty folder that anyone can enter is mounted over such a folder, and the parts
that are needed are mounted again at their paths.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from shlex import quote

from tests.conftest import ROOT

_ENTER = stat.S_IXOTH | stat.S_IROTH
_TMPFS = {"/tmp": "mode=1777", "/dev/shm": "mode=1777", "/var/log": "mode=755"}
_SINGLE = {  # of the host's folder -> where it is seen
    "etc/passwd": "/etc/passwd",
    "etc/group": "/etc/group",
    "etc/shadow": "/etc/shadow",
    "etc/nsswitch.conf": "/etc/nsswitch.conf",
    "etc/machine-id": "/etc/machine-id",
    "etc/boot_id": "/proc/sys/kernel/random/boot_id",
}
# Init of the host: it waits for orphans, as a real one does, or a killed process would stay as a zombie.
_INIT = "sleep infinity & echo ready; exec >/dev/null 2>&1; set +e; while :; do wait; done"


def _required() -> list[Path]:
    """The folders and files that the Python under test and mgpu are loaded from; parents before children."""
    packages = (Path(place) for place in sys.path if place and place not in _TMPFS)
    places = {ROOT, Path(sys.prefix), Path(sys.base_prefix), *packages}
    found: list[Path] = []
    for place in sorted(place.resolve() for place in places if place.exists()):
        if not any(place.is_relative_to(one) for one in found):
            found.append(place)
    return [one for place in found for one in (_children(place) if not _enterable(place) else [place])]


def _children(place: Path) -> list[Path]:
    return sorted(child for child in place.iterdir() if not child.is_symlink())


def _enterable(place: Path) -> bool:
    return stat.S_IMODE(place.stat().st_mode) & _ENTER == _ENTER


def _covers(required: list[Path]) -> dict[Path, str]:
    """The folders to be covered, with their mode: those of the host's own, and the closed ones above what is needed."""
    covers = {Path(place): mode for place, mode in _TMPFS.items()}
    for place in required:
        closed = [parent for parent in reversed(place.parents) if not _enterable(parent)]
        if closed and not any(closed[0].is_relative_to(one) for one in covers):
            covers[closed[0]] = "mode=755"
    return covers


def readable_by_others() -> bool:
    """Whether an ordinary user can run the Python under test, once the folders above it are open."""
    files = [Path(sys.executable).resolve(), ROOT / "mgpu" / "__init__.py", Path(os.__file__)]
    return all(stat.S_IMODE(file.stat().st_mode) & stat.S_IROTH for file in files)


def script(folder: Path, hosts: Path, name: str) -> str:
    """The shell script that turns new namespaces into the host `name`, with the files of `folder`; it never ends."""
    required = _required()
    covers = _covers(required)
    again = [place for place in required if any(place.is_relative_to(one) for one in (*covers, Path("/home")))]
    lines = ["mount -t tmpfs -o mode=755 tmpfs /run", "mkdir -p /run/sshd /run/kept /run/kept.cgroup"]
    for number, place in enumerate(again):
        lines += _stage(place, f"/run/kept/{number}")
    lines += [f"mount --bind {quote(str(hosts))} /etc/hosts", f"hostname {quote(name)}", "ip link set lo up"]
    for own, seen in _SINGLE.items():
        lines.append(f"[ ! -e {seen} ] || mount --bind {quote(str(folder / own))} {seen}")
    lines += [
        f"mount --bind {quote(str(folder / own))} {place}" for own, place in (("ssh", "/etc/ssh"), ("home", "/home"))
    ]
    lines += _SYSFS
    lines += [f"mount -t tmpfs -o {mode} tmpfs {quote(str(place))}" for place, mode in covers.items()]
    for number, place in enumerate(again):
        lines += _restore(place, f"/run/kept/{number}")
    return "\n".join([*lines, "rm -rf /run/kept /run/kept.cgroup", _INIT])


# The network devices under /sys/class/net are those of the namespace in which sysfs was mounted.
_SYSFS = [
    "mount --rbind /sys/fs/cgroup /run/kept.cgroup",
    "if mount -t sysfs sysfs /sys; then mount --rbind /run/kept.cgroup /sys/fs/cgroup; fi",
    "umount -R /run/kept.cgroup",
]


def _stage(place: Path, kept: str) -> list[str]:
    make = f"mkdir {kept}" if place.is_dir() else f": > {kept}"
    return [make, f"mount --rbind {quote(str(place))} {kept}"]


def _restore(place: Path, kept: str) -> list[str]:
    where = quote(str(place))
    make = f"mkdir -p {where}" if place.is_dir() else f"mkdir -p {quote(str(place.parent))}; : > {where}"
    return [make, f"mount --rbind {kept} {where}", f"umount -R {kept}"]
