"""checks/processes.py"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import LeftFile, LeftProcess
from tests.checks.facts import (
    DOCKER,
    GIB,
    MIB,
    WSL,
    Case,
    folder,
    gpu,
    gpus,
    informs,
    leftovers,
    lost,
    problem,
    process,
    pytorch,
    seen,
    skips,
    storage,
    system,
    table,
    warns,
    well,
)

TRAINING = gpu(2, processes=(process(),), memory_used_bytes=31 * GIB)


def shm(name: str = "nccl-d5rTd0", size: int = 10 * MIB, age_s: float = 60.0, alive: bool | None = False) -> LeftFile:
    return LeftFile(f"/dev/shm/{name}", "shm", size, age_s, alive)


def lock(age_s: float = 600.0, alive: bool | None = None) -> LeftFile:
    return LeftFile("/home/ada/.cache/torch_extensions/py311_cu130/cpu_adam/lock", "lock", 0, age_s, alive)


def old_rank(pid: int = 4711, orphan: bool | None = True) -> LeftProcess:
    return LeftProcess(pid, "python", "rank", True, 7200.0, pid % 10, 29500, orphan)


MPS = LeftProcess(99, "nvidia-cuda-mps", "mps", False)
NSYS = LeftProcess(98, "nsys", "profiler", False)
DCGM = LeftProcess(97, "nv-hostengine", "dcgm", False)
RAY = LeftProcess(95, "raylet", "ray", True, 7200.0, ray_gpus=4.0)
ZOMBIE = LeftProcess(96, "python", "zombie", True)
ON_NFS = storage(folder("extensions", "/home/ada/.cache/torch_extensions", filesystem="nfs4"))
TINY = system(shm_total_bytes=64 * MIB, shm_free_bytes=54 * MIB)

CASES = (
    # gpu_busy: a compute process with 1 GiB or more
    warns("gpu_busy", "GPU 2 in use (30 GiB of 80 GiB)", "export CUDA_VISIBLE_DEVICES=0,1,3",
        gpus=gpus(4, TRAINING)),
    warns("gpu_busy", "GPU 2 in use", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", gpus=gpus(4, TRAINING)),
    warns("gpu_busy", "GPU 0", "kill 4711", gpus=gpus(4, gpu(0, processes=(process(mine=True),)))),
    warns("gpu_busy", "GPUs 0 and 1 in use (30 GiB of 80 GiB on GPU 0)", "nvidia-smi",
        gpus=gpus(2, processes=(process(user=None, mine=None),))),
    warns("gpu_busy", "GPU 0 in use (1.0 GiB", "CUDA_VISIBLE_DEVICES=1,2,3",
        gpus=gpus(4, gpu(0, processes=(process(memory_bytes=GIB),)))),
    warns("gpu_busy", "GPU 0 in use", "CUDA_VISIBLE_DEVICES=1,2,3",
        gpus=gpus(4, gpu(0, processes=(process(memory_bytes=None),)))),
    warns("gpu_busy", "GPU 2 in use", "export CUDA_VISIBLE_DEVICES=1",
        gpus=gpus(4, gpu(0, permitted=False), gpu(1, permitted=False), TRAINING), visible=seen(2, 3)),
    warns("gpu_busy", "GPU 2 in use", "export CUDA_VISIBLE_DEVICES=0,3", gpus=gpus(4, TRAINING, lost(1))),
    well("gpu_busy", "no other process on 4 of 4 visible GPUs"),
    well("gpu_busy", "4 of 4", gpus=gpus(processes=(process(memory_bytes=GIB - 1),))),
    well("gpu_busy", "4 of 4", gpus=gpus(processes=(process(kind="graphics"),))),
    well("gpu_busy", "2 of 2", gpus=gpus(4, TRAINING), visible=seen(0, 1, value="0,1")),
    well("gpu_busy", "3 of 4", gpus=gpus(4, gpu(1, processes=None))),
    skips("gpu_busy", "no visible GPU lists", gpus=gpus(processes=None)),
    # gpu_memory_without_process: more than 2 GiB that nobody holds
    warns("gpu_memory_without_process", "GPU 1: 40 GiB in use without a process", "sudo fuser -v /dev/nvidia1",
        gpus=gpus(4, gpu(1, memory_used_bytes=41 * GIB, memory_reserved_bytes=GIB))),
    warns("gpu_memory_without_process", "GPU 1", "fuser",
        gpus=gpus(4, gpu(1, memory_used_bytes=2 * GIB + 1, memory_reserved_bytes=0))),
    warns("gpu_memory_without_process", "GPU 1", "fuser",
        gpus=gpus(4, gpu(1, memory_reserved_bytes=0, memory_used_bytes=32 * GIB + 1, processes=(process(),)))),
    warns(
        "gpu_memory_without_process",
        "GPU 1: 5.0 GiB in use without a process",
        "fuser",
        gpus=gpus(4, gpu(1, memory_reserved_bytes=0, memory_used_bytes=35 * GIB, processes=(process(),))),
    ),
    well("gpu_memory_without_process", "memory of 4 GPUs is accounted for"),
    well("gpu_memory_without_process", "4 GPUs", gpus=gpus(memory_reserved_bytes=0, memory_used_bytes=2 * GIB)),
    well("gpu_memory_without_process", "4 GPUs",
        gpus=gpus(memory_reserved_bytes=0, memory_used_bytes=30 * GIB + 600 * MIB, processes=(process(),))),
    well("gpu_memory_without_process", "3 GPUs", gpus=gpus(4, gpu(0, memory_reserved_bytes=0, memory_used_bytes=None))),
    skips("gpu_memory_without_process", "processes outside this container are not visible", container=DOCKER),
    skips("gpu_memory_without_process", "processes outside this container are not visible", container=WSL),
    skips("gpu_memory_without_process", "not reported by any visible GPU",
        gpus=gpus(memory_reserved_bytes=0, memory_used_bytes=40 * GIB, processes=(process(memory_bytes=None),))),
    skips("gpu_memory_without_process", "not reported by any visible GPU", gpus=gpus(processes=None)),
    # rank_orphaned: its launcher is gone; one that is alive, or may be, is only told
    warns("rank_orphaned", "2 ranks of an earlier run without a launcher, started 2 h ago, port 29500", "kill 4710",
        leftovers=leftovers(processes=(old_rank(4710), old_rank(4711)))),
    warns("rank_orphaned", "1 rank of an earlier run", "ps -o pid,ppid,lstart,args -p 4711",
        leftovers=leftovers(processes=(old_rank(), old_rank(4712, False), MPS))),
    well("rank_orphaned", "0 ranks of yours"),
    well("rank_orphaned", "2 ranks of yours, none without a launcher",
        leftovers=leftovers(processes=(old_rank(4711, False), old_rank(4712, None)))),
    skips("rank_orphaned", "leftovers was not checked", leftovers=None),
    # rank_of_another_run
    informs("rank_of_another_run", "2 ranks of another run of yours on this machine, started 2 h ago", "launcher",
        leftovers=leftovers(processes=(old_rank(4711, False), old_rank(4712, None)))),
    well("rank_of_another_run", "no other run", leftovers=leftovers(processes=(old_rank(),))),
    # rank_zombie
    informs("rank_zombie", "1 zombie process of yours (pid 96)",
        "ps -o ppid= -p 96", leftovers=leftovers(processes=(ZOMBIE,))),
    informs("rank_zombie", "1 zombie process of yours (pid 96)",
        "ps", leftovers=leftovers(processes=(replace(ZOMBIE, age_s=60.0),))),
    well("rank_zombie", "no zombie", leftovers=leftovers(processes=(replace(ZOMBIE, age_s=59.9),))),
    well("rank_zombie", "no zombie", leftovers=leftovers(processes=(old_rank(),))),
    # mps_running
    informs("mps_running", "MPS runs here (pid 99)", "echo quit | sudo nvidia-cuda-mps-control",
        leftovers=leftovers(processes=(MPS,))),
    well("mps_running", "MPS does not run here"),
    skips("mps_running", "not all processes", leftovers=leftovers(sees_all_processes=False)),
    # ray_misses_gpus: Ray counts the GPUs once, when its node starts
    warns("ray_misses_gpus", "Ray offers 4 of 8 visible GPUs (pid 95)",
        "ray start --head --num-gpus=8", leftovers=leftovers(processes=(RAY,)), gpus=gpus(8), visible=seen(*range(8))),
    warns("ray_misses_gpus", "Ray offers 0 of 1 visible GPU (pid 95)", "ray stop",
        leftovers=leftovers(processes=(replace(RAY, ray_gpus=0.0),)), gpus=gpus(1), visible=seen(0)),
    warns("ray_misses_gpus", "Ray offers 4 of 8 visible GPUs", "ps -o pid,user,lstart -p 95",
        leftovers=leftovers(processes=(replace(RAY, mine=False),)), gpus=gpus(8), visible=seen(*range(8))),
    well("ray_misses_gpus", "Ray offers 4 GPUs",
        leftovers=leftovers(processes=(RAY,)), gpus=gpus(8), visible=seen(4, 5)),
    well("ray_misses_gpus", "Ray offers 8 GPUs",
        leftovers=leftovers(processes=(RAY, replace(RAY, pid=96))), gpus=gpus(8), visible=seen(*range(8))),
    well("ray_misses_gpus", "Ray does not run here", leftovers=leftovers()),
    skips("ray_misses_gpus", "cannot be read", leftovers=leftovers(processes=(replace(RAY, ray_gpus=None),))),
    skips("ray_misses_gpus", "not all processes", leftovers=leftovers(sees_all_processes=False)),
    skips("ray_misses_gpus", "MIG", leftovers=leftovers(processes=(RAY,)), gpus=gpus(1, mig_mode=True)),
    # profiler_running
    informs("profiler_running", "a profiler runs here: nsys (pid 98)", "-p 98", leftovers=leftovers(processes=(NSYS,))),
    well("profiler_running", "no profiler here (only nv-hostengine, which is fine)",
        leftovers=leftovers(processes=(DCGM,))),
    skips("profiler_running", "not all processes", leftovers=leftovers(sees_all_processes=None)),
    # shm_holds_leftovers: a tenth of /dev/shm, or 1 GiB
    warns("shm_holds_leftovers", "10 MiB of 64 MiB in /dev/shm left over from killed runs (1 file)",
        "rm /dev/shm/nccl-d5rTd0", leftovers=leftovers(files=(shm(), lock())), system=TINY),
    warns("shm_holds_leftovers", "1.0 GiB of 512 GiB in /dev/shm left over from killed runs (2 files)",
        "ls -la /dev/shm",
        leftovers=leftovers(files=(shm("a", GIB - 4096), shm("torch_1_2_3", 4096)))),
    warns("shm_holds_leftovers", "1.0 GiB", "rm", leftovers=leftovers(files=(shm(size=GIB),)),
        system=system(shm_total_bytes=None)),
    well("shm_holds_leftovers", "0 leftover files (0 MiB) in /dev/shm"),
    well("shm_holds_leftovers", "1 leftover file (1024 MiB) in /dev/shm, 0 in use or unknown",
        leftovers=leftovers(files=(shm(size=GIB - 4096),))),
    well("shm_holds_leftovers", "1 in use", leftovers=leftovers(files=(shm(alive=True),)), system=TINY),
    well("shm_holds_leftovers", "0 leftover files (0 MiB) in /dev/shm",
        leftovers=leftovers(files=(shm(age_s=59.9),)), system=TINY),
    well("shm_holds_leftovers", "1 leftover file (6 MiB) in /dev/shm, 0 in use or unknown",
        leftovers=leftovers(files=(shm(size=6 * MIB),)), system=TINY),
    skips("shm_holds_leftovers", "10 MiB of yours in /dev/shm, but the owning processes are not visible from here",
        leftovers=leftovers(files=(shm(alive=None),)), system=TINY),
    # extension_lock_stale: ten minutes, and no compiler
    warns("extension_lock_stale", "1 stale lock of a torch extension build, 10 min old, no compiler runs",
        "rm /home/ada/.cache/torch_ext",
        leftovers=leftovers(files=(lock(),))),
    well("extension_lock_stale", "1 lock of running builds", leftovers=leftovers(files=(lock(599.9),))),
    well("extension_lock_stale", "1 lock of running builds", leftovers=leftovers(files=(lock(9999, True),))),
    well("extension_lock_stale", "no build lock", leftovers=leftovers(files=(shm(),))),
    # On a file server another node may be building: an hour.
    well("extension_lock_stale", "1 lock of running builds", storage=ON_NFS,
        leftovers=leftovers(files=(lock(3599.0),))),
    warns("extension_lock_stale", "1 stale lock of a torch extension build, 1 h old, no compiler runs",
        "rm /home/ada", storage=ON_NFS,
        leftovers=leftovers(files=(lock(3600.0),))),
    skips("extension_lock_stale", "could not be read", leftovers=leftovers(locks_searched=False)),
    skips("extension_lock_stale", "torch 2.14.0 may keep this file without waiting for it",
        leftovers=leftovers(files=(lock(),)),
        pytorch=pytorch(version="2.14.0")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_memory_that_is_not_known_is_not_told() -> None:
    found = problem("gpu_busy", gpus=gpus(4, gpu(0, processes=(process(memory_bytes=None),))))
    assert found.title == "GPU 0 in use"
