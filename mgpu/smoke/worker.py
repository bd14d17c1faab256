"""What each rank of the smoke test does: start, find its GPU, join, talk, train, leave.

Started by the real launcher (`accelerate launch … -m mgpu.smoke.worker`), one process a rank. Standard library and
torch; accelerate only where it is the launcher, because its own idea of the world size is part of what is tested. Every
step is announced before it is taken, one JSON line at a time, in `rankN.jsonl`; a thread touches `rankN.beat` as long
as the process lives; SIGUSR1 writes the Python stacks to `rankN.stack`. The verdict is never exchanged through the
process group under test. Nothing is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

RUNGS = ("start processes", "each rank alone", "find each other", "collectives", "training steps", "clean shutdown")
BEAT_S = 0.2
STEPS = 20  # training steps; enough for a wrong gradient to show in the parameters
MICRO_BATCH = 4
# Largest difference between a DDP gradient and the single-process reference in fp32, relative to the largest gradient
# of the parameter: the sums run in another order, nothing else differs. Measured on gloo CPU ranks: 7e-7 with 2 ranks,
# 8e-6 with 4 and 8; one rank of 2 that scales its gradient by 1.01 gives 1e-2, a wrong shard more.
GRADIENT_TOLERANCE = 1e-4
_LARGEST = 11  # numbers the collectives carry: 1 to this
_PR_SET_PDEATHSIG = 1


class Failure(Exception):
    """A rung that was tried and is wrong: the sentence for the report."""


class Journal:
    """Announces and records what this rank does, one line a write, so that a hang shows where."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"rank{rank}"
        self.file = os.open(f"{self.path}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.order = 0
        self.rung = RUNGS[0]
        self.report: dict[str, Any] = {"rank": rank, "steps": [], "measured": {}}

    def write(self, **record: Any) -> None:
        self.order += 1
        line = json.dumps({"order": self.order, "time": time.time(), "rung": self.rung, **record})
        os.write(self.file, line.encode() + b"\n")

    def about_to(self, word: str, limit_s: float | None = None) -> None:
        """Say what comes next. `limit_s`: this one may take longer than the stall limit."""
        self.write(word=word, limit_s=limit_s)

    @contextmanager
    def climbing(self, rung: str) -> Iterator[Callable[[str], None]]:
        """One rung: its detail is told by the caller; an exception is its failure."""
        self.rung = rung
        self.about_to("begins")
        start, detail = time.monotonic(), ""

        def tell(text: str) -> None:
            nonlocal detail
            detail = text

        ok, error = True, None
        try:
            yield tell
        except Exception as trouble:
            ok, error = (
                False,
                f"{type(trouble).__name__}: {trouble}" if not isinstance(trouble, Failure) else str(trouble),
            )
            detail = error.splitlines()[0] if error else ""
            self.report["error"] = error
            self.report["traceback"] = traceback.format_exc()
            raise
        finally:
            step = {"rung": rung, "ok": ok, "detail": detail, "seconds": round(time.monotonic() - start, 4)}
            self.report["steps"].append(step)
            self.write(done=step, report=self.report if not ok else None)

    def finish(self) -> None:
        """The rank's report, in one piece."""
        temporary = Path(f"{self.path}.json.tmp")
        temporary.write_text(json.dumps(self.report), "utf-8")
        temporary.replace(f"{self.path}.json")


def beat(path: str) -> None:
    """Touch a file as long as this process runs: a stopped or frozen process does not."""
    Path(path).touch()
    while True:
        os.utime(path)
        time.sleep(BEAT_S)


def main(argv: list[str] | None = None) -> None:
    """One rank, from start to clean exit; exit code 1 when a rung fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--expected", type=int, required=True)
    parser.add_argument("--stall", type=float, required=True)
    parser.add_argument("--start-limit", type=float, required=True)
    parser.add_argument("--cpu", action="store_true", help="this machine has no GPU, or a rehearsal was asked for")
    options = parser.parse_args(argv)
    # When the launcher dies by SIGKILL nobody else would end its ranks.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    rank = int(os.environ.get("RANK", "0"))
    journal = Journal(options.folder, rank)
    stack = open(f"{journal.path}.stack", "w", encoding="utf-8")  # noqa: SIM115 - faulthandler keeps it
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    threading.Thread(target=beat, args=(f"{journal.path}.beat",), daemon=True).start()
    code = 0
    try:
        climb(journal, options, rank)
    except Exception:
        code = 1
    journal.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    # Interpreter shutdown with a live process group sometimes aborts; everything is written, so leave directly.
    os._exit(code)


def climb(journal: Journal, options: argparse.Namespace, rank: int) -> None:
    """The rungs in order. Each needs the one below."""
    expected: int = options.expected
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    journal.report |= {"local_rank": local_rank, "host": socket.gethostname(), "pid": os.getpid()}
    with journal.climbing(RUNGS[0]) as tell:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world != expected:
            raise Failure(f"the launcher started a world of {world}, the config asks for {expected}")
        journal.write(identity=journal.report)
        journal.about_to("import torch", limit_s=options.start_limit)
        import torch
        import torch._dynamo  # DDP imports it lazily; here it does not hold up the others one by one

        tell(f"rank {rank} of {world}")
    with journal.climbing(RUNGS[1]) as tell:
        device = _device(torch, local_rank, options.cpu)
        journal.report |= {"device": str(device), "gpu_uuid": _uuid(torch, device)}
        journal.report["computed"] = _compute(torch, device)
        tell(f"computes on {device}")
    with journal.climbing(RUNGS[2]) as tell:
        accelerator = _join(torch, journal, options, expected, rank)
        tell(f"{expected} ranks, {'one process' if expected == 1 else torch.distributed.get_backend()}")
    with journal.climbing(RUNGS[3]) as tell:
        if expected == 1:
            tell("one rank has nobody to talk to")
        else:
            tell(_collectives(torch, journal, device, rank, expected))
    with journal.climbing(RUNGS[4]) as tell:
        tell(_train(torch, journal, device, rank, expected))
    with journal.climbing(RUNGS[5]) as tell:
        if expected > 1:
            journal.about_to("destroy the process group")
            torch.distributed.destroy_process_group()
        del accelerator
        tell("left")


def _device(torch: Any, local_rank: int, cpu: bool) -> Any:
    """This rank's GPU; the CPU only when the run was started for the CPU."""
    if cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "y", "t"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Failure("torch sees no GPU in this process, and the run was not started for the CPU")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise Failure(f"local rank {local_rank} has no GPU: torch sees {count}")
    torch.cuda.set_device(local_rank)
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference is exact fp32
    torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda", local_rank)


def _uuid(torch: Any, device: Any) -> str | None:
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else None


def _compute(torch: Any, device: Any) -> str:
    """The same computation on every rank: the bits must agree between equal GPUs."""
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(256, 256, generator=generator).to(device)
    for _ in range(8):
        matrix = torch.tanh(matrix @ matrix / 16)
    if not bool(torch.isfinite(matrix).all()):
        raise Failure("a matrix product came out infinite or NaN")
    return hashlib.sha256(matrix.cpu().numpy().tobytes()).hexdigest()[:16]


def _join(torch: Any, journal: Journal, options: argparse.Namespace, expected: int, rank: int) -> Any:
    """Form the process group as the training will: through accelerate when it is the launcher.

    accelerate starts N trainings of one rank each, and says nothing, when it finds no device to train on: its own count
    of ranks is compared with what the config asks for.
    """
    limit = timedelta(seconds=max(60.0, 4 * options.stall))  # the runner stops a hang long before
    accelerator = None
    if "ACCELERATE_MIXED_PRECISION" in os.environ:
        journal.about_to("import accelerate", limit_s=options.start_limit)
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        journal.about_to("init_process_group")
        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=limit)])
        journal.report["accelerate_world_size"] = accelerator.num_processes
    elif expected > 1:
        journal.about_to("init_process_group")
        backend = "nccl" if torch.cuda.is_available() and journal.report["device"] != "cpu" else "gloo"
        torch.distributed.init_process_group(backend, timeout=limit)
    joined = torch.distributed.is_initialized()
    world = torch.distributed.get_world_size() if joined else 1
    journal.report["world_size"] = world
    if world != expected:
        raise Failure(f"torch.distributed has a world of {world}, the config asks for {expected}")
    if accelerator is not None and accelerator.num_processes != expected:
        raise Failure(
            f"accelerate counts {accelerator.num_processes} rank, the config asks for {expected}: "
            "each would train alone"
        )
    if joined and torch.distributed.get_rank() != rank:
        raise Failure(f"torch.distributed calls this rank {torch.distributed.get_rank()}, the launcher {rank}")
    if expected > 1:
        journal.about_to("first barrier")
        torch.distributed.barrier()
    return accelerator


