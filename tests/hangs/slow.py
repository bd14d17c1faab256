"""More programs that are slow, and healthy: `python slow.py NAME`. Those of `healthy.py` are the first twelve."""

from __future__ import annotations

import gc
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from tests.hangs.training import WORK_S, main, program, steps, work

_COMPILER = f"import time\nuntil = time.time() + {WORK_S}\nwhile time.time() < until: pass"


def _trained() -> None:
    for _ in steps(4):
        pass


@program
def compiles(rank: int) -> None:
    """Every rank waits for its compiler at the first step, as torch.compile does."""
    subprocess.run([sys.executable, "-c", _COMPILER], check=True)
    _trained()


@program
def autotunes(rank: int) -> None:
    """One rank tries kernels in its first forward pass; the others have theirs in a cache."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    for step in range(6):
        if step == 0 and rank == 1:
            work()  # HERE
        model(torch.randn(4, 20)).sum().backward()


class _Samples(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(20)


@program
def evaluates(rank: int) -> None:
    """Rank 0 evaluates alone, batch by batch, with pauses: a judge behind an interface with a limit of requests."""
    _trained()
    if rank == 0:
        until = time.monotonic() + WORK_S
        while time.monotonic() < until:
            for batch in DataLoader(_Samples(), batch_size=16, num_workers=1):
                batch.sum()
                time.sleep(0.5)
    dist.barrier()


@program
def uneven(rank: int) -> None:
    """Rank 1 has fewer batches; join() lets the others go on, slowly."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for _ in range(4 if rank else 10):
            time.sleep(WORK_S / 10)
            model(torch.randn(4, 20)).sum().backward()
            optimizer.step()


def _reads_index(_: int) -> None:
    work(WORK_S)


@program
def many_workers(rank: int) -> None:
    """The loader's workers read an index before the first batch."""
    _trained()
    for _ in DataLoader(_Samples(), batch_size=16, num_workers=2, worker_init_fn=_reads_index):
        pass
    dist.barrier()


@program
def saves_all(rank: int) -> None:
    """Every rank writes its shard; the disk of one is slow."""
    _trained()
    with tempfile.TemporaryFile() as file:
        until = time.monotonic() + (WORK_S if rank else 0)
        while time.monotonic() < until:
            file.write(bytes(1 << 18))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.2)
    dist.barrier()


@program
def prints(rank: int) -> None:
    """Rank 0 sleeps between requests, and shows its progress."""
    _trained()
    until = time.monotonic() + WORK_S
    while rank == 0 and time.monotonic() < until:
        time.sleep(1)
        print(f"answered, {until - time.monotonic():.0f} s left", flush=True)
    dist.barrier()


def _look() -> None:
    breakpoint()  # HERE: and pdb stops at this function's end, the same line


@program
def debugs(rank: int) -> None:
    """The user debugs one rank, and goes on."""
    left, right = os.pipe()
    os.dup2(left, 0)
    threading.Timer(WORK_S, os.write, (right, b"c\n")).start()
    for step in steps(12):
        if step == 8 and rank == 1:
            _look()


@program
def collects_garbage(rank: int) -> None:
    """A pause of the garbage collector: many objects, one collection after the other."""
    kept = [[number] for number in range(400_000)] if rank == 1 else []
    for step in steps(12):
        until = time.monotonic() + (WORK_S if step == 8 and rank == 1 else 0)
        while time.monotonic() < until:
            gc.collect()  # HERE
    del kept


@program
def start_no_training(rank: int) -> None:
    """No process group: a program that is not a training run, and has pauses."""
    for _ in range(3):
        work(WORK_S / 6)
        time.sleep(WORK_S / 6)


@program
def start_serves(rank: int) -> None:
    """No process group: rank 0 waits for requests, rank 1 for work; there is none for a long time."""
    if rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Timer(WORK_S, lambda: socket.create_connection(server.getsockname()).close()).start()
            server.accept()
        return
    jobs: queue.Queue[int] = queue.Queue()
    threading.Timer(WORK_S, jobs.put, (1,)).start()
    jobs.get()


@program
def waits_for_jobs(rank: int) -> None:
    """A process group, and no training: every rank waits for requests of its own."""
    dist.barrier()
    jobs: queue.Queue[int] = queue.Queue()
    threading.Timer(WORK_S, jobs.put, (1,)).start()
    jobs.get()
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # now and then gloo's threads abort the end of the interpreter, with and without the recorder
