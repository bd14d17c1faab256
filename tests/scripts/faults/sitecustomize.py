"""Makes one rank of the smoke test fail, at a word of its journal that FAULT_WORD names (in rung FAULT_RUNG, if set),
or, without a word, as soon as its Python starts.

Python imports this file at start when its folder is on PYTHONPATH. The worker announces each step with one os.write;
here that is the moment of the fault, so that it comes at the same place every time and the product needs no hook.
"""

from __future__ import annotations

import atexit
import gc
import os
import resource
import signal
import sys
import time
from typing import Any

gc.set_threshold(100_000)  # as in ../startup, which this file hides
atexit.register(gc.freeze)

_WORD = f'"word": "{os.environ.get("FAULT_WORD", "")}'.encode()
_RUNG = f'"rung": "{os.environ["FAULT_RUNG"]}"'.encode() if os.environ.get("FAULT_RUNG") else b""
_WRITE = os.write


def _write(handle: int, data: Any) -> int:
    if _WORD not in bytes(data) or _RUNG not in bytes(data):
        return _WRITE(handle, data)
    os.write = _WRITE
    if os.environ["FAULT_HOW"] == "sleep":  # it never comes as far
        time.sleep(3600)
    written = _WRITE(handle, data)
    _fail(os.environ["FAULT_HOW"])
    return written


_THROTTLE = """
import os, signal, time
try:
    while True:
        for number, seconds in ((signal.SIGSTOP, 0.07), (signal.SIGCONT, 0.01)):
            os.kill({pid}, number)
            time.sleep(seconds)
except OSError:
    pass
"""


def _fail(how: str) -> None:
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(0.2)  # a stop may take effect a moment later
    elif how.startswith("exit "):
        os._exit(int(how.removeprefix("exit ")))
    elif how == "throttle":  # as a CPU limiter does: an eighth of the time is left
        import subprocess

        subprocess.Popen([sys.executable, "-S", "-c", _THROTTLE.format(pid=os.getpid())])
    elif how == "leave a file":  # as a DataLoader does that is not shut down
        open(f"/dev/shm/torch_{os.getpid()}_1_0", "w").close()
    elif how == "raise":
        raise OSError("the disk is on fire")
    elif how == "no memory":  # as after `ulimit -v`: what it has, and 64 MiB
        with open("/proc/self/statm") as numbers:
            pages = int(numbers.read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20),) * 2)
        bytearray(256 << 20)
    elif how == "too much memory":  # more than the limit of its container or job
        bytearray(4 << 30)
    elif how == "wrong gradient":
        _wrong_gradient(sys.modules["torch"])


def _wrong_gradient(torch: Any) -> None:
    """After each backward pass every gradient of the DDP model is 1 % too large on this rank."""
    wrapped = []
    real, backward = torch.nn.parallel.DistributedDataParallel, torch.Tensor.backward

    def wrap(*arguments: Any, **keywords: Any) -> Any:
        wrapped.append(real(*arguments, **keywords))
        return wrapped[0]

    def backward_and_more(tensor: Any, *arguments: Any, **keywords: Any) -> None:
        before = [p.grad for p in wrapped[0].parameters()]
        backward(tensor, *arguments, **keywords)
        for old, parameter in zip(before, wrapped[0].parameters(), strict=True):
            if old is None and parameter.grad is not None:
                parameter.grad.mul_(1.01)

    torch.nn.parallel.DistributedDataParallel = wrap
    torch.Tensor.backward = backward_and_more


if "RANK" in os.environ and os.environ.get("FAULT_RANK") in ("all", os.environ["RANK"]):
    if os.environ["FAULT_WORD"]:
        os.write = _write
    else:
        _fail(os.environ["FAULT_HOW"])
