"""Which machines does `--hosts` name?

`--hosts a,b,c`, ranges `node[1-8]`, `user@host`, `host:2222`, `[fe80::1]:2222`, or a file with one host a line as MPI
and DeepSpeed write it (`n1 slots=4`). A name may be an alias of the user's ssh configuration. The Python of the ranks
is at the same path as here, or where `--python PATH` or `--python HOST=PATH` says.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from mgpu import file_reading, hostlist
from mgpu.errors import USAGE, MgpuError, reason

MOST = 512  # hosts; each has a connection of its own
_LARGEST = 1 << 20  # bytes of a hosts file
_PORTS = range(1, 65536)
# A name never starts with "-", which ssh would read as an option.
_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][\w.-]{0,63})@)?"
    r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+(?:%[\w.-]{1,15})?)\]|(?P<name>[A-Za-z0-9_][\w.-]{0,252}))"
    r"(?::(?P<port>\d{1,5}))?",
    re.ASCII,
)
_ADDRESS = re.compile(r"(?:[^@\s]+@)?[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?")  # IPv6 without brackets
_SLOTS = re.compile(r"(?<!\S)slots\s*=\s*(\d{1,4})")


@dataclass(frozen=True)
class Host:
    """A machine as the user named it."""

    name: str  # without user and port: how mgpu calls it
    user: str = ""
    port: int | None = None
    slots: int | None = None  # ranks, from a hosts file
    local: bool = False  # this machine, which needs no ssh
    python: str = ""  # of its ranks; "": as here

    @property
    def destination(self) -> str:
        """The host as ssh expects it."""
        return f"{self.user}@{self.name}" if self.user else self.name

    @property
    def interpreter(self) -> str:
        """The Python that its ranks run with."""
        return self.python or sys.executable

    @property
    def identity(self) -> str:
        """What a test of this host is recorded under: its name, its ranks and its Python, if they are its own."""
        slots = f" slots={self.slots}" if self.slots else ""
        return f"{self.destination}{slots}" + (f" python={self.python}" if self.python else "")


def read_hosts(wanted: str, python: str = "") -> tuple[Host, ...]:
    """Return the hosts of `--hosts`: a list, or the name of a file; `python`: of `--python`. Raises MgpuError (2)."""
    text = wanted.strip()
    path = Path(text)
    if "/" in text or (path.suffix and path.is_file()):
        found = _of_file(path)
    else:
        found = [_host(part, "--hosts", None) for part in _split(text)]
    if not found:
        raise MgpuError(
            f"--hosts {wanted}: no host. Expected: a,b,c or node[1-8] or a file with one host a line", USAGE
        )
    if len(found) > MOST:
        raise MgpuError(f"--hosts: {len(found)} hosts, at most {MOST}", USAGE)
    names = [host.name for host in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise MgpuError(f"--hosts: {twice} is named twice", USAGE)
    own = read_python(python)
    if unknown := next((name for name in own if name and name not in names), None):
        raise MgpuError(f"--python: {unknown} is not one of the hosts", USAGE)
    return tuple(replace(host, python=own.get(host.name, own.get("", ""))) for host in found)


def read_python(wanted: str) -> dict[str, str]:
    """Return host -> Python of `--python PATH`, `HOST=PATH,HOST=PATH`; "" is for all others. Raises MgpuError (2)."""
    found: dict[str, str] = {}
    for part in filter(None, wanted.split(",")):
        name, equals, path = part.partition("=")
        name, path = (name.strip(), path) if equals and "/" not in name else ("", part)
        if not PurePosixPath(path).is_absolute() or not path.isprintable():
            raise MgpuError(f"--python {part}: expected an absolute path, or HOST=PATH", USAGE)
        found[name] = path
    return found


def _of_file(path: Path) -> list[Host]:
    try:
        text = file_reading.read(path, most=_LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise MgpuError(f"--hosts {path}: {reason(error).partition(': ')[0]}", USAGE) from None
    found: list[Host] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        slots = _SLOTS.search(line.partition("#")[0])
        where = f"{path}, line {number}"
        if len(words) > 1 and not slots:
            raise MgpuError(
                f"{where}: {' '.join(words[1:])!r} is not understood. Expected: HOST or HOST slots=N", USAGE
            )
        found += [_host(part, where, int(slots[1]) if slots else None) for part in _split(words[0])]
    return found


def _split(text: str) -> Iterator[str]:
    """Yield the hosts of a list, with its ranges expanded. Raises MgpuError (2)."""
    for part in re.split(r"[,\s]+(?![^\[\]]*\])", text):
        if not part:
            continue
        if ":" in part.partition("[")[2].partition("]")[0] or _ADDRESS.fullmatch(part):  # an IPv6 address
            yield part
            continue
        try:
            yield from hostlist.expand(part)
        except ValueError as error:
            raise MgpuError(f"--hosts {error}", USAGE) from None


def _host(text: str, where: str, slots: int | None) -> Host:
    if _ADDRESS.fullmatch(text):
        user, at, address = text.rpartition("@")
        text = f"{user}{at}[{address}]"
    found = _HOST.fullmatch(text)
    if not found:
        raise MgpuError(f"{where}: {text!r} is not a host. Expected: HOST, USER@HOST or HOST:PORT", USAGE)
    port = int(found["port"]) if found["port"] else None
    if port is not None and port not in _PORTS:
        raise MgpuError(f"{where}: {text}: {port} is not a port (1 to 65535)", USAGE)
    name = found["bracketed"] or found["name"]
    return Host(name, found["user"] or "", port, slots, local=not found["user"] and port is None and _is_here(name))


def _is_here(name: str) -> bool:
    """Whether a name is this machine's own. Names that ssh's configuration may map elsewhere are not resolved."""
    own = socket.gethostname()
    return name in ("localhost", "127.0.0.1", "::1", own, own.partition(".")[0])


def names(hosts: Sequence[Host]) -> tuple[str, ...]:
    """Return the names in order."""
    return tuple(host.name for host in hosts)
