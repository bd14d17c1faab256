"""mgpu: set up, check and launch multi-GPU PyTorch training."""

from __future__ import annotations

from mgpu.version import __version__

TYPE_CHECKING = False  # `typing` is not imported: under `python -m mgpu` that may be a file in the current folder
if TYPE_CHECKING:
    from typing import Any

    from mgpu.doctor.notebook import Report


__all__ = ["__version__", "doctor"]


def doctor(**options: Any) -> Report:
    """Examine this machine from a notebook or a program. For the options see `mgpu.doctor.notebook.doctor`."""
    from mgpu.doctor import notebook

    return notebook.doctor(**options)
