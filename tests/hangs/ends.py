"""Programs that hang at their end, or end while the others wait: `python ends.py NAME`."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import threading
import time

import torch
import torch.distributed as dist

from tests.hangs.training import main, program, steps


def _leave(rank: int) -> None:
    if rank == 0:
        dist.barrier()  # HERE
    else:
        time.sleep(1000)  # THERE


@program
def start_barrier_at_exit(rank: int) -> None:
    """A barrier that only rank 0 registers for its exit; the others have work of their own there."""
    dist.init_process_group("gloo")
    for _ in steps(6):
        pass
    atexit.register(_leave, rank)


@program
def destroys_alone(rank: int) -> None:
    """destroy_process_group waits for collectives that the others did not start, with the lock of the interpreter."""
    for _ in range(3):
        dist.all_reduce(torch.ones(420))
    if rank == 0:
        for _ in range(4):
            dist.all_reduce(torch.ones(7), async_op=True)
        dist.destroy_process_group()  # HERE
        os._exit(0)
    dist.barrier()


@program
def destroys_early(rank: int) -> None:
    """One rank is done, and waits at its end for something of its own."""
    for step in steps(12):
        if step == 8 and rank == 1:
            dist.destroy_process_group()
            time.sleep(1000)  # HERE


@program
def spawns_into_fifo(rank: int) -> None:
    """vfork: the kernel holds the parent in state D until the child has opened its files."""
    pipe = f"/tmp/mgpu-hang-{os.getppid()}.fifo"
    for step in steps(12):
        if step == 8 and rank == 1:
            os.mkfifo(pipe)
            opens = [(os.POSIX_SPAWN_OPEN, 0, pipe, os.O_RDONLY, 0)]
            try:
                os.posix_spawn("/bin/true", ["true"], dict(os.environ), file_actions=opens)  # HERE
            finally:
                os.unlink(pipe)


class _Waits:
    def __del__(self) -> None:
        threading.Event().wait()  # HERE


@program
def finalizer(rank: int) -> None:
    """The garbage collector runs a finalizer that waits."""
    for step in steps(12):
        if step == 8 and rank == 1:
            one = _Waits()
            one.itself = one  # type: ignore[attr-defined]
            del one
            gc.collect()


@program
def other_shape(rank: int) -> None:
    for step in steps(12):
        if step == 8:
            dist.all_gather([torch.ones(3 + rank) for _ in range(2)], torch.ones(3 + rank))  # HERE


@program
def other_dtype(rank: int) -> None:
    kind = torch.float64 if rank else torch.float32
    for step in steps(12):
        if step == 8:
            dist.all_reduce(torch.ones(420, dtype=kind))  # HERE


@program
def killed(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@program
def exits(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            dist.destroy_process_group()  # without it, gloo's threads may abort the exit, which is another finding
            raise SystemExit(0)  # HERE


@program
def exits_quietly(rank: int) -> None:
    """One rank ends with exit code 0, and its connections stay open in a process that it has started."""
    for step in steps(12):
        if step == 8 and rank == 1:
            if os.fork() == 0:
                ctypes.CDLL(None).pause()
            os._exit(0)


@program
def raises(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            raise ValueError("no sample with this name")  # HERE


if __name__ == "__main__":
    main()
