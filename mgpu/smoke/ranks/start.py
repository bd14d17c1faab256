"""Rung "start": is this rank there, one of as many as the config asks for?"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket

from .context import Here
from .journal import Failure


def climb(here: Here) -> str:
    """Import torch; the launcher's world is the config's."""
    here.reports(local_rank=here.local_rank, host=socket.gethostname())
    here.journal.introduce()
    if here.world != here.orders.world:
        raise Failure(
            f"the launcher started a world of {here.world}, the config asks for {here.orders.world}",
            "wrong_world",
            found=here.world,
            wanted=here.orders.world,
        )
    _layout(here)
    here.about_to("import torch", limit_s=here.orders.start_limit_s)
    # What an import makes stays: not to look through it for garbage again and again takes a quarter off (measured on
    # two ranks and two cores, torch 2.13: 2.3 s -> 1.8 s).
    gc.disable()
    import torch

    if here.world > 1:
        import torch._dynamo  # DDP imports it lazily; here it does not hold up the others one by one
    if here.by_accelerate:
        here.about_to("import accelerate", limit_s=here.orders.start_limit_s)
        import accelerate  # noqa: F401  for rung "group"

        if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
            here.about_to("import deepspeed", limit_s=here.orders.start_limit_s)
            with contextlib.suppress(ImportError):  # accelerate says it better
                importlib.import_module("deepspeed")

    gc.freeze()
    gc.enable()
    here.torch = torch
    return f"rank {here.rank} of {here.world}"


def _layout(here: Here) -> None:
    """As many ranks on this machine as on every other, and the ones whose journals are looked for here."""
    orders, environ = here.orders, os.environ
    each = here.world // orders.nodes
    local = int(environ.get("LOCAL_WORLD_SIZE", each))
    node = here.rank // each
    if local != each:
        raise Failure(
            f"the launcher started {local} ranks on this machine, the config asks for {each} on each of {orders.nodes}",
            "wrong_layout",
            what="ranks on this machine",
            found=local,
            wanted=each,
        )
    if node != orders.node:
        raise Failure(
            f"the launcher calls this machine {node} of {orders.nodes}, the smoke test {orders.node}",
            "wrong_layout",
            what="number of this machine",
            found=node,
            wanted=orders.node,
        )
