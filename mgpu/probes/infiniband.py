"""Not written yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def probe() -> Iterator[dict[str, Any]]:
    """Yield nothing yet."""
    yield from ()
