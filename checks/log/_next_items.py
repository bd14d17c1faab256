"""Why has next() nothing to return: is the data used up, or does a module have no parameters?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._own_objects import NAME, Meaning

_PARAMETERS = re.compile(
    r"\bnext\((?:iter\()?(?P<of>[A-Za-z_][\w.]{0,80})\.(?P<what>(?:named_)?(?:parameters|buffers|children|modules))\("
)


def used_up(one: UncaughtException) -> Meaning | None:
    """Explain an iterator that has no items left."""
    found = re.search(rf"\bnext\((?!iter\()(?P<of>{NAME})", one.code or "")
    if short_name(one.type) != "StopIteration" or not found:
        return None
    name = found["of"]
    return Meaning(
        f"{name} has no more items ({one.place})",
        "An iterator yields its data once. The loop asks for more steps than one pass of the data has on this rank, or "
        "the data, a filter or this rank's share of it is empty from the start: the step at which it fails decides.",
        (
            Fix(
                "Start the next pass where it ends, or limit the number of steps.",
                (python("try: batch = next({:dotted})", name), "except StopIteration: iterator = iter(dataloader)"),
            ),
            Fix(f"Compare the number of steps with the length of what {name} reads, on every rank."),
        ),
    )


def without_parameters(one: UncaughtException) -> Meaning | None:
    """Explain next(self.parameters()) that finds none: in a copy of nn.DataParallel, or in an empty module."""
    found = _PARAMETERS.search(one.code or "")
    if short_name(one.type) != "StopIteration" or not found:
        return None
    what = f"{found['of']}.{found['what']}()"
    input_of = Fix("Take the device and the dtype from an input of forward().", ("device, dtype = x.device, x.dtype",))
    if any("nn/parallel/" in frame for frame in one.frames) or "in replica" in (one.cause or ""):
        return Meaning(
            f"{what} is empty in the copies that nn.DataParallel makes of the model ({one.place})",
            "Since torch 1.5, the copies on the GPUs have their weights as plain tensors: parameters() returns none of "
            "them, so next() has nothing to return. It works with one GPU, and with DistributedDataParallel.",
            (
                Fix("Start one process per GPU, with DistributedDataParallel.", ("mgpu launch train.py",)),
                input_of,
                Fix("Or use one GPU.", ("CUDA_VISIBLE_DEVICES=0 python train.py",)),
            ),
        )
    return Meaning(
        f"{what} is empty: the module has no {found['what'].replace('_', ' ')} at that point ({one.place})",
        "The line takes the first one, usually for its device or dtype. The module has none of its own, its layers are "
        "created later or are in a plain list, or a wrapper (nn.DataParallel, FSDP) replaced them.",
        (input_of, Fix("If it should have some, put its layers into nn.ModuleList or nn.ParameterList.")),
    )
