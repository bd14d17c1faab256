"""Runs a training script up to its first torch optimizer, writes a report about it, and exits at once.

This is a separate process with only the standard library and the script's torch. It is killed inside the constructor:
the script could catch an exception, and `finally` and `atexit` would still save checkpoints or close experiment logs
of a training run that never happened.
"""

import os
import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the folder of this file; replaced by the script's after the imports below

import contextlib
import json
import runpy
import signal
from typing import Any


def write_report(report: str, found: "dict[str, Any]") -> None:
    """Write the report in one step and exit at once."""
    with open(report + ".part", "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(report + ".part", report)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if os.getsid(0) == os.getpgrp():  # mgpu's session: the parent of a forked rank stops too
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def size(parameter: Any) -> int:
    """Return the number of elements, of the whole parameter if sharded (ZeRO-3) or quantized (bitsandbytes)."""
    state = getattr(parameter, "quant_state", None)
    whole = getattr(state, "shape", None) or getattr(parameter, "ds_shape", None) or parameter.shape
    number = 1
    for extent in whole:
        number *= int(extent)
    return number


def inspect(optimizer: Any, torch: Any) -> "dict[str, Any]":
    """Return facts about the optimizer: its parameters, and those of the modules they belong to."""
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
    """Run the script. Its first optimizer ends the process; without one, the script runs to its end."""
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))  # as when Python runs the script
    with contextlib.suppress(Exception):  # do not outlive mgpu
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    try:
        import torch
    except Exception as error:
        write_report(report, {"torch": f"{type(error).__name__}: {error}"})
    build = torch.optim.Optimizer.__init__

    def stop(self: Any, *arguments: Any, **named: Any) -> None:
        build(self, *arguments, **named)
        try:
            found = inspect(self, torch)
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"}
        write_report(report, found)

    torch.optim.Optimizer.__init__ = stop
    sys.argv[:] = sys.argv[2:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    run(*sys.argv[1:3])
