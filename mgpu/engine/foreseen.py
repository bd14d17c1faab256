"""Which findings in a script's source, reported before the start, may be why the run failed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.check import Kind, Tag
from mgpu.engine.outcome import Outcome

# The findings that lead to this kind of failure. A run that was stopped may have hung.
_HANG: Tag = "leads_to_hang"
_BY: Mapping[Kind, tuple[Tag, ...]] = {
    "nccl": (_HANG, "leads_to_gpu_error"),
    "network": (_HANG,),
    "timeout": (_HANG,),
    "cuda": ("leads_to_gpu_error",),
    "launcher": ("leads_to_usage_error",),
}


def foreseen(findings: Sequence[Outcome], kind: Kind | None, *, stopped: bool) -> list[Outcome]:
    """Return the findings that lead to such a failure. `kind`: of its cause, None if it is not known."""
    wanted = set(_BY.get(kind, ())) if kind else {tag for tags in _BY.values() for tag in tags}
    if stopped:
        wanted.add(_HANG)
    return [finding for finding in findings if wanted & set(finding.check.tags)]
