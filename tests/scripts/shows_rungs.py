"""Shows a smoke test whose ranks only stand in journals: the live screen, driven as the runner drives it.

Arguments: how many ranks, what happens ("passes", "stops", "runs": until somebody ends it).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mgpu.report import screen
from mgpu.smoke import screen as screens
from mgpu.smoke import watch
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Snapshot

STEPS = 6


def main(ranks: int, what: str) -> None:
    """Write the journals bit by bit, and show them as often as the runner does."""
    with tempfile.TemporaryDirectory() as folder:
        view = watch.View(Orders(folder, ranks, cpu=True))
        try:
            with screens.StageScreen(screen.Screen.of(), Snapshot()) as show:
                for _ in _told(Path(folder), ranks, what):
                    view.read()
                    show(view, False)
                    time.sleep(0.02)
                view.read()
                show(view, True)
        except KeyboardInterrupt:
            print("interrupted")
            raise SystemExit(130) from None
    print("the end")


def _told(folder: Path, ranks: int, what: str) -> Iterator[None]:
    order = 0

    def write(number: int, rung: str, **record: Any) -> None:
        with (folder / f"rank{number}.jsonl").open("a") as file:
            file.write(json.dumps({"order": order, "time": 0, "rung": rung, **record}) + "\n")

    for rung in STAGES:
        for step in range(1, STEPS + 1 if rung == "train" else 2):
            for number in range(ranks):
                order += 1
                write(number, rung, word=f"step {step} of {STEPS}" if rung == "train" else "begins", limit_s=None)
            yield
            while what == "runs" and rung == "train":
                yield
            if what == "stops" and rung == "train" and step == 3:
                return
        done = {"rung": rung, "ok": True, "detail": f"{rung} is well", "seconds": 0.25}
        for number in range(ranks):
            order += 1
            write(number, rung, done=done, report=None)
        yield


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
