"""Rungs of the smoke test climbed in forked ranks: what each rank reported."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.watch import View
from mgpu.snapshot import Rank, Ranks, decode
from tests.conftest import ROOT, environment


@dataclass(frozen=True)
class Case:
    """Ranks that climb some rungs; `patch` ("module:function") spoils or changes something in each of them first."""

    name: str
    world: int
    rungs: tuple[str, ...]
    patch: str | None = None
    limit_s: float = 30.0
    orders: dict[str, Any] = field(default_factory=dict)


def climb(folder: Path, cases: Sequence[Case], **env: str) -> dict[str, Ranks]:
    """Every case by its name. All of them share one interpreter that has imported torch."""
    orders = {case.name: _orders(folder / case.name, case) for case in cases}
    tasks = [
        {"orders": dataclasses.asdict(orders[case.name]), "patch": case.patch, "limit_s": case.limit_s}
        for case in cases
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.scripts.rungs"],
        input=json.dumps(tasks),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(folder, {"OMP_NUM_THREADS": "1", **env}),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return {name: _ranks(told, done.stderr) for name, told in orders.items()}


def _orders(folder: Path, case: Case) -> Orders:
    return Orders(**{"folder": str(folder), "world": case.world, "rungs": case.rungs, "cpu": True, **case.orders})


def _ranks(orders: Orders, said: str) -> Ranks:
    view = View(orders)
    view.read()
    ended = json.loads((Path(orders.folder) / "ended.json").read_text())
    exits = {int(number): code for number, code in ended["exits"].items() if code}  # a launcher reports no other
    ranks = tuple(view.rank(number, view.states(), exits) for number in view.journals)
    alone = [rank for rank in ranks if not rank.finished and str(rank.rank) in ended["exits"]]
    if ended["hung"]:
        ranks = tuple(decode(Rank, {**rank, "exit_code": exits.get(rank["rank"])}, "hung") for rank in ended["hung"])
    whole = all(rank.finished for rank in ranks)
    failed = any(rank.error for rank in ranks)
    return Ranks(
        orders.world, orders.rungs, ranks, "finished" if whole and not failed else "died" if failed or alone else
        "stalled", 1 if failed or exits else 0, orders.stall_s, launcher_output=said[-4000:], folder=orders.folder,
        cpu=orders.cpu, level=orders.level, strategy=orders.strategy, precision=orders.precision,
        accumulate=orders.accumulate, micro_steps=orders.micro_steps,
    )  # fmt: skip
