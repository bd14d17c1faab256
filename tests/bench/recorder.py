"""What does the recorder cost the ranks: at their start, and in each step?

    python -m tests.bench.recorder [ROUNDS]

Two gloo ranks on the CPU under torchrun, with and without the recorder in turn, every other round in the opposite
order. A step computes for a set time and then trains a small DDP model, with a data loader. What counts is the ratio
within a round: the seconds are this machine's. The ranks are asked for their collectives during the run, as `mgpu
launch` does it every half minute.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mgpu.launch.hang_evidence import RECORDED, with_recorder
from mgpu.process.command import Command
from mgpu.recorder.inject._mgpu_recorder import ASK_FLIGHT

ROUNDS = 7
MOST_OF_A_STEP, MOST_AT_START_S = 0.01, 0.3
_RANK = """\
import json, os, time
began = time.time()
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("gloo")
started = time.time()
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
times = []
for batch in DataLoader(torch.randn(1000, 64), batch_size=1):
    first = time.perf_counter()
    until = first + 0.004
    while time.perf_counter() < until:
        pass
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter() - first)
if dist.get_rank() == 0:
    json.dump({"steps": times[50:], "start_s": started - began}, open(os.environ["RESULT"], "w"))
dist.destroy_process_group()
"""


def one_run(folder: Path, *, recorded: bool) -> dict[str, float]:
    """Run the ranks once; return the median step, and the time from the launch to the process group, in seconds."""
    folder.mkdir()
    script, result = folder / "train.py", folder / "result.json"
    script.write_text(_RANK)
    command = Command((sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)))
    if recorded:
        command = with_recorder(command, folder)
    environment = {**command.environment(), "RESULT": str(result), "OMP_NUM_THREADS": "1"}
    begun = time.time()
    running = subprocess.Popen(command.argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None:
        time.sleep(2.0)
        for ask in (folder / RECORDED).glob("*.ask"):
            handle = os.open(ask, os.O_RDWR | os.O_NONBLOCK)
            os.write(handle, ASK_FLIGHT)
            os.close(handle)
    found = json.loads(result.read_text())
    assert recorded == bool(list((folder / RECORDED).glob("*.flight"))), "the recorder was not where it should be"
    return {"step_s": statistics.median(found["steps"]), "start_s": found["start_s"], "all_s": time.time() - begun}


def main() -> None:
    """Measure, and print the ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    steps, starts = [], []
    with tempfile.TemporaryDirectory() as place:
        for number in range(rounds):
            order = (False, True) if number % 2 else (True, False)
            found = {recorded: one_run(Path(place) / f"{number}{recorded}", recorded=recorded) for recorded in order}
            steps.append(found[True]["step_s"] / found[False]["step_s"])
            starts.append(found[True]["start_s"] - found[False]["start_s"])
            print(f"round {number}: step x {steps[-1]:.4f}, start {starts[-1]:+.3f} s", flush=True)
    print(f"step: x {statistics.median(steps):.4f} (at most {1 + MOST_OF_A_STEP})")
    print(f"start: {statistics.median(starts):+.3f} s (at most {MOST_AT_START_S})")


if __name__ == "__main__":
    main()
