"""How do you run the doctor from a notebook or a program?

    import mgpu
    mgpu.doctor()

It never uses CUDA in the calling process: a context there would break `notebook_launcher` later.
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
    """The doctor's result: `verdict`, `exit_code`, the JSON as `document`, the screen as `text`."""

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
    found = run.examine(request)
    document = dict(doctor_report.json_document(request, found))
    return Report(found.verdict, found.code, document, doctor_report.plain_text(request, found))
