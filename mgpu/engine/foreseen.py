"""Which findings in a script's source, reported before the start, may be why the run failed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu import engine
from mgpu.check import Kind, Tag
from mgpu.engine import selections
from mgpu.engine.outcome import Outcome
from mgpu.snapshot import Snapshot

# The findings that lead to this kind of failure. A run that was stopped may have hung.
_HANG: Tag = "leads_to_hang"
_BY: Mapping[Kind, tuple[Tag, ...]] = {
    "nccl": (_HANG, "leads_to_gpu_error"),
    "network": (_HANG,),
    "timeout": (_HANG,),
    "cuda": ("leads_to_gpu_error",),
    "launcher": ("leads_to_rendezvous_error",),
}
_USAGE_CODE = 2  # argparse's, https://docs.python.org/3/library/argparse.html#exiting-methods


def tags_of(kind: Kind | None, code: int, *, stopped: bool) -> set[Tag]:
    """Return the tags of the findings that lead to a failure. `kind`: of its cause, None if unknown; `code`: exit."""
    wanted = set(_BY.get(kind, ())) if kind else {tag for tags in _BY.values() for tag in tags}
    if kind in (None, "launcher") and code == _USAGE_CODE:
        wanted = {"leads_to_usage_error"}
    if stopped:
        wanted.add(_HANG)
    return wanted


def foreseen(findings: Sequence[Outcome], kind: Kind | None, code: int, *, stopped: bool) -> list[Outcome]:
    """Return the findings that lead to such a failure."""
    wanted = tags_of(kind, code, stopped=stopped)
    return [finding for finding in findings if wanted & set(finding.check.tags)]


def script_findings(snapshot: Snapshot) -> list[Outcome]:
    """Return the findings in the script's source, in line order. They stop nothing."""
    if snapshot.script is None:
        return []
    found = [o for o in engine.judge(snapshot, selections.SCRIPT) if o.status in ("fail", "warn")]

    def line(outcome: Outcome) -> int:
        place = outcome.problem.place if outcome.problem else None
        return (place.line or 0) if place else 0

    return sorted(found, key=lambda o: (bool(o.because_of), line(o)))
