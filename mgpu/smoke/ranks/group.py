"""Stage "group": do all ranks find each other, and is the world size the one in the config?"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any

from . import addresses, device, rendezvous
from .context import Here
from .journal import Failure

_BARRIER_S = 3.0  # minimum limit of the first barrier: on a busy machine a rank may not be scheduled for a second
_MISSING = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")


def run_stage(here: Here) -> str:
    """Join the rendezvous, connect to every host, create the process group like the training, check the world size."""
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
    """Raise Failure if a variable names a missing interface, before gloo or NCCL fails because of it."""
    if here.world > 1 and (found := addresses.missing_interface(os.environ, here.on_gpu)):
        variable, value = found
        there = addresses.interfaces()
        raise Failure(
            f"{variable}={value}: no such interface here. Available: {', '.join(there)}",
            "interface_missing",
            variable=variable,
            value=value,
            interfaces=there,
        )


def _meet(here: Here) -> None:
    limit = rendezvous.limit_s(here)
    here.about_to("connect to the rendezvous endpoint", limit_s=limit + here.orders.stall_s)
    store = rendezvous.store(here, limit)
    here.about_to(f"wait for {here.world - 1} other ranks", limit_s=limit + here.orders.stall_s)
    listener = rendezvous.introduce(here, store)
    peers = rendezvous.gather(here, store, limit)
    here.journal.introduce()
    if here.orders.nodes > 1:
        here.about_to("connect to the other hosts", limit_s=4 * rendezvous.REACH_S)
        rendezvous.reach(here, store, peers)
    if listener is not None:
        listener.close()
    # For ranks that wait for another's measurement; the runner stops a hang long before this timeout.
    store.set_timeout(_group_timeout(here))
    here.store = store  # must outlive the group if rank 0 hosts it


def _join(here: Here) -> None:
    """Create the process group, through accelerate if it is the launcher.

    If accelerate finds no device, it silently starts N runs of one rank each, so its number of ranks is reported too.
    """
    torch = here.torch
    limit = _group_timeout(here)
    if here.by_accelerate:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        # DeepSpeed compiles operators that have no wheel.
        compiles = here.orders.start_limit_s if here.orders.strategy == "deepspeed" else None
        here.about_to("init_process_group", limit_s=compiles)
        other = {"backend": here.orders.backend} if here.orders.backend else {}
        # A script passes them to Accelerator(); for DeepSpeed they are in its config.
        steps = {} if here.orders.strategy == "deepspeed" else {"gradient_accumulation_steps": here.orders.micro_steps}
        here.accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=limit, **other)], **steps)
        if here.on_gpu:
            device.disable_tf32(torch)  # accelerate turns it on with a dynamo backend
        here.reports(
            accelerate_world_size=here.accelerator.num_processes,
            accelerate_precision=str(here.accelerator.mixed_precision),
            accelerate_accumulation=here.accelerator.gradient_accumulation_steps,
        )
    elif here.world > 1:
        here.about_to("init_process_group")
        backend = here.orders.backend or ("nccl" if here.on_gpu else "gloo")
        torch.distributed.init_process_group(backend, timeout=limit)


def _group_timeout(here: Here) -> timedelta:
    """Return torch's timeout; the runner stops a hang long before."""
    return timedelta(seconds=max(60.0, 4 * here.orders.stall_s))


def _compare(here: Here) -> None:
    torch, expected = here.torch, here.orders.world
    joined = torch.distributed.is_initialized()
    world = torch.distributed.get_world_size() if joined else 1
    here.reports(world_size=world)
    if world != expected:
        raise Failure(
            f"the world size of torch.distributed is {world}, the config asks for {expected}",
            "wrong_world",
            found=world,
            wanted=expected,
        )
    if here.accelerator is not None and here.accelerator.num_processes != expected:
        raise Failure(
            f"accelerate reports {here.accelerator.num_processes} rank, the config asks for {expected}: "
            "each rank would train on its own",
            "wrong_world",
            found=here.accelerator.num_processes,
            wanted=expected,
        )
    if joined and torch.distributed.get_rank() != here.rank:
        found = torch.distributed.get_rank()
        raise Failure(
            f"this is rank {found} in torch.distributed, but rank {here.rank} for the launcher",
            "wrong_layout",
            what="rank",
            found=found,
            wanted=here.rank,
        )


def _first_barrier(here: Here) -> None:
    """Run a barrier over gloo, which names missing ranks, and on GPUs then one over NCCL.

    On GPUs a failure of gloo is not an error: the training only needs NCCL.
    """
    distributed = here.torch.distributed
    limit = timedelta(seconds=max(_BARRIER_S, 0.7 * here.orders.stall_s))  # before the runner stops it
    if distributed.get_backend() == "gloo":
        _all_come(here, None, limit)
        return
    here.about_to("new_group over gloo")
    try:
        _all_come(here, distributed.new_group(backend="gloo", timeout=limit), limit)
    except RuntimeError as error:
        here.skips(f"first barrier over gloo: {str(error).splitlines()[0]}")
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
        if not found or "by peer" in str(error):  # the rank joined and then exited: the message has its address
            raise
        absent = [int(rank) for rank in re.findall(r"\d+", found[1])]
        peers = here.journal.report.get("peers", [])
        hosts = sorted({one["host"] for one in peers if one["rank"] in absent and one.get("host")})
        names = f"rank{'s' if len(absent) > 1 else ''} {found[1].strip()}"
        raise Failure(
            f"{names} did not reach the first barrier within {limit.total_seconds():.0f} s",
            "ranks_missing",
            ranks=absent,
            hosts=hosts,
            limit_s=limit.total_seconds(),
        ) from None
