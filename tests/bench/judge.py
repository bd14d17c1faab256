"""How long does it take to judge a machine with 16 GPUs?

    python -m tests.bench.judge [ROUNDS]

`engine.run` alone, with every check loaded, on a machine that has everything: 16 GPUs, 120 links, InfiniBand, a kernel
log with events, leftovers. The slowest checks are named. Medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from dataclasses import replace

from mgpu import engine
from mgpu.snapshot import Snapshot
from tests.checks import facts as known

LIMIT_S = 0.02


def machine(number: int = 16) -> Snapshot:
    """As much as one machine can be."""
    gpus = tuple(
        known.gpu(index, processes=tuple(known.process(pid=4000 + index * 10 + n) for n in range(4)))
        for index in range(number)
    )
    events = tuple(known.event(code=code, seconds_ago=60.0 * n) for n, code in enumerate((13, 31, 43, 45, 63, 79) * 20))
    return Snapshot(
        **known.facts(
            gpus=gpus,
            links=known.links(number),
            driver=known.driver(device_nodes=("/dev/nvidiactl", *(f"/dev/nvidia{n}" for n in range(number)))),
            torch_runtime=known.torch_runtime(number),
            pci=known.pci(*(known.pci_device(n) for n in range(number)), *(known.nic(n) for n in range(number))),
            infiniband=known.infiniband(*(known.hca(n) for n in range(number))),
            kernel_log=known.kernel_log(*events),
            gpu_runs=known.gpu_runs(number),
            env={f"NCCL_VARIABLE_{n}": "1" for n in range(50)} | {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eno1"},
            packages={f"package-{n}": "1.0" for n in range(400)} | {"torch": "2.9.0", "accelerate": "1.15.0"},
        )
    )


def main() -> None:
    """Print the median, the slowest checks, and whether the promise is kept."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    checks, snapshot = engine.load(), machine()
    snapshot = replace(snapshot, visible=known.seen(*range(16)))
    engine.run(checks, snapshot)  # caches of regular expressions and the like
    taken: list[float] = []
    each: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        start = time.perf_counter()
        outcomes = engine.run(checks, snapshot)
        taken.append(time.perf_counter() - start)
        for outcome in outcomes:
            each[outcome.check.id].append(outcome.seconds)
    median = statistics.median(taken)
    print(f"{len(checks)} checks on 16 GPUs: {median * 1000:.1f} ms median, {min(taken) * 1000:.1f} ms fastest, "
          f"{max(taken) * 1000:.1f} ms slowest of {rounds} rounds (at most {LIMIT_S * 1000:.0f} ms)")  # fmt: skip
    slowest = sorted(each, key=lambda id: -statistics.median(each[id]))[:5]
    for id in slowest:
        print(f"  {id:<40}{statistics.median(each[id]) * 1e6:>8.0f} us")


if __name__ == "__main__":
    main()
