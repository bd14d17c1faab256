"""What was asked of `mgpu smoke-test`?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from mgpu.errors import USAGE, MgpuError
from mgpu.smoke.ranks import RUNGS
from mgpu.smoke.ranks.orders import Level

FORMATS = ("human", "json", "junit", "github", "markdown")
# The limit on the whole test, unless --timeout says otherwise (without the search for a cause).
TIMEOUT_S = {"quick": 120.0, "standard": 120.0, "long": 900.0}
# The quick level proves, and measures nothing.
_QUICK = tuple(rung for rung in RUNGS if rung not in ("checkpoint", "bandwidth"))


@dataclass(frozen=True)
class Request:
    """The options of smoke-test."""

    config: str = ""
    cpu: int | None = None
    gpus: str = ""
    level: Level = "standard"
    timeout_s: float | None = None
    stall_s: float = 30.0
    bisect: bool = True
    scaling: bool = True
    fill_percent: int = 0
    baseline: str = ""
    checkpoint_folder: str = ""
    node: int | None = None  # which of several machines this is
    allow_busy: bool = False
    stamp: bool = True
    show: bool = False
    log_dir: str = ""
    format: str = "human"
    output: str = "-"

    def check(self) -> None:
        """Raises MgpuError (2) for a value that is not allowed."""
        for flag, value, allowed in (("--format", self.format, FORMATS), ("--level", self.level, get_args(Level))):
            if value not in allowed:
                raise MgpuError(f"{flag} {value}: choose {', '.join(allowed[:-1])} or {allowed[-1]}", USAGE)

    @property
    def rungs(self) -> tuple[str, ...]:
        """The rungs of the level."""
        return _QUICK if self.level == "quick" else RUNGS

    @property
    def limit_s(self) -> float:
        """On the whole test."""
        return TIMEOUT_S[self.level] if self.timeout_s is None else self.timeout_s
