"""What the checks say of a smoke test, and what its JSON document says went wrong."""

from __future__ import annotations

from typing import Any

from mgpu import engine
from mgpu.engine import selections
from mgpu.snapshot import Snapshot


def judged(snapshot: Snapshot) -> tuple[engine.Outcome, ...]:
    """The outcomes of the smoke test's checks."""
    return engine.judge(snapshot, selections.SMOKE)


def checks(document: dict[str, Any], status: str = "fail") -> dict[str, dict[str, Any]]:
    """The checks of that status by id."""
    return {check["id"]: check for check in document["checks"] if check["status"] == status}


def cause(document: dict[str, Any]) -> dict[str, Any]:
    """The check that the report names as the cause: the one that fails and is no consequence of another failure."""
    failed = checks(document)
    causes = [check for check in failed.values() if not set(check["because_of"]) & set(failed)]
    assert len(causes) == 1, [check["title"] for check in causes]
    return causes[0]
