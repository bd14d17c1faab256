"""Rung "group": do all ranks find each other, and is the world the one that the config asks for?"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any

from . import addresses, device, rendezvous
from .context import Here
from .journal import Failure

_BARRIER_S = 3.0  # the least that a first barrier is given: on a busy machine a rank is not scheduled for a second
_MISSING = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")


def climb(here: Here) -> str:
    """Meet, see that every host can be reached, form the process group as the training will, compare the world."""
    _interfaces(here)
    if here.world > 1:
        _meet(here)
    _join(here)
    _compare(here)
    if here.world > 1:
        _first_barrier(here)
    if here.world == 1:
        return "1 rank, one process"
    hosts = f" on {here.orders.nodes} hosts" if here.orders.nodes > 1 else ""
    return f"{here.world} ranks{hosts}, {here.torch.distributed.get_backend()}"


def _interfaces(here: Here) -> None:
    """An interface that does not exist is named before gloo or NCCL stumbles over it."""
    if here.world > 1 and (found := addresses.missing(os.environ, here.on_gpu)):
        variable, value = found
        there = addresses.interfaces()
        raise Failure(
            f"{variable}={value}: there is no such interface here; there are {', '.join(there)}",
            "interface_missing",
            variable=variable,
            value=value,
            interfaces=there,
        )


def _meet(here: Here) -> None:
    limit = rendezvous.limit_s(here)
    here.about_to("connect to the meeting point", limit_s=limit + here.orders.stall_s)
    store = rendezvous.store(here, limit)
    here.about_to(f"meet {here.world - 1} other ranks", limit_s=limit + here.orders.stall_s)
    listener = rendezvous.introduce(here, store)
    told = rendezvous.gather(here, store, limit)
    here.journal.introduce()
    if here.orders.nodes > 1:
        here.about_to("connect to the other hosts", limit_s=4 * rendezvous.REACH_S)
        rendezvous.reach(here, store, told)
    if listener is not None:
        listener.close()
    # Ranks that wait for another's measurement: it is the runner that ends a hang, long before.
    store.set_timeout(_long(here))
    here.store = store  # where rank 0 hosts it, it must outlive the group


def _join(here: Here) -> None:
    """accelerate starts N trainings of one rank each, and says nothing, when it finds no device to train on: its own
    count of ranks is compared with what the config asks for."""
    torch = here.torch
    limit = _long(here)
    if here.by_accelerate:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        compiles = (
            here.orders.start_limit_s if here.orders.strategy == "deepspeed" else None
        )  # what it has no wheel for
        here.about_to("init_process_group", limit_s=compiles)
        other = {"backend": here.orders.backend} if here.orders.backend else {}
        here.accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=limit, **other)])
        if here.on_gpu:
            device.exact(torch)  # with a dynamo backend accelerate has turned TF32 on
        here.reports(accelerate_world_size=here.accelerator.num_processes)
    elif here.world > 1:
        here.about_to("init_process_group")
        backend = here.orders.backend or ("nccl" if here.on_gpu else "gloo")
        torch.distributed.init_process_group(backend, timeout=limit)


def _long(here: Here) -> timedelta:
    """For what the runner stops long before when it hangs."""
    return timedelta(seconds=max(60.0, 4 * here.orders.stall_s))


def _compare(here: Here) -> None:
    torch, expected = here.torch, here.orders.world
    joined = torch.distributed.is_initialized()
    world = torch.distributed.get_world_size() if joined else 1
    here.reports(world_size=world)
    if world != expected:
        raise Failure(
            f"torch.distributed has a world of {world}, the config asks for {expected}",
            "wrong_world",
            found=world,
            wanted=expected,
        )
    if here.accelerator is not None and here.accelerator.num_processes != expected:
        raise Failure(
            f"accelerate counts {here.accelerator.num_processes} rank, the config asks for {expected}: "
            "each would train alone",
            "wrong_world",
            found=here.accelerator.num_processes,
            wanted=expected,
        )
    if joined and torch.distributed.get_rank() != here.rank:
        found = torch.distributed.get_rank()
        raise Failure(
            f"torch.distributed calls this rank {found}, the launcher {here.rank}",
            "wrong_layout",
            what="rank",
            found=found,
            wanted=here.rank,
        )


def _first_barrier(here: Here) -> None:
    """gloo's names the ranks that do not come; on GPUs one of NCCL follows, its first collective.

    There gloo is only for the names: where it finds no way and NCCL does, the training runs all the same.
    """
    distributed = here.torch.distributed
    limit = timedelta(seconds=max(_BARRIER_S, 0.7 * here.orders.stall_s))  # before the runner stops it
    if distributed.get_backend() == "gloo":
        _all_come(here, None, limit)
        return
    here.about_to("a gloo group beside it")
    try:
        _all_come(here, distributed.new_group(backend="gloo", timeout=limit), limit)
    except RuntimeError as error:
        here.skips(f"a first barrier over gloo, beside NCCL: {str(error).splitlines()[0]}")
    here.about_to("first barrier of NCCL")
    distributed.barrier(device_ids=[here.device.index])
    here.wait()


def _all_come(here: Here, group: Any, limit: timedelta) -> None:
    """Raises Failure (ranks_missing)."""
    here.about_to("first barrier")
    try:
        here.torch.distributed.monitored_barrier(group, timeout=limit, wait_all_ranks=True)
    except RuntimeError as error:
        found = _MISSING.search(str(error))
        if not found or "by peer" in str(error):  # it came, and is gone: its address stands in these words
            raise
        absent = [int(rank) for rank in re.findall(r"\d+", found[1])]
        peers = here.journal.report.get("peers", [])
        hosts = sorted({one["host"] for one in peers if one["rank"] in absent and one.get("host")})
        names = f"rank{'s' if len(absent) > 1 else ''} {found[1].strip()}"
        raise Failure(
            f"{names} did not come to the first barrier within {limit.total_seconds():.0f} s",
            "ranks_missing",
            ranks=absent,
            hosts=hosts,
            limit_s=limit.total_seconds(),
        ) from None
