"""Programs that hang, one fault each: `python programs.py NAME`. The suspect's line ends in `# HERE`."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from tests.hangs.training import main, program, steps

LOCK = threading.Lock()


@program
def sleeps(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            time.sleep(1000)  # HERE


@program
def skipped_collective(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank != 1:
            dist.all_reduce(torch.ones(420))  # HERE
    dist.barrier()


@program
def other_order(rank: int) -> None:
    for _ in steps(4):
        pass
    if rank == 1:
        dist.broadcast(torch.ones(3), 0)  # HERE
        dist.all_reduce(torch.ones(3))
    else:
        dist.all_reduce(torch.ones(3))  # THERE
        dist.broadcast(torch.ones(3), 0)
    dist.barrier()


@program
def lone_barrier(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 0:
            dist.barrier()  # HERE


@program
def lone_backward(rank: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    for step in range(6):
        loss = model(torch.randn(4, 20)).sum()
        if step != 3 or rank != 1:
            loss.backward()  # THERE
    dist.barrier()  # HERE


@program
def fewer_batches(rank: int) -> None:
    for _ in steps(8 if rank else 12):
        pass
    dist.barrier()  # HERE


@program
def raises_and_destroys(rank: int) -> None:
    atexit.register(time.sleep, 1000)
    for step in steps(12):
        if step == 8 and rank == 1:
            raise ValueError("no sample with this name")  # HERE


@program
def returns_early(rank: int) -> None:
    atexit.register(time.sleep, 1000)
    for step in steps(12):
        if step == 8 and rank == 1:
            return


@program
def stopped(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)


class _Slow(Dataset):  # type: ignore[misc]
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 40 and self.rank == 1:
            LOCK.acquire()  # HERE
        return torch.randn(20)


@program
def loader_worker_in_lock(rank: int) -> None:
    LOCK.acquire()  # as a thread of the rank would hold it when the worker is forked
    loader = iter(DataLoader(_Slow(rank), batch_size=4, num_workers=1))
    for _ in steps(12):
        next(loader)  # THERE


@program
def loader_in_rank(rank: int) -> None:
    loader = iter(DataLoader(_Slow(rank), batch_size=4))
    LOCK.acquire()
    for _ in steps(12):
        next(loader)


@program
def lock(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            with LOCK:
                LOCK.acquire()  # HERE


@program
def reads_fifo(rank: int) -> None:
    pipe = f"/tmp/mgpu-hang-{os.getppid()}"
    for step in steps(12):
        if step == 8 and rank == 1:
            os.mkfifo(pipe)
            try:
                open(pipe).read()  # HERE # noqa: SIM115
            finally:
                os.unlink(pipe)


@program
def asks(rank: int) -> None:
    left, right = os.pipe()
    os.dup2(left, 0)
    del right
    for step in steps(12):
        if step == 8 and rank == 1:
            input("continue? ")  # HERE


@program
def waits_for_child(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            subprocess.run(["sleep", "1000"], check=False)  # HERE


@program
def joins_thread(rank: int) -> None:
    thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
    for step in steps(12):
        if step == 8 and rank == 1:
            thread.start()
            thread.join()  # HERE


@program
def reads_socket(rank: int) -> None:
    import socket

    left, right = socket.socketpair()
    for step in steps(12):
        if step == 8 and rank == 1:
            left.recv(1)  # HERE
    right.close()


@program
def file_lock(rank: int) -> None:
    import fcntl

    with open(f"/tmp/mgpu-hang-{os.getppid()}.lock", "a") as held:
        for step in steps(12):
            if step == 2 and rank == 0:
                fcntl.flock(held, fcntl.LOCK_EX)
            if step == 8 and rank == 1:
                fcntl.flock(held, fcntl.LOCK_EX)  # HERE


@program
def lone_new_group(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 0:
            dist.new_group([0, 1])  # HERE


@program
def lone_object(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 0:
            dist.all_gather_object([None] * dist.get_world_size(), {"metric": 1})  # HERE
    dist.barrier()


if __name__ == "__main__":
    main()
