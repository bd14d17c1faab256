"""Which kernel could Triton not compile, and why? The reason is in another exception, or below the marked line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_KERNEL = re.compile(r"\bdef (?P<name>\w+)\(")
_LANGUAGE = re.compile(r"\w+\(\) (?:missing \d|got an unexpected|takes )|has no attribute|is not defined")


def of_kernel_source(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the kernel and the reason; None if the log does not show the reason."""
    if raised is None or not (reason := _reason(raised)):
        return None
    found = _KERNEL.search(raised.message)
    kernel = f"the kernel {found['name']}" if found else "a kernel"
    called = f" (called at {raised.place})" if raised.place else ""
    why = (
        "The kernel calls a function of Triton's language in a way that this release does not have: it was written "
        "for another one, mostly a newer one. If it is a package's, the package and Triton do not fit."
        if _LANGUAGE.search(reason)
        else "The message has the kernel's source up to the line that Triton does not accept. Kernels of packages are "
        "written for some releases of Triton, and some fail for a type or size only."
    )
    return Meaning(
        f"Triton could not compile {kernel}: {reason}{called}",
        why,
        (
            Fix(
                "If the kernel is a package's, install a release of the package that fits this Triton, or a newer "
                "torch: each torch brings the Triton that it requires.",
                ("pip show torch triton", "pip install --upgrade torch", "pip check"),
            ),
            Fix("If it is your own, change that line. Or turn the kernel off in the package's options."),
        ),
    )


def _reason(raised: UncaughtException) -> str:
    if raised.cause and raised.direct:
        return raised.cause
    lines = [line.strip() for line in (raised.more or "").splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return last if len(last.split()) > 2 and "=" not in last.split("(")[0] else ""
