"""More programs that hang: `python others.py NAME`. Groups, starts, files, processes and locks."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import torch
import torch.distributed as dist

from tests.hangs.training import main, program, steps

_NEW_MOUNTS, _PRIVATE = 0x20000, 1 << 18 | 1 << 14
_LIBC = ctypes.CDLL(None, use_errno=True)


@program
def loss_branch(rank: int) -> None:
    """A backward that depends on the loss of this rank."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    for step in range(8):
        loss = model(torch.zeros(4, 20)).pow(2).mean() + (rank if step == 5 else 0)
        if loss < 1:
            loss.backward()  # THERE
    dist.barrier()  # HERE


@program
def no_sync_on_one(rank: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 20))
    for step in range(8):
        if step == 5 and rank == 1:
            with model.no_sync():
                model(torch.randn(4, 20)).sum().backward()
        else:
            model(torch.randn(4, 20)).sum().backward()  # THERE
    dist.barrier()  # HERE


@program
def raises_with_thread(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            threading.Thread(target=time.sleep, args=(1000,)).start()
            raise KeyError("label")  # HERE


@program
def never_answers(rank: int) -> None:
    """A FUSE mount whose server does not answer, in a mount namespace of its own."""
    for step in steps(12):
        if step == 8 and rank == 1:
            folder = _mounted("fuse", f"fd={os.open('/dev/fuse', os.O_RDWR)},rootmode=40000,user_id=0,group_id=0")
            os.stat(f"{folder}/model.safetensors")  # HERE


def _mounted(kind: str, options: str) -> str:
    folder = tempfile.mkdtemp()
    if _LIBC.unshare(_NEW_MOUNTS) or _LIBC.mount(b"none", b"/", None, _PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    if _LIBC.mount(b"none", folder.encode(), kind.encode(), 0, options.encode()):
        raise OSError(ctypes.get_errno(), f"no mount of {kind}")
    return folder


@program
def disk_full(rank: int) -> None:
    """A save that waits for space."""
    folder = _mounted("tmpfs", "size=64k") if rank == 0 else ""
    for step in steps(12):
        if step == 8 and rank == 0:
            try:
                torch.save(torch.ones(1 << 20), f"{folder}/model.pt")
            except (OSError, RuntimeError):
                while shutil.disk_usage(folder).free < 1 << 22:
                    time.sleep(0.5)  # HERE


@program
def endless(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            while True:
                _ = [object() for _ in range(1000)]  # HERE


@program
def debugs(rank: int) -> None:
    left, right = os.pipe()
    os.dup2(left, 0)
    del right
    for step in steps(12):
        if step == 8 and rank == 1:
            breakpoint()  # HERE


@program
def subset(rank: int) -> None:
    """A collective of a group of ranks 0 and 1, which rank 1 does not call."""
    group = dist.new_group([0, 1])
    for step in steps(8):
        if step == 6 and rank == 0:
            dist.all_reduce(torch.ones(7), group=group)  # HERE


@program
def receives(rank: int) -> None:
    for step in steps(8):
        if step == 6 and rank == 1:
            dist.recv(torch.zeros(3), src=0)  # HERE


@program
def lone_object_list(rank: int) -> None:
    for step in steps(8):
        if step == 6 and rank == 1:
            dist.broadcast_object_list([None], src=0)  # HERE
    dist.barrier()


@program
def start_late(rank: int) -> None:
    if rank == 1:
        time.sleep(1000)  # HERE
    dist.init_process_group("gloo")


@program
def start_wrong_number(rank: int) -> None:
    dist.init_process_group("gloo", world_size=dist_world() + 1, rank=rank)  # HERE


def dist_world() -> int:
    return int(os.environ["WORLD_SIZE"])


@program
def holds_gil(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            left, _ = os.pipe()
            ctypes.PyDLL(None).read(left, ctypes.create_string_buffer(1), 1)  # HERE


@program
def empty_queue(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            queue.Queue().get()  # HERE


@program
def silent_child(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE)
            child.communicate()  # HERE


def _dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@program
def pool_of_dead(rank: int) -> None:
    """A worker that the OOM killer ends: its task is lost."""
    for step in steps(12):
        if step == 8 and rank == 1:
            with multiprocessing.get_context("fork").Pool(1) as pool:
                pool.map(_dies, [1])  # HERE


@program
def polls_file(rank: int) -> None:
    for step in steps(12):
        if step == 8 and rank == 1:
            while not os.path.exists("/tmp/no-such-file-of-mgpu"):
                time.sleep(0.1)  # HERE


@program
def waits_for_event(rank: int) -> None:
    event = threading.Event()
    for step in steps(12):
        if step == 8 and rank == 1:
            event.wait()  # HERE


if __name__ == "__main__":
    main()
