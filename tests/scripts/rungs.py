"""Climbs rungs of the smoke test in forked ranks over gloo, without a launcher: torch is imported once for many cases.

Standard input: a JSON list of cases, {"orders": fields of Orders, "patch": "module:function" or null, "limit_s": 30}.
`patch(rank)` is called in every rank before it climbs. The ranks of a case that takes longer than its limit are asked
for their stacks as the runner asks them, and killed. `ended.json` in its folder has the exit codes of the ranks that
ended by themselves, and what the ranks of a case that was killed told.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch._dynamo

from mgpu.smoke import stacks
from mgpu.smoke.ranks import ladder
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.watch import View


def main() -> None:
    """All cases, one after the other."""
    torch.set_num_threads(1)
    gc.freeze()  # else each collection in a rank goes through all of torch, and copies its pages
    for case in json.load(sys.stdin):
        _run(case)


def _run(case: dict[str, Any]) -> None:
    folder = Path(case["orders"]["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    orders = Orders(**{**case["orders"], "rungs": tuple(case["orders"]["rungs"])})
    path = orders.write()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    handles = [_forked(rank, orders.world, port, path, case.get("patch")) for rank in range(orders.world)]
    pidfds = {os.pidfd_open(pid): pid for pid in handles}
    deadline = time.monotonic() + case.get("limit_s", 30)
    exits: dict[int, int] = {}
    while pidfds and (left := deadline - time.monotonic()) > 0:
        for done in select.select(list(pidfds), [], [], left)[0]:
            pid = pidfds.pop(done)
            exits[handles.index(pid)] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(done)
    hung = _hung(View(orders)) if pidfds else []
    (folder / "ended.json").write_text(json.dumps({"exits": exits, "hung": hung}))
    for handle, pid in pidfds.items():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(handle)


def _hung(view: View) -> list[dict[str, Any]]:
    view.read()
    states = view.states()
    ranks = [view.rank(number, states, {}) for number in view.journals]
    return [dataclasses.asdict(rank) for rank in stacks.collect(view.folder, view.listeners(), ranks)]


def _forked(rank: int, ranks: int, port: int, orders: Path, patch: str | None) -> int:
    child = os.fork()
    if child:
        return child
    try:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        os.environ |= {name: str(number) for name, number in numbers.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        if patch:
            module, _, function = patch.partition(":")
            getattr(importlib.import_module(module), function)(rank)
        ladder.main(["--orders", str(orders)])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
