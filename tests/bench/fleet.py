"""How long does it take to compare a thousand nodes, and how much memory?

    python -m tests.bench.fleet [NODES]

Writes NODES saved machines (four drifts, a second population and a slow node among them) into a folder of its own,
reads them in a child as `mgpu doctor --compare-nodes` does, and prints the time of reading and of everything after it,
the largest memory of that child, and whether what was planted was found and nothing else.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mgpu import engine
from mgpu.engine import selections
from mgpu.fleet.compare import Machine, fleet_of
from mgpu.fleet.load import gather
from mgpu.hostlist import fold
from mgpu.snapshot import OF_A_RUN, Fleet, Snapshot, to_json
from tests.checks import facts as known

LIMIT_S = 1.0
LIMIT_MB = 300
SLOW = "measured.all_reduce_gb_per_s"


@cache
def _base() -> str:
    nothing: dict[str, Any] = dict.fromkeys(OF_A_RUN)
    return json.dumps(to_json(Snapshot(**known.facts() | nothing, taken="2026-11-22T02:00:00Z", mgpu="0.1.0")))


def node(number: int, rng: random.Random) -> dict[str, Any]:
    """A healthy node: its own names, serial numbers and addresses, and what differs a little everywhere."""
    facts: dict[str, Any] = json.loads(_base())
    name = f"n{number}"
    facts["host"]["name"] = facts["network"]["hostname"] = name
    address = f"10.0.{number >> 8}.{number & 255}"
    facts["network"]["hostname_addresses"] = [address]
    facts["network"]["interfaces"][1]["addresses"] = [address]
    for gpu in facts["gpus"]:
        gpu["uuid"] = f"GPU-{number:08x}-{gpu['index']:04x}-0000-0000-000000000000"
        gpu["serial"] = str(1_650_000_000 + number * 8 + gpu["index"])
        gpu["temperature_c"] = round(rng.gauss(36, 4))
        gpu["memory_used_bytes"] += rng.randrange(1 << 20)
        gpu["ecc_corrected_volatile"] = rng.randrange(3)
    for folder in facts["storage"]["folders"]:
        folder["free_bytes"] = rng.randrange(1 << 40)
        if folder["role"] == "temporary":
            folder["path"] = f"/scratch/{name}/tmp"
    facts["system"]["memory_total_bytes"] += rng.randrange(-(64 << 20), 64 << 20)
    facts["torch_runtime"]["import_s"] = rng.lognormvariate(1, 0.4)
    facts["kernel"]["load_1min"] = rng.random() * 3
    facts["env"] |= {"SLURM_NODEID": str(number - 1), "SLURM_PROCID": str(number - 1), "NCCL_IB_HCA": "mlx5"}
    return facts


def planted(nodes: int) -> dict[str, list[int]]:
    """Which nodes are what. The second population is a twenty-fifth of all, and forty of a thousand."""
    population = list(range(nodes * 3 // 10, nodes * 3 // 10 + max(nodes // 25, 20)))
    places = [nodes // 50, nodes // 40, nodes // 9, nodes // 4]
    return {
        "torch": places[:2], "gpu": [places[2]], "variable": [places[3]],
        "shm": [population[5]],  # a node of the second population that is wrong besides
        "population": population, "slow": [nodes - 3],
    }  # fmt: skip


def simulated(nodes: int, seed: int = 7) -> Iterator[tuple[str, dict[str, Any], dict[str, float]]]:
    """Every node: its name, its facts as JSON, what was measured on it."""
    rng, wrong = random.Random(seed), planted(nodes)
    for number in range(1, nodes + 1):
        facts = node(number, rng)
        speed = 310.0 if number in wrong["slow"] else rng.gauss(400, 4)
        if number in wrong["torch"]:
            facts["pytorch"]["version"] = "2.12.1"
        if number in wrong["gpu"]:
            facts["gpus"].pop()
        if number in wrong["variable"]:
            facts["env"]["NCCL_P2P_DISABLE"] = "1"
        if number in wrong["shm"]:
            facts["system"]["shm_total_bytes"] = 64 << 20
        if number in wrong["population"]:
            facts["driver"]["version"] = "550.90.07"
            for port in facts["infiniband"]["ports"]:
                port["firmware"] = "28.36.1010"
        yield f"n{number}", facts, {"all_reduce_gb_per_s": speed}


def found(fleet: Fleet) -> dict[str, str]:
    """What the checks say: id -> the nodes."""
    outcomes = engine.judge(Snapshot(fleet=fleet), selections.FLEET)
    return {o.check.id: fold(o.problem.subjects) for o in outcomes if o.problem}


def expected(nodes: int) -> dict[str, str]:
    """What they are to say, and nothing else."""
    names = {what: fold(f"n{number}" for number in numbers) for what, numbers in planted(nodes).items()}
    return {
        "fleet_torch_differs": names["torch"], "fleet_gpu_count_differs": names["gpu"],
        "fleet_environment_differs": names["variable"], "fleet_shm_differs": names["shm"],
        "fleet_second_population": names["population"], "fleet_node_slow": names["slow"],
    }  # fmt: skip


def _measure(folder: str, nodes: int) -> None:
    """In the child: the numbers."""
    engine.load(only=("fleet",))
    start = time.perf_counter()
    seen = gather([folder])
    read = time.perf_counter()
    machines = [_with_speed(machine, nodes) for machine in seen.machines.values()]  # as the pre-flight hands it over
    handed, busy = time.perf_counter(), time.process_time()
    fleet = fleet_of(machines, seen.missing, faults=seen.faults)
    said = found(fleet)
    done, worked = time.perf_counter(), time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({
        "read_s": read - start, "after_s": done - handed, "cpu_s": worked - busy, "peak_mb": peak,
        "facts": fleet.compared, "said": said,
    }))  # fmt: skip


def _with_speed(machine: Machine, nodes: int) -> Machine:
    number = int(machine.node[1:])
    machine.values[SLOW] = 310.0 if number in planted(nodes)["slow"] else 400.0 + number % 9 - 4
    return machine


def main() -> None:
    """Print time, memory, and whether the promises are kept."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        size = 0
        for name, facts, _ in simulated(nodes):
            text = json.dumps(facts)
            size += len(text)
            (Path(folder) / f"{name}.json").write_text(text)
        child = [sys.executable, "-m", "tests.bench.fleet", "--measure", folder, str(nodes)]
        told = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    right = told["said"] == expected(nodes)
    print(f"{nodes} nodes, {told['facts']} facts each, {size / 1e6:.0f} MB of JSON")
    print(f"reading   {told['read_s']:6.2f} s")
    for what, value, limit, unit in (
        ("after it", told["after_s"], LIMIT_S, "s"), ("memory", told["peak_mb"], LIMIT_MB, "MB"),
    ):  # fmt: skip
        kept = "kept" if value < limit else "NOT KEPT"
        print(f"{what:<9} {value:6.2f} {unit}  {kept} (< {limit:g} {unit})")
    print(f"CPU after reading {told['cpu_s']:.2f} s")
    print(f"found what was planted and nothing else: {'yes' if right else 'NO'}")
    for check, where in told["said"].items():
        print(f"  {check}: {where}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _measure(sys.argv[2], int(sys.argv[3]))
    else:
        main()
