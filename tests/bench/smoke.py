"""What does the smoke test cost, beside `accelerate test` on the same two ranks?

    python -m tests.bench.smoke [ROUNDS]

Whole commands on two CPU ranks with one config, interleaved (one of each per round, every other round in the opposite
order, so that a drifting machine hits all alike), medians; the ratios are those within a round. The ratios are what
counts; the seconds are this machine's. CPU seconds are those of all processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgpu.smoke.ranks import STAGES

CONFIG = """\
compute_environment: LOCAL_MACHINE
num_processes: 2
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_machines: 1
use_cpu: true
"""
THEIRS = "accelerate test"
COMMANDS = {
    THEIRS: ["-m", "accelerate.commands.accelerate_cli", "test", "--config_file", "accelerate.yaml"],
    "mgpu smoke-test --level quick": ["-m", "mgpu", "smoke-test", "--level", "quick", "--no-stamp", "--json"],
    "mgpu smoke-test": ["-m", "mgpu", "smoke-test", "--no-stamp", "--json"],
}
LIMITS = {"mgpu smoke-test --level quick": 0.6, "mgpu smoke-test": 1.5}
CLIMBED = {
    "mgpu smoke-test --level quick": tuple(rung for rung in STAGES if rung not in ("checkpoint", "bandwidth")),
    "mgpu smoke-test": STAGES,
}
MOST_MIB = 100
_POLL_S = 0.02


@dataclass(frozen=True)
class Cost:
    """Of one command."""

    wall_s: float
    cpu_s: float
    peak_mib: float  # of the command's own process, without its children
    torch: bool  # whether that process had torch loaded


def run(arguments: list[str], folder: Path) -> tuple[Cost, str]:
    """One run of `python ARGUMENTS`, and what it printed. Ends the benchmark when it did not pass."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"XDG_STATE_HOME": f"{folder}/state", "TERM": "dumb", "ACCELERATE_USE_CPU": "true"}
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        peak, torch = 0.0, False
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak, torch = max(peak, _peak_mib(process.pid)), torch or _has_torch(process.pid)
            time.sleep(_POLL_S)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        output.seek(0)
        said = output.read()
    if process.returncode != 0:
        sys.exit(f"{' '.join(arguments)} ended with {process.returncode}:\n{said[-3000:]}")
    return Cost(wall, ended[2].ru_utime + ended[2].ru_stime, peak, torch), said


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _has_torch(pid: int) -> bool:
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def rungs(said: str) -> dict[str, float]:
    """How long each rung took, of the JSON document."""
    stages = json.loads(said)["stages"]
    return {stage["name"]: stage["seconds"] or 0.0 for stage in stages if stage["status"] != "skip"}


def main() -> None:
    """Print the table, the rungs, and the ratios the project promises."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    costs: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in LIMITS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "accelerate.yaml").write_text(CONFIG, "utf-8")
        for turn in range(rounds + 1):
            for command, arguments in list(COMMANDS.items())[:: -1 if turn % 2 else 1]:
                cost, said = run(arguments, folder)
                if command == THEIRS and "Num processes: 2" not in said:
                    sys.exit(f"{THEIRS} did not train on two ranks:\n{said[-3000:]}")
                if command in CLIMBED and tuple(rungs(said)) != CLIMBED[command]:
                    sys.exit(f"{command} climbed {', '.join(rungs(said))}")
                if turn == 0:  # warms the file cache
                    continue
                costs[command].append(cost)
                if command in taken:
                    taken[command].append(rungs(said))
    _tell(costs, taken, rounds)


def _tell(
    costs: Mapping[str, list[Cost]], taken: Mapping[str, list[dict[str, float]]], rounds: int
) -> None:  # fmt: skip
    print(
        f"{'command':<32}{'median s':>10}{'fastest':>10}{'slowest':>10}{'CPU s':>10}   ({rounds} rounds, interleaved)"
    )
    for name, found in costs.items():
        walls = [cost.wall_s for cost in found]
        cpu = statistics.median(cost.cpu_s for cost in found)
        print(f"{name:<32}{statistics.median(walls):>10.2f}{min(walls):>10.2f}{max(walls):>10.2f}{cpu:>10.2f}")
    print()
    for name, runs in taken.items():
        median = {rung: statistics.median(run[rung] for run in runs) for rung in runs[0]}
        print(f"{name}: " + ", ".join(f"{rung} {seconds:.2f}" for rung, seconds in median.items()) + " s")
    print()
    for name, limit in LIMITS.items():
        ratios = [ours.wall_s / theirs.wall_s for ours, theirs in zip(costs[name], costs[THEIRS], strict=True)]
        ratio = statistics.median(ratios)
        print(f"{name:<32}{ratio:>6.2f} x {THEIRS}  (at most {limit} x)  {'ok' if ratio <= limit else 'TOO SLOW'}")
    mine = [cost for name in LIMITS for cost in costs[name]]
    peak = max(cost.peak_mib for cost in mine)
    print(f"mgpu's own process: at most {peak:.0f} MiB  (less than {MOST_MIB} MB)  {_word(peak < MOST_MIB / 1.048576)}")
    print(f"torch in mgpu's own process: {'yes' if any(cost.torch for cost in mine) else 'never'}")


def _word(good: bool) -> str:
    return "ok" if good else "TOO MUCH"


if __name__ == "__main__":
    main()
