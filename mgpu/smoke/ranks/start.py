"""Stage "start": does this rank start, and is the world size the one in the config?"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket

from .context import Here
from .journal import Failure


def run_stage(here: Here) -> str:
    """Compare the launcher's world with the config, and import torch."""
    here.reports(local_rank=here.local_rank, host=socket.gethostname())
    here.journal.introduce()
    if here.world != here.orders.world:
        raise Failure(
            f"the launcher started {here.world} ranks, the config asks for {here.orders.world}",
            "wrong_world",
            found=here.world,
            wanted=here.orders.world,
        )
    _layout(here)
    here.about_to("import torch", limit_s=here.orders.start_limit_s)
    # Imported objects stay alive: without garbage collection the imports take a quarter less time (measured on two
    # ranks and two cores, torch 2.13: 2.3 s -> 1.8 s).
    gc.disable()
    import torch

    if here.world > 1:
        import torch._dynamo  # DDP imports it lazily; here it does not delay the other ranks
    if here.by_accelerate:
        here.about_to("import accelerate", limit_s=here.orders.start_limit_s)
        import accelerate  # noqa: F401  for stage "group"

        if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
            here.about_to("import deepspeed", limit_s=here.orders.start_limit_s)
            with contextlib.suppress(ImportError):  # accelerate has a better error message
                importlib.import_module("deepspeed")

    gc.freeze()
    gc.enable()
    here.torch = torch
    return f"rank {here.rank} of {here.world}"


def _layout(here: Here) -> None:
    """Raise Failure if this node does not have its share of the ranks, or not those that the runner expects here."""
    orders, environ = here.orders, os.environ
    each = orders.ranks_here
    local = int(environ.get("LOCAL_WORLD_SIZE", each))
    node = next((node for node in range(orders.nodes) if here.rank in orders.ranks_of(node)), -1)
    if local != each:
        raise Failure(
            f"the launcher started {local} ranks on this node, the config asks for {each} on each of {orders.nodes}",
            "wrong_layout",
            what="ranks on this machine",
            found=local,
            wanted=each,
        )
    if node != orders.node:
        raise Failure(
            f"this is node {node} of {orders.nodes} for the launcher, but node {orders.node} for the smoke test",
            "wrong_layout",
            what="number of this machine",
            found=node,
            wanted=orders.node,
        )