def _collectives(torch: Any, journal: Journal, device: Any, rank: int, world: int) -> str:
    """all-reduce, all-gather and broadcast with exactly known numbers, in several sizes and dtypes."""
    distributed = torch.distributed
    tried = 0

    def pattern(of_rank: int, size: int, dtype: Any) -> Any:
        """Small whole numbers that every dtype holds exactly, different at every place and between neighbours."""
        return (torch.arange(size, device=device) % 5 + 1 + of_rank % 7).to(dtype)

    # bf16 counts exactly to 256: in a larger world its sum could not be compared, so it is left out.
    exact_in_bf16 = _LARGEST * world <= 256
    dtypes = (torch.float32, torch.int64, *((torch.bfloat16,) if exact_in_bf16 else ()))
    for dtype in dtypes:
        for size in (1, 1000, 1 << 18):
            what = f"{size} x {str(dtype).removeprefix('torch.')}"
            journal.about_to(f"all-reduce {what}")
            tensor = pattern(rank, size, dtype)
            distributed.all_reduce(tensor)
            total = sum(pattern(r, size, torch.int64) for r in range(world))
            if not torch.equal(tensor, total.to(dtype)):
                raise Failure(f"all-reduce of {what} gave a wrong sum")
            journal.about_to(f"all-gather {what}")
            gathered = torch.empty(world * size, dtype=dtype, device=device)
            distributed.all_gather_into_tensor(gathered, pattern(rank, size, dtype))
            for r, part in enumerate(gathered.split(size)):
                if not torch.equal(part, pattern(r, size, dtype)):
                    raise Failure(f"all-gather of {what}: the part of rank {r} is wrong")
            source = world - 1
            journal.about_to(f"broadcast {what}")
            tensor = pattern(rank, size, dtype)
            distributed.broadcast(tensor, src=source)
            if not torch.equal(tensor, pattern(source, size, dtype)):
                raise Failure(f"broadcast of {what} from rank {source} arrived wrong")
            tried += 3
    return f"{tried} exact: all-reduce, all-gather, broadcast"


