"""checks/stamp.py"""

from __future__ import annotations

import pytest

from tests.checks.facts import NOW, Case, fails, problem, skips, stamp, table, well

CASES = (
    fails("config_not_verified", "the smoke test has not passed with this config", "mgpu smoke-test",
        stamp=stamp(verified=None, verified_at=None)),
    well("config_not_verified", "verified 2026-11-20: start, collectives, train"),
    well("config_not_verified", "verified 2026-11-20, level quick: start",
        stamp=stamp(level="quick", rungs=("start",))),
    fails("config_changed_since_verified", "changed since verification: driver", "mgpu smoke-test",
        stamp=stamp(now=NOW | {"driver": "590.44.01"})),
    fails("config_changed_since_verified", "changed since verification: driver, nccl", "mgpu smoke-test",
        stamp=stamp(now={"config": "aaaa"})),
    fails("config_changed_since_verified", "changed since verification: config", "mgpu smoke-test",
        stamp=stamp(now=NOW | {"config": "bbbb"})),
    fails("config_changed_since_verified", "changed since verification: num_processes", "mgpu smoke-test",
        stamp=stamp(now=NOW | {"config": "bbbb", "config.num_processes": "8"})),
    fails("config_changed_since_verified", "changed since verification: gpu",
        "mgpu smoke-test", stamp=stamp(now=NOW | {"gpu": "H200"})),
    well("config_changed_since_verified", "nothing has changed since 2026-11-20"),
    well("config_changed_since_verified", "nothing has changed", stamp=stamp(now=NOW | {"file": "renamed.yaml"})),
    skips("config_changed_since_verified", "never verified", stamp=stamp(verified=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_the_cause_tells_both_values() -> None:
    found = problem("config_changed_since_verified", stamp=stamp(now={"config": "aaaa", "nccl": "2.30.1"}))
    assert found.cause == "driver 580.65.06 -> not set; nccl 2.29.7 -> 2.30.1"
    assert found.evidence["nccl"] == "2.29.7 -> 2.30.1"
