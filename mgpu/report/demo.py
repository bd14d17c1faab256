"""Which machines does `--demo` show? Saved machines shipped with mgpu, so that it can be tried without a GPU.

One record per machine, with its facts in `mgpu/demos/NAME.json` in the form of `mgpu doctor --save`. The tests write
these files (`python -m tests.demo_machines`): real machines described from published recordings, with the planted fault
that the record names, and one recorded machine.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass

from mgpu import errors
from mgpu.command_line import from_words
from mgpu.errors import MgpuError
from mgpu.report import output
from mgpu.report.screen import Line, Screen, unstyled
from mgpu.snapshot import Snapshot, loads
from mgpu.text import did_you_mean

DEFAULT = "h100-lost-gpu"
HEALTHY = "h100-healthy"
LIST = "list"


@dataclass(frozen=True)
class Demo:
    """One machine of `--demo`."""

    name: str
    text: str  # the machine and its fault
    origin: str = "described, with a planted fault"


DEMOS = (
    Demo(DEFAULT, "8 x H100 on NVSwitch; GPU 5 fell off the bus (Xid 79)"),
    Demo("h100-ecc", "8 x H100 on NVSwitch; uncorrected memory errors on GPU 2"),
    Demo(HEALTHY, "8 x H100 on NVSwitch, healthy", "described from published recordings"),
    Demo("a100-nvlink-down", "8 x A100 on NVSwitch; 2 of the 12 NVLinks of GPU 3 are down"),
    Demo("a100-small-shm", "4 x A100 in a container with 64 MiB of /dev/shm"),
    Demo("l40s-driver-mismatch", "4 x L40S; the driver was updated and its old kernel module is still loaded"),
    Demo("rtx4090-other-user", "2 x RTX 4090; another user's process on GPU 1"),
    Demo("no-gpu", "a virtual machine without a GPU", "recorded"),
)
_NAMES = tuple(demo.name for demo in DEMOS)


def find(name: str) -> Demo:
    """Return the demo of this name. Raises MgpuError (usage) with the closest name."""
    for demo in DEMOS:
        if demo.name == name:
            return demo
    raise MgpuError(
        f"no demo is named {name!r}.{did_you_mean(name, _NAMES)} List them: mgpu doctor --demo list", errors.USAGE
    )


def chosen(words: tuple[str, ...], default: str = DEFAULT) -> str:
    """Return the name after `--demo`, or the default. Raises MgpuError (usage) for several or an unknown one."""
    if len(words) > 1:
        raise MgpuError(f"--demo accepts one name, not {len(words)}: mgpu doctor --demo list", errors.USAGE)
    return find(words[0] if words else default).name


def read(name: str) -> Snapshot:
    """Return the facts of a demo's machine."""
    data = pkgutil.get_data("mgpu", f"demos/{name}.json")  # also from a zip file
    assert data is not None
    return loads(data.decode("utf-8"))


def banner(name: str, screen: Screen) -> list[Line]:
    """Return the line above a report: this is not the user's machine."""
    demo = find(name)
    first, *rest = screen.paragraph(f"DEMO  {demo.name}: {demo.text} ({demo.origin}). Not your machine.", style="bold")
    return [first, *rest, []]


def listing(screen: Screen) -> list[Line]:
    """Return the table of `--demo list`."""
    column = max(map(len, _NAMES))
    lines: list[Line] = []
    for demo in DEMOS:
        lines += screen.paragraph(f"{demo.text} ({demo.origin})", f"  {demo.name:<{column}}  ", " " * (column + 4))
    return [*lines, [], *unstyled(["Show one:  " + from_words(["mgpu", "doctor", "--demo", DEFAULT])])]


def show_list() -> int:
    """Print `--demo list` and return the exit code."""
    output.show_paged(listing)
    return errors.READY
