"""What does the recorder cost the ranks: at their start, and in each step?

    python -m tests.bench.recorder [ROUNDS]

Two gloo ranks on the CPU under torchrun. A step computes for a set time and then trains a small DDP model, with a data
loader. What counts is a ratio of neighbors, since the seconds are this machine's: in one run, blocks of steps with the
recorder's hooks and without them in turn; runs with the recorder and without it in turn, every other round in the
opposite order; and the same for an interpreter that does nothing. CPU time is what a loaded machine can measure; the
ratios of seconds need a quiet one. The ranks are asked for their collectives during the
run, 15 times as often as by `mgpu launch`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mgpu.hangs.hang_evidence import RECORDED, with_recorder
from mgpu.process.command import Command
from mgpu.recorder.inject import _mgpu_recorder
from mgpu.recorder.inject._mgpu_recorder import ASK_FLIGHT

ROUNDS, BARE_ROUNDS, _CALLS = 7, 40, 20_000
MOST_OF_A_STEP, MOST_AT_START_S, STEP_S = 0.01, 0.3, 0.005
_RANK = """\
import json, os, statistics, sys, time
began = time.time()
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, dataloader
dist.init_process_group("gloo")
started = time.time()
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
saved, loads = dict(hooks), dataloader._BaseDataLoaderIter.__next__
plain = loads.__closure__[0].cell_contents if loads.__name__ == "timed" else loads
blocks, times = [], []
for number, batch in enumerate(DataLoader(torch.randn(BLOCKS * 20, 64), batch_size=1)):
    if number % 20 == 0:
        hooked = bool(number // 20 % 2) == bool(number // 80 % 2)
        hooks.clear()
        hooks.update(saved if hooked else {})
        dataloader._BaseDataLoaderIter.__next__ = loads if hooked else plain
        times = []
        blocks.append((hooked, times))
    first = time.perf_counter()
    if number % 20:
        times.append(first - before)
    before, until = first, first + 0.004
    while time.perf_counter() < until:
        pass
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    found = [(hooked, statistics.median(times)) for hooked, times in blocks[2:]]
    json.dump({"blocks": found, "start_s": started - began}, open(os.environ["RESULT"], "w"))
dist.destroy_process_group()
"""


def one_run(folder: Path, *, recorded: bool, blocks: int) -> dict[str, Any]:
    """Run the ranks once; return the median step of each block, and the time up to the process group, in seconds."""
    folder.mkdir()
    script, result = folder / "train.py", folder / "result.json"
    script.write_text(_RANK.replace("BLOCKS", str(blocks)))
    command = Command((sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                       str(script)))  # fmt: skip
    if recorded:
        command = with_recorder(command, folder)
    environment = {**command.environment(), "RESULT": str(result), "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(command.argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None:
        time.sleep(2.0)
        for ask in (folder / RECORDED).glob("*.ask"):
            handle = os.open(ask, os.O_RDWR | os.O_NONBLOCK)
            os.write(handle, ASK_FLIGHT)
            os.close(handle)
    assert not recorded or list((folder / RECORDED).glob("*.beat")), "the recorder was not where it should be"
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def pairs_of(blocks: list[list[Any]]) -> list[tuple[list[Any], list[Any]]]:
    """Return neighbors, the block with hooks first."""
    pairs = [sorted(blocks[at : at + 2], reverse=True) for at in range(0, len(blocks) - 1, 2)]
    return [(hooked, plain) for hooked, plain in pairs if hooked[0] and not plain[0]]


def bare_start_s(folder: Path) -> list[float]:
    """Return how much more CPU an interpreter that does nothing uses with the recorder, in pairs."""
    folder.mkdir()
    command = Command((sys.executable, "-c", "pass"), env_added={"RANK": "0"})
    variables = {True: with_recorder(command, folder).environment(), False: command.environment()}
    found = []
    for number in range(BARE_ROUNDS):
        seconds = {}
        for recorded in (True, False) if number % 2 else (False, True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command.argv, env=variables[recorded], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[recorded] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append(seconds[True] - seconds[False])
    return found


def hooks_s() -> float:
    """Return the CPU time that the hooks use in each step, called alone: that of the optimizer, and of the loader."""
    recorder, loader = _mgpu_recorder.RECORDER, SimpleNamespace(_BaseDataLoaderIter=type("Loads", (), {}))
    loader._BaseDataLoaderIter.__next__ = lambda self: None
    with tempfile.TemporaryDirectory() as recorder.folder:
        recorder.rank = 0
        recorder.open_beat()
        _mgpu_recorder._hook_loader(loader)
        batches = loader._BaseDataLoaderIter()
        began = time.thread_time()
        for _ in range(_CALLS):
            recorder.stepped()
            next(batches)
        return (time.thread_time() - began) / _CALLS


def main() -> None:
    """Measure, and print the ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    steps: list[float] = []
    starts: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        bare = bare_start_s(Path(place) / "bare")
        for number in range(rounds):
            order = (False, True) if number % 2 else (True, False)
            found = {
                recorded: one_run(Path(place) / f"{number}{recorded}", recorded=recorded, blocks=60 if recorded else 4)
                for recorded in order
            }
            pairs = pairs_of(found[True]["blocks"])
            steps += (hooked[1] / plain[1] for hooked, plain in pairs)
            starts.append(found[True]["start_s"] - found[False]["start_s"])
            print(
                f"round {number}: {len(pairs)} pairs, start {starts[-1]:+.3f} s, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    low, middle, high = statistics.quantiles(steps, n=4)
    cost = hooks_s()
    print(f"step: x {middle:.4f} (quartiles {low:.4f}, {high:.4f}; {len(steps)} pairs; at most {1 + MOST_OF_A_STEP})")
    print(f"CPU of the hooks: {cost * 1e6:.1f} us a step, {cost / STEP_S:.2%} of {STEP_S * 1000:.0f} ms")
    print(f"start of a rank: {statistics.median(starts):+.3f} s (at most {MOST_AT_START_S})")
    print(f"CPU of an interpreter's start: {statistics.median(bare):+.4f} s")


if __name__ == "__main__":
    main()
