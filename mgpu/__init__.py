"""mgpu: set up, check and launch multi-GPU PyTorch training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgpu.notebook import Report

__version__ = "0.1.0"


def doctor(**options: Any) -> Report:
    """Examine this machine, from a notebook or a program: `mgpu.notebook.doctor` has the options."""
    from mgpu import notebook

    return notebook.doctor(**options)
