"""Programs that are slow, and healthy: `python healthy.py NAME`. Each makes no progress for WORK_S s, then ends."""

from __future__ import annotations

import fcntl
import http.server
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from tests.hangs.training import WORK_S, main, program, steps, work

_SHARED = f"/tmp/mgpu-healthy-{os.getppid()}"


def _trained() -> None:
    for _ in steps(4):
        pass


@program
def busy_rank(rank: int) -> None:
    """Rank 0 evaluates alone while the others wait in a barrier."""
    _trained()
    if rank == 0:
        work()  # HERE
    dist.barrier()


@program
def resumes(rank: int) -> None:
    """A sleep that ends: the run makes progress again."""
    for step in steps(12):
        if step == 8 and rank == 1:
            time.sleep(WORK_S)  # HERE
    time.sleep(2)  # the run must be seen once more before it ends


@program
def busy_pool(rank: int) -> None:
    """Rank 0 waits for its pool."""
    _trained()
    if rank == 0:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(work, (WORK_S,))
    dist.barrier()


@program
def all_slow(rank: int) -> None:
    """Every rank computes one long step, as in compilation."""
    _trained()
    work()
    dist.barrier()


@program
def all_sleep(rank: int) -> None:
    """Every rank waits for the same time, for example for a server's limit."""
    _trained()
    time.sleep(WORK_S)
    dist.barrier()


@program
def tokenizes(rank: int) -> None:
    """Rank 0 works under a file lock, the others wait for it."""
    _trained()
    if rank:
        time.sleep(0.5)
    with open(_SHARED, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if rank == 0:
            work()
    dist.barrier()


@program
def saves(rank: int) -> None:
    """Rank 0 writes to a slow disk."""
    _trained()
    if rank == 0:
        until = time.monotonic() + WORK_S
        with open(_SHARED, "wb") as file:
            while time.monotonic() < until:
                file.write(os.urandom(1 << 18))
                file.flush()
                time.sleep(0.3)
        os.unlink(_SHARED)
    dist.barrier()


@program
def accumulates(rank: int) -> None:
    """No optimizer step and no collective for a long time."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(400, 400))
    until = time.monotonic() + WORK_S
    with model.no_sync():
        while time.monotonic() < until:
            model(torch.randn(256, 400)).sum().backward()
    model(torch.randn(4, 400)).sum().backward()
    dist.barrier()


@program
def polls(rank: int) -> None:
    """Rank 1 polls for a file while rank 0 works."""
    _trained()
    if rank == 0:
        work()
        open(_SHARED, "w").close()
    while not os.path.exists(_SHARED):
        time.sleep(0.1)
    dist.barrier()
    if rank == 0:
        os.unlink(_SHARED)


@program
def busy_child(rank: int) -> None:
    """Rank 0 waits for a program that works."""
    _trained()
    if rank == 0:
        code = f"import time\nuntil = time.time() + {WORK_S}\nwhile time.time() < until: pass"
        subprocess.run([sys.executable, "-c", code], check=True)
    dist.barrier()


class _Slow(Dataset):  # type: ignore[misc]
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank and index == 8:
            work()
        return torch.randn(20)


@program
def slow_loader(rank: int) -> None:
    """A loader's worker of rank 1 works on one sample."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    for batch in DataLoader(_Slow(rank), batch_size=4, num_workers=1):
        model(batch).sum().backward()


class _Throttled(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        until = time.monotonic() + WORK_S
        with suppress(OSError):
            while time.monotonic() < until:
                self.wfile.write(bytes(2000))
                time.sleep(0.1)

    def log_message(self, *_: object) -> None:
        pass


@program
def downloads(rank: int) -> None:
    """Rank 0 downloads slowly from another process: hardly any CPU."""
    _trained()
    if rank == 0:
        left, right = multiprocessing.Pipe()
        serve = multiprocessing.get_context("fork").Process(target=_serve, args=(right,), daemon=True)
        serve.start()
        with urllib.request.urlopen(f"http://127.0.0.1:{left.recv()}/model") as answer:
            answer.read()
        serve.terminate()
    dist.barrier()


def _serve(pipe: object) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Throttled)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(server.server_address[1])  # type: ignore[attr-defined]
    time.sleep(WORK_S + 60)


if __name__ == "__main__":
    main()
    os._exit(0)  # now and then gloo's threads abort the end of the interpreter, with and without the recorder
