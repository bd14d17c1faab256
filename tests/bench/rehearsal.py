"""What does the rehearsal cost a script: in the watched steps, and in the measured ones?

    python -m tests.bench.rehearsal [ROUNDS]

Two gloo ranks on the CPU under torchrun train 2.1 million parameters with DDP, AdamW and a DataLoader. The script times
its own steps (perf_counter, and the CPU time of its process); runs with and without the rehearsal alternate. The ratios
of neighbors count. Then: how far the step that the rehearsal reports is from the one that the script has timed itself.
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
from types import SimpleNamespace

from mgpu.planning import measured
from mgpu.recorder.inject import _mgpu_rehearsal
from mgpu.recorder.inject._mgpu_recorder import FOLDER
from mgpu.recorder.inject._mgpu_rehearsed_times import MOST, UNTIL, Times
from mgpu.rehearse import run
from mgpu.snapshot import Rehearsal

ROUNDS, WATCHED, _CALLS, STEP_S = 7, 8, 20_000, 0.1
MOST_OF_A_STEP = 1.02  # of a measured step, relative to the same step without the rehearsal
_SCRIPT = """\
import atexit, json, os, time
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(4096, 1024))
times = []
atexit.register(lambda: json.dump(times, open(f"{os.environ['RESULT']}.{dist.get_rank()}", "w")))
before = None
for number, (batch,) in enumerate(DataLoader(data, batch_size=64, sampler=DistributedSampler(data))):
    if number > WATCHED + MEASURED:
        break
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    now = (time.perf_counter(), time.process_time())
    times.append([now[0] - before[0], now[1] - before[1]] if before else [0, 0])
    before = now
"""


def one_run(folder: Path, *, rehearsed: bool) -> tuple[list[float], list[float], Path]:
    """Run the ranks once; return the medians (seconds, CPU seconds) of watched and of measured steps of rank 0."""
    (folder / run.RECORDED).mkdir(parents=True)
    script, result = folder / "train.py", folder / "result"
    script.write_text(_SCRIPT.replace("WATCHED", str(WATCHED)).replace("MEASURED", str(MOST)))
    environment = {**os.environ, "RESULT": str(result), "OMP_NUM_THREADS": "1"}
    if rehearsed:
        environment |= {
            "PYTHONPATH": str(Path(_mgpu_rehearsal.__file__).parent), FOLDER: str(folder / run.RECORDED),
            _mgpu_rehearsal.STEPS: str(WATCHED), UNTIL: str(time.monotonic() + 300.0),
        }  # fmt: skip
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = json.loads(Path(f"{result}.0").read_text())
    middle = [[statistics.median(row[at] for row in part) for at in (0, 1)]
              for part in (rows[2:WATCHED], rows[WATCHED + 1 :])]  # fmt: skip
    return middle[0], middle[1], folder


def reported_s(folder: Path) -> float:
    """Return the step that the rehearsal reports."""
    ranks = run.read_ranks(folder)
    found = measured.measurement(Rehearsal("train.py", WATCHED, 2, "stopped", ranks, script_sha256="0"), ())
    assert found is not None, "nothing was measured"
    return found.step_s


def hooks_s() -> float:
    """Return the CPU time that the hooks use in each measured step, called alone around functions that do nothing."""
    rehearsal = SimpleNamespace(measuring=True, times=None, note=lambda *_, **__: None)
    times, optimizer, parameter = Times(rehearsal), SimpleNamespace(), SimpleNamespace()
    times.leader, times.wanted = optimizer, _CALLS + 1
    batch = [SimpleNamespace(data_ptr=0, shape=(64, 1024)), SimpleNamespace(data_ptr=0, shape=(64,))]
    began = time.thread_time()
    for _ in range(_CALLS):
        times.phase("loader", len, ((),), {})
        times.delivered(optimizer, batch)
        times.backward(times._arrived, (0, parameter), {})
        times.before_step(optimizer)
        times.after_step(optimizer)
        times.goes_on(optimizer)
    assert len(times.steps) == _CALLS and len(times.steps[-1][1]) == 3, "the hooks did nothing"
    return (time.thread_time() - began) / _CALLS


def main() -> None:
    """Measure, and print the ratios."""
    cost = hooks_s()
    print(f"CPU of the hooks: {cost * 1e6:.1f} us a measured step, {cost / STEP_S:.3%} of {STEP_S * 1000:.0f} ms")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    ratios: dict[str, list[float]] = {"watched": [], "measured": [], "measured, CPU time": [], "reported": []}
    with tempfile.TemporaryDirectory() as place:
        for number in range(rounds):
            order = (False, True) if number % 2 else (True, False)
            found = {one: one_run(Path(place) / f"{number}{one}", rehearsed=one) for one in order}
            plain, hooked = found[False], found[True]
            ratios["watched"].append(hooked[0][0] / plain[0][0])
            ratios["measured"].append(hooked[1][0] / plain[1][0])
            ratios["measured, CPU time"].append(hooked[1][1] / plain[1][1])
            ratios["reported"].append(reported_s(hooked[2]) / hooked[1][0])
            step = f"{plain[1][0] * 1000:.1f} ms, {hooked[1][0] * 1000:.1f} ms measured"
            print(f"round {number}: a step of {step}, load {os.getloadavg()[0]:.1f}", flush=True)
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name}: x {middle:.3f} (quartiles {low:.3f}, {high:.3f})")
    print(f"(measured: at most {MOST_OF_A_STEP})")


if __name__ == "__main__":
    main()
