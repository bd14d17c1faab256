"""Stage "device": does this rank's GPU compute correctly on its own?"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import compute, identity, memory
from .context import Here
from .journal import Failure

_TURN_LIMIT_S = 10.0  # longer than a host's other ranks measure; after that this rank measures at the same time
_TURN_POLL_S = 0.005
_MODEL = 24  # characters of a GPU's name


def run_stage(here: Here) -> str:
    """Find the device, compute in every dtype, test its memory, and measure its rates."""
    here.device = _device(here)
    here.reports(**identity.identity_facts(here))
    here.journal.introduce()
    kinds = compute.precisions(here)
    _compute(here, kinds)
    memory.check(here)
    with _turn(here), here.alone():
        _measure(here, kinds)
    memory.fill(here)
    rate = here.journal.report["measured"]["gemm_tflops_fp32"]
    model = identity.model(here).removeprefix("NVIDIA ")[:_MODEL].rstrip()  # the row must fit into 80 columns
    return f"{model}, {rate:.2g} TFLOP/s fp32"


def _device(here: Here) -> Any:
    """Return this rank's GPU; the CPU only if the run was started for the CPU."""
    torch = here.torch
    if here.orders.cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "y", "t"):
        return torch.device("cpu")
    here.about_to("find the GPU", limit_s=here.orders.start_limit_s)  # the driver initializes every GPU it finds
    if not torch.cuda.is_available():
        raise Failure("torch finds no GPU in this process, and the run was not started for the CPU", "no_gpu")
    count = torch.cuda.device_count()
    if here.local_rank >= count:
        raise Failure(f"local rank {here.local_rank} has no GPU: torch finds {count}", "no_gpu_for_rank", visible=count)
    torch.cuda.set_device(here.local_rank)
    disable_tf32(torch)
    return torch.device("cuda", here.local_rank)


def disable_tf32(torch: Any) -> None:
    """Turn off TF32, so that fp32 has full precision like the reference."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def _compute(here: Here, kinds: dict[str, Any]) -> None:
    """Run the same computation on every rank: the bits must match between equal GPUs and between two runs."""
    digests: dict[str, str] = {}
    for name, kind in kinds.items():
        here.about_to(f"matrix products in {name}")
        digests[name], finite = compute.chain(here, kind)
        if not finite:
            raise Failure(f"matrix products in {name} are infinite or NaN", "not_finite", dtype=name)
        if here.on_gpu or here.orders.level != "quick":
            again, _ = compute.chain(here, kind)
            if again != digests[name]:
                raise Failure(
                    f"the same matrix products in {name} differ between two runs",
                    "unsteady_bits",
                    dtype=name,
                    first=digests[name],
                    second=again,
                )
    here.about_to("arithmetic in int64")
    digests["int64"] = compute.whole_numbers(here)
    here.reports(computed=digests)
    if here.orders.precision == "fp8":
        here.skips("fp8 kernels: part of the model's library (fp32, bf16, fp16 tested)")


def _measure(here: Here, kinds: dict[str, Any]) -> None:
    here.about_to("time local compute")
    here.measured(compute_seconds=compute.own_seconds(here))
    for name, kind in kinds.items():
        here.about_to(f"time matrix products in {name}")
        here.measured(**{f"gemm_tflops_{name}": compute.gemm_tflops(here, kind)})
    if here.on_gpu:
        here.about_to("time copies through pinned memory")
        here.measured(**compute.copy_rates(here))
        here.torch.cuda.empty_cache()
    else:
        here.skips("host-to-device copy: no GPU")


@contextlib.contextmanager
def _turn(here: Here) -> Iterator[None]:
    """Let one rank of a host measure at a time: ranks share cores and PCIe bandwidth.

    Best effort: after a timeout, or without file locks, the rank measures at the same time as others.
    """
    path = Path(here.orders.folder) / f"turn.{socket.gethostname()}"
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            closing.callback(os.close, file)  # releases the lock
            here.about_to("wait for its turn to measure")
            limit = time.monotonic() + min(_TURN_LIMIT_S, here.orders.stall_s / 2)
            while time.monotonic() < limit:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_TURN_POLL_S)
        yield