def _train(torch: Any, journal: Journal, device: Any, rank: int, world: int) -> str:
    """20 steps of DDP beside the same steps of one process on the whole batch: gradients and parameters must agree."""
    from torch import nn

    def model() -> Any:
        torch.manual_seed(7)
        return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 10)).to(device)

    generator = torch.Generator().manual_seed(11)
    inputs = torch.randn(STEPS, world * MICRO_BATCH, 32, generator=generator).to(device)
    targets = torch.randint(0, 10, (1, world * MICRO_BATCH), generator=generator).expand(STEPS, -1).to(device)
    inputs = inputs * 0.1 + inputs[0]  # the same samples with noise, so that the loss has to fall
    reference, trained = model(), model()
    if world > 1:
        devices = [device.index] if device.type == "cuda" else None
        journal.about_to("wrap the model in DDP")
        trained = nn.parallel.DistributedDataParallel(trained, device_ids=devices)
    loss_of = nn.CrossEntropyLoss()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.9) for m in (reference, trained)]
    losses, worst = [], 0.0
    mine = slice(rank * MICRO_BATCH, (rank + 1) * MICRO_BATCH)
    start = time.monotonic()
    for step in range(STEPS):
        journal.about_to(f"step {step + 1} of {STEPS}")
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(reference(inputs[step]), targets[step])
        loss.backward()
        loss_of(trained(inputs[step, mine]), targets[step, mine]).backward()
        for ours, theirs in zip(trained.parameters(), reference.parameters(), strict=True):
            scale = max(float(theirs.grad.abs().max()), 1e-3)
            worst = max(worst, float((ours.grad - theirs.grad).abs().max()) / scale)
        if not worst <= GRADIENT_TOLERANCE:
            raise Failure(f"step {step + 1}: gradients differ from the single-process reference by {worst:.1e}")
        for optimizer in optimizers:
            optimizer.step()
        losses.append(float(loss))
    seconds = time.monotonic() - start
    state = b"".join(p.detach().cpu().numpy().tobytes() for p in trained.parameters())
    journal.report["parameters"] = hashlib.sha256(state).hexdigest()[:16]
    journal.report["measured"] |= {"steps_per_s": STEPS / seconds, "gradient_difference": worst}
    if not losses[-1] < losses[0]:
        raise Failure(f"the loss did not fall in {STEPS} steps: {losses[0]:.3f} -> {losses[-1]:.3f}")
    kind = "DDP" if world > 1 else "one process"
    return f"{STEPS} steps ({kind}), loss {losses[0]:.2f} -> {losses[-1]:.2f}, gradients as on one process"


if __name__ == "__main__":
    main()
