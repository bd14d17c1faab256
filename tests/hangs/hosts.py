"""Programs whose ranks are on two hosts, which lose each other: `python hosts.py NAME`."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

from tests.hangs.training import main, program, steps


@program
def sleeps(rank: int) -> None:
    """The rank of one host keeps that of the other waiting."""
    for step in steps(12):
        if step == 8 and rank == 1:
            time.sleep(1000)  # HERE


def _is_cut() -> None:
    """Wait until the test has cut the network; the folder is this host's own."""
    open("ready", "w").close()
    while not os.path.exists("cut"):
        time.sleep(0.05)


@program
def network(rank: int) -> None:
    for step in steps(12):
        if step == 8:
            _is_cut()
            dist.all_reduce(torch.ones(7))  # HERE


@program
def stopped(rank: int) -> None:
    """The test stops the rank of the second host with SIGSTOP."""
    for step in steps(12):
        if step == 8:
            _is_cut()
            dist.all_reduce(torch.ones(7))  # HERE


@program
def skipped(rank: int) -> None:
    """The rank of the second host leaves out a collective."""
    for step in steps(12):
        if step == 8 and rank == 0:
            dist.all_reduce(torch.ones(420))  # HERE
    dist.barrier()


@program
def store(rank: int) -> None:
    """The host of rank 0, which has the store, is gone."""
    for step in steps(12):
        if step == 8:
            _is_cut()
            dist.new_group([0, 1])  # HERE


if __name__ == "__main__":
    main()
