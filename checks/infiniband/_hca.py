"""Which adapters is NCCL told to use, and by which setting?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.snapshot import HcaPort, Nccl


def setting(name: str, env: Mapping[str, str], nccl: Nccl) -> tuple[str, str] | None:
    """A variable of NCCL and where it is set: the environment, or the first of its files that names it."""
    if name in env:
        return env[name], "the environment"
    for path, lines in nccl.config_files.items():
        for line in lines:
            key, _, value = line.partition("=")
            if key.strip() == name:
                return value.strip(), path
    return None


def entries_of(value: str) -> tuple[bool, bool, list[tuple[str, int | None]]]:
    """NCCL_IB_HCA as NCCL reads it: excluding?, exact?, and (name, port) of each entry (src/misc/utils.cc)."""
    excluding = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    found = []
    for part in value.removeprefix("=").split(","):
        name, _, rest = part.partition(":")
        port = rest.partition(":")[0]
        if name:
            found.append(
                (name, int(port) if port.isascii() and port.isdecimal() and len(port) < 9 else 0 if port else None)
            )
    return excluding, exact, found


def means(entry: tuple[str, int | None], exact: bool, port: HcaPort) -> bool:
    """Whether an entry stands for a port: by the beginning of its name, unless exact."""
    name, number = entry
    fits = port.device == name if exact else port.device.startswith(name)
    return fits and number in (None, port.port)


def chooses(value: str, port: HcaPort) -> bool:
    """Whether NCCL uses a port under this value; an empty list leaves all."""
    excluding, exact, entries = entries_of(value)
    return (not entries or any(means(entry, exact, port) for entry in entries)) != excluding
