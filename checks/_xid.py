"""What does an Xid mean, and what does NVIDIA recommend?

From NVIDIA's Xid catalog (Ampere and newer; codes shared with older GPUs mean the same there):
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as of 2025-10-29. `action` is its column
"Resolution Bucket (Immediate Action)" in plain words. Codes marked "Unused" are omitted: they are not classified.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

Kind = Literal[
    "program",  # a program error; the GPU is healthy
    "note",  # nothing to do
    "repaired",  # a memory error that was contained or remapped
    "memory",  # memory that cannot be trusted before a reset
    "link",  # NVLink
    "firmware",  # GSP
    "reset",  # the GPU needs a reset
    "bus",  # it fell off the PCI bus
    "board",  # power, PCIe, retirement: hardware
    "other",  # NVIDIA recommends no action that a user could take
]


class Xid(NamedTuple):
    """One row of the catalog."""

    code: int
    kind: Kind
    meaning: str
    action: str


def _rows(kind: Kind, action: str, meanings: dict[int, str]) -> Iterable[Xid]:
    return (Xid(code, kind, meaning, action) for code, meaning in meanings.items())


# fmt: off
_COPY_ENGINES = {
    39: 0, 40: 1, 41: 2, 70: 3, 71: 4, 72: 5, 75: 6, 76: 7, 77: 8, 85: 9, 126: 10, 127: 11, 128: 12, 129: 13, 130: 14,
    131: 15, 132: 16, 133: 17, 134: 18, 135: 19,
}
# fmt: on
_VIDEO = (60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139)

# fmt: off
XIDS: dict[int, Xid] = {
    row.code: row
    for rows in (
        _rows("program", "restart the application", {
            8: "GPU stopped processing",
            11: "invalid or corrupted push buffer",
            13: "graphics engine exception (illegal address or instruction in a kernel)",
            25: "invalid or illegal push buffer",
            31: "GPU memory page fault (access out of bounds, or after free)",
            32: "invalid or corrupted push buffer",
            69: "graphics engine class error",
            80: "corrupted data sent to the GPU",
            **{code: f"copy engine {number} exception" for code, number in _COPY_ENGINES.items()},
            **dict.fromkeys(_VIDEO, "video engine exception"),
        }),
        _rows("program", "ignore", {
            37: "driver firmware error",
            38: "driver firmware error",
            43: "GPU stopped processing a channel after a program error",
            44: "fault during a context switch",
            66: "illegal access by the driver",
            67: "illegal access by the driver",
            137: "NVLink privilege error, usually caused by a fault on a peer GPU",
            141: "CUDA fast path error",
        }),
        _rows("note", "ignore", {
            45: "cleanup after an earlier error, or after the process was killed",
            93: "InfoROM wear limit",
            106: "test message",
            107: "test message",
            121: "C2C link error",
            154: "recovery action changed",
            162: "power smoothing enabled again",
            163: "power smoothing disabled",
            164: "power smoothing lifetime low",
        }),
        _rows("repaired", "ignore", {
            63: "a memory row was marked for remapping",
            92: "many corrected memory errors",
            160: "memory channel retired",
        }),
        _rows("repaired", "restart the application", {94: "contained memory error: only one program was affected"}),
        _rows("memory", "follow NVIDIA's workflow for Xid 48", {
            48: "uncorrectable memory error (double bit)",
            171: "uncorrectable DRAM error, details of Xid 48",
            172: "uncorrectable SRAM error, details of Xid 48",
        }),
        _rows("memory", "reset the GPU", {
            64: "a memory row could not be remapped",
            95: "uncontained memory error: every program on the GPU is affected",
            140: "unrecovered ECC error",
        }),
        _rows("link", "follow NVIDIA's NVLink workflow", {
            74: "NVLink error",
            **{code: f"NVLink error ({unit})" for code, unit in zip(
                range(144, 151), ("SAW", "RLW", "TLW", "TREX", "NVLPW", "NETIR", "MSE"), strict=True)},
        }),
        _rows("link", "reset the GPU", {136: "NVLink training failed", 155: "software-defined NVLink error"}),
        _rows("firmware", "reset the GPU", {
            119: "the GPU's firmware (GSP) did not respond to the driver",
            120: "the GPU's firmware (GSP) stopped with an error",
        }),
        _rows("reset", "reset the GPU", {
            46: "GPU stopped processing (timeout)",
            62: "internal microcontroller halted",
            109: "context switch timed out",
            110: "security fault",
            143: "GPU could not be initialized",
            156: "resource retirement",
            158: "fatal GPU timeout",
        }),
        _rows("bus", "restart the machine", {79: "GPU has fallen off the bus"}),
        _rows("board", "check power cables and seating", {54: "auxiliary power is not connected"}),
        _rows("board", "contact the vendor", {
            157: "a resource could not be retired",
            165: "power smoothing lifetime exhausted",
            167: "fatal PCIe timeout",
            168: "errors in the protected memory region",
        }),
        _rows("other", "see the catalog", {
            78: "vGPU start error",
            142: "video encoder error",
            151: "key rotation error",
            152: "DLA error",
            153: "DLA timeout",
            159: "CHI error",
            161: "memory channel could not be retired",
            166: "traffic before encryption was set up",
            169: "internal microcontroller halted",
            170: "interrupt in confidential mode",
        }),
    )
    for row in rows
}
# fmt: on
