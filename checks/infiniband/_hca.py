"""Which adapters does a value of NCCL_IB_HCA choose?"""

from __future__ import annotations

from mgpu.snapshot import HcaPort


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
