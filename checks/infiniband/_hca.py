"""Which adapters does a value of NCCL_IB_HCA select?"""

from __future__ import annotations

from mgpu.snapshot import HcaPort


def parse_hca(value: str) -> tuple[bool, bool, list[tuple[str, int | None]]]:
    """Parse NCCL_IB_HCA as NCCL does: excluding?, exact?, and (name, port) of each entry (src/misc/utils.cc)."""
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


def matches_entry(entry: tuple[str, int | None], exact: bool, port: HcaPort) -> bool:
    """Whether an entry matches a port: by prefix of the adapter's name, or by the full name if exact."""
    name, number = entry
    fits = port.device == name if exact else port.device.startswith(name)
    return fits and number in (None, port.port)


def selects(value: str, port: HcaPort) -> bool:
    """Whether NCCL uses a port with this value; an empty list selects all."""
    excluding, exact, entries = parse_hca(value)
    return (not entries or any(matches_entry(entry, exact, port) for entry in entries)) != excluding
