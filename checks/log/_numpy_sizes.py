"""For which NumPy was a compiled package built? Its size of a structure, and that of the installed NumPy, show it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .. import _version_skew as skew
from .._reinstall import reinstall

# Bytes of numpy.dtype, measured with NumPy 1.26.4 and 2.1.0 (numpy.dtype.__basicsize__). Other structures only grew.
_SIZES = re.compile(
    r"numpy\.(?P<type>\w+) size changed.*?Expected (?P<built>\d+) from C header, got (?P<installed>\d+)"
)
_DTYPE_OF_NUMPY_1, _DTYPE_OF_NUMPY_2 = 96, 88


def built_for_numpy(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain which of the two is newer. None if the message does not have the sizes that show it."""
    named = next((one for one in reversed(raised.packages) if one and one != "numpy"), None) if raised else None
    package = skew.distribution(named) if named else "PACKAGE"
    upgrade = shell("pip install --upgrade {:package}", package)
    found = _SIZES.match(groups["said"])
    if not found:
        return None
    built, installed = int(found["built"]), int(found["installed"])
    for_older = found["type"] == "dtype" and installed == _DTYPE_OF_NUMPY_2 < built
    if not for_older and built < installed != _DTYPE_OF_NUMPY_1:
        return None
    sizes = f"It expects {built} bytes for numpy.{found['type']}, and the installed one has {installed}."
    again = reinstall(package)
    subject = f"{package} was compiled" if named else "a package was compiled"
    if for_older:
        return Meaning(
            f"{subject} for NumPy 1, and NumPy 2 is installed",
            f"{sizes} Code that was compiled for NumPy 1 does not run with NumPy 2.",
            (
                Fix("Stay below NumPy 2.", ("pip install 'numpy<2'",)),
                Fix("Or install a release of the package that was compiled for NumPy 2.", (upgrade, again)),
            ),
        )
    return Meaning(
        f"{subject} for a newer NumPy than the installed one",
        f"{sizes} A newer NumPy has larger or other structures. Often a package was built from its source, with the "
        "newest NumPy (build isolation), or another package's requirement put NumPy back.",
        (
            Fix("Upgrade NumPy.", ("pip install --upgrade numpy", "pip check")),
            Fix("Or build the package again with the installed NumPy, or install an older release of it.", (again,)),
        ),
    )
