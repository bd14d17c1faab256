"""Runs a training script up to its first torch optimizer, writes down what it sees there, and ends at once.

A process of its own: the standard library and the script's torch, nothing of mgpu. It is killed in the middle
of the constructor: an exception could be caught by the script, and `finally` and `atexit` would still save
checkpoints or close experiment logs of a training that never was.
"""

import os
import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the folder of this file; the script's comes there once this file has what it imports

import contextlib
import json
import runpy
import signal
from typing import Any


def tell(report: str, found: "dict[str, Any]") -> None:
    """Write the report in one step and end, here and now."""
    with open(report + ".part", "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(report + ".part", report)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if os.getsid(0) == os.getpgrp():  # a session that mgpu began: the parent of a forked rank must not go on either
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def size(parameter: Any) -> int:
    """Its elements: whole where it is sharded (ZeRO-3), unpacked where it is quantised (bitsandbytes)."""
    state = getattr(parameter, "quant_state", None)
    whole = getattr(state, "shape", None) or getattr(parameter, "ds_shape", None) or parameter.shape
    number = 1
    for extent in whole:
        number *= int(extent)
    return number


def seen(optimizer: Any, torch: Any) -> "dict[str, Any]":
    """What stands there once the optimizer is built: its parameters, and those of the modules they belong to."""
    import gc

    held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    every = dict(held)
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.Module):
            with contextlib.suppress(Exception):
                own = {id(p): p for p in thing.parameters()}
                if any(key in held for key in own):
                    every.update(own)
    dtypes: dict[str, int] = {}
    for parameter in every.values():
        name = str(parameter.dtype).replace("torch.", "")
        dtypes[name] = dtypes.get(name, 0) + size(parameter)
    rates = []
    for group in optimizer.param_groups:
        with contextlib.suppress(Exception):
            rates.append(float(group["lr"]))
    return {
        "params": sum(map(size, every.values())),
        "trainable": sum(size(p) for p in held.values() if p.requires_grad),
        "dtypes": dtypes,
        "optimizer": type(optimizer).__name__,
        "rates": rates,
    }


def run(report: str, script: str) -> None:
    """Run the script. It ends the process at its first optimizer; without one it ends as it likes."""
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))  # as it is when Python runs the script
    with contextlib.suppress(Exception):  # do not outlive mgpu
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    try:
        import torch
    except Exception as error:
        tell(report, {"torch": f"{type(error).__name__}: {error}"})
    build = torch.optim.Optimizer.__init__

    def stop(self: Any, *arguments: Any, **named: Any) -> None:
        build(self, *arguments, **named)
        try:
            found = seen(self, torch)
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"}
        tell(report, found)

    torch.optim.Optimizer.__init__ = stop
    sys.argv[:] = sys.argv[2:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    run(*sys.argv[1:3])
