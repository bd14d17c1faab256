"""How is the doctor asked from a notebook or a program?

    import mgpu
    mgpu.doctor()

CUDA is never touched in the calling process: a context there would break `notebook_launcher` later.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from mgpu.doctor import report as doctor_report
from mgpu.doctor import run
from mgpu.doctor.request import Request


@dataclass(frozen=True)
class Report:
    """What the doctor found: `verdict`, `exit_code`, the JSON as `document`, the screen as `text`."""

    verdict: str
    exit_code: int
    document: dict[str, Any]
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def doctor(*, quick: bool = False, config: str = "", verbose: bool = False, expect_gpus: int | None = None) -> Report:
    """Examine this machine. Raises MgpuError for a config that cannot be read."""
    request = Request(quick=quick, config=config, verbose=verbose, expect_gpus=expect_gpus)
    found = run.examined(request)
    document = dict(doctor_report.whole(request, found))
    return Report(found.verdict, found.code, document, doctor_report.plain_text(request, found))
