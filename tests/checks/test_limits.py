"""checks/limits.py"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu.check import Fix
from mgpu.snapshot import Plan
from tests.checks.facts import (
    DOCKER,
    GIB,
    KUBERNETES,
    MIB,
    NO_INFINIBAND,
    Case,
    container,
    fails,
    gpus,
    hca,
    host,
    infiniband,
    informs,
    problem,
    seen,
    skips,
    slurm,
    system,
    table,
    warns,
    well,
)


def shm(total: int, free: int | None = None) -> dict[str, Any]:
    return {"system": system(shm_total_bytes=total, shm_free_bytes=total if free is None else free)}


KIB = 1024


def locked(limit: int, hard: int | None = 64 * MIB) -> dict[str, Any]:
    """Two machines with InfiniBand, and this limit."""
    return {
        "system": system(limit_locked_memory_bytes=limit, hard_locked_memory_bytes=hard), "plan": Plan(nodes=2)
    }  # fmt: skip


def rehearsal(
    ranks: int, cores: int, level: str = "standard", limit_s: float = 120.0, memory: int = 64 * GIB
) -> dict[str, Any]:
    """A smoke test with that many CPU ranks, on a machine with these cores and this free memory."""
    plan = Plan(cpu_ranks=ranks, time_limit_s=limit_s, level=level)
    return {"plan": plan, "system": system(cpus_allowed=cores, memory_available_bytes=memory)}


CASES = (
    # shm_too_small: 64 MiB a rank, and not less than for 2
    fails("shm_too_small", "/dev/shm is 64 MiB, too small for 4 ranks", "docker run --shm-size=8g",
        **shm(64 * MIB), container=DOCKER),
    fails("shm_too_small", "/dev/shm is 64 MiB", "docker run --ipc=host", **shm(64 * MIB), container=DOCKER),
    fails("shm_too_small", "/dev/shm is 64 MiB", "kubectl explain", **shm(64 * MIB), container=KUBERNETES),
    fails("shm_too_small", "too small for 4 ranks", "remount,size=8G", **shm(256 * MIB - 1)),
    fails("shm_too_small", "/dev/shm is 64 MiB", "apptainer exec", **shm(64 * MIB),
        container=container("apptainer")),
    fails("shm_too_small", "/dev/shm is 64 MiB", "remount", **shm(64 * MIB), container=container("lxc")),
    fails("shm_too_small", "too small for 8 ranks", "NCCL_SHM_DISABLE=1", **shm(512 * MIB - 1), gpus=gpus(8)),
    fails("shm_too_small", "too small for 1 rank", "remount", **shm(128 * MIB - 1), visible=seen(0, value="0")),
    fails("shm_too_small", "too small for 6 ranks", "remount", **shm(383 * MIB), gpus=(), plan=Plan(cpu_ranks=6)),
    fails("shm_too_small", "/dev/shm: 10 MiB free of 512 GiB, but 4 ranks need 256 MiB", "ls -la /dev/shm",
        **shm(512 * GIB, 10 * MIB)),
    fails("shm_too_small", "/dev/shm: 10 MiB free of 256 MiB", "ls -la /dev/shm", **shm(256 * MIB, 10 * MIB)),
    well("shm_too_small", "256 MiB free for 4 ranks", **shm(256 * MIB)),
    well("shm_too_small", "128 MiB free for 1 rank", **shm(128 * MIB), visible=seen(0, value="0")),
    well("shm_too_small", "128 MiB free for 2 ranks", **shm(128 * MIB), gpus=()),
    skips("shm_too_small", "cannot be read", system=system(shm_total_bytes=None, shm_free_bytes=None)),
    fails("shm_too_small", "too small for 2 ranks", "mount",
        system=system(shm_total_bytes=MIB, shm_free_bytes=MIB), visible=seen(value="")),
    # shm_tight_for_loaders: 1 GiB
    warns("shm_tight_for_loaders", "/dev/shm is 512 MiB, 1 GiB or more recommended", "docker run --shm-size=8g",
        **shm(512 * MIB), container=DOCKER),
    warns("shm_tight_for_loaders", "1 GiB or more", "remount,size=8G", **shm(GIB - 1)),
    well("shm_tight_for_loaders", "/dev/shm is 1.0 GiB", **shm(GIB)),
    skips("shm_tight_for_loaders", "cannot be read", system=system(shm_total_bytes=None)),
    # shm_not_writable
    fails("shm_not_writable", "there is no /dev/shm", "sudo mount -t tmpfs", system=system(shm_writable=None)),
    fails("shm_not_writable", "/dev/shm is read-only", "remount,rw,mode=1777", system=system(shm_writable=False)),
    well("shm_not_writable", "/dev/shm is writable"),
    # open_files_limit_low: 4096
    well("open_files_limit_low", "1024 open files, raised to 65536", system=system(limit_open_files=1024)),
    well("open_files_limit_low", "4095 open files, raised to 5000",
        system=system(limit_open_files=4095, hard_open_files=5000)),
    warns("open_files_limit_low", "ulimit -Hn is 4095, 4096 or more", "sudo tee /etc/security/limits.d/nofile.conf",
        system=system(limit_open_files=1024, hard_open_files=4095)),
    warns("open_files_limit_low", "ulimit -Hn is 1024", "docker run --ulimit nofile=65536",
        system=system(limit_open_files=1024, hard_open_files=1024), container=DOCKER),
    well("open_files_limit_low", "4096 open files", system=system(limit_open_files=4096)),
    well("open_files_limit_low", "unlimited", system=system(limit_open_files=None)),
    # locked_memory_limited: 1 GiB, with RDMA between machines
    fails("locked_memory_limited", "ulimit -l is 64 KiB, RDMA over mlx5_0:1, mlx5_1:1, mlx5_2:1 and mlx5_3:1",
        "systemctl restart slurmd", **locked(64 * KIB)),
    fails("locked_memory_limited", "ulimit -l is 8 MiB", "/etc/security/limits.d/memlock.conf",
        **locked(8 * MIB), slurm=slurm(job_id=None)),
    fails("locked_memory_limited", "ulimit -l is 1024 MiB", "ulimit -l unlimited", **locked(GIB - 1, hard=None)),
    fails("locked_memory_limited", "ulimit -l is 8 MiB", "docker run --ulimit memlock=-1",
        **locked(8 * MIB), container=DOCKER),
    fails("locked_memory_limited", "ulimit -l is 8 MiB", "securityContext",
        **locked(8 * MIB), container=KUBERNETES),
    fails("locked_memory_limited", "ulimit -l is 8 MiB", "slurmd", **locked(8 * MIB), container=container("enroot")),
    fails("locked_memory_limited", "RDMA over mlx5_1:1 needs more", "slurmd",
        **locked(8 * MIB) | {"infiniband": infiniband(hca(0), hca(1), verbs_unusable=("mlx5_0",))}),
    well("locked_memory_limited", "ulimit -l is unlimited", plan=Plan(nodes=2)),
    well("locked_memory_limited", "ulimit -l is 1.0 GiB (the NCCL guide recommends no limit)", **locked(GIB)),
    well("locked_memory_limited", "ulimit -l is 64 KiB, but CAP_IPC_LOCK overrides it", **locked(64 * KIB),
        container=container(None, capabilities=("ipc_lock",))),
    skips("locked_memory_limited", "single-node run needs no RDMA", **locked(64 * KIB) | {"plan": Plan()}),
    well("locked_memory_limited", "ulimit -l is unlimited", slurm=slurm(nodes=2)),
    skips("locked_memory_limited", "no usable InfiniBand, RoCE or EFA port is active",
        **locked(64 * KIB) | {"infiniband": NO_INFINIBAND}),
    skips("locked_memory_limited", "no usable InfiniBand, RoCE or EFA port is active",
        **locked(64 * KIB) | {"infiniband": infiniband(hca(state="DOWN"))}),
    skips("locked_memory_limited", "no usable InfiniBand, RoCE or EFA port is active",
        **locked(64 * KIB) | {"infiniband": infiniband(hca(), verbs_unusable=("mlx5_0",))}),
    skips("locked_memory_limited", "NCCL_IB_DISABLE=1", **locked(64 * KIB), env={"NCCL_IB_DISABLE": "1"}),
    # processes_limit_low: 128 a rank
    warns("processes_limit_low", "room for 511 more processes and threads, but 4 ranks with loader workers need 512",
        "docker run --pids-limit=-1", system=system(tasks_used=1489, tasks_max=2000), container=DOCKER),
    warns("processes_limit_low", "room for 100 more processes and threads, but 4 ranks with loader workers need 512",
        "podPidsLimit",
        system=system(tasks_used=900, tasks_max=1000), container=KUBERNETES),
    warns("processes_limit_low", "room for 0 more processes and threads, but 4 ranks with loader workers need 512",
        "TasksMax", system=system(tasks_used=1001, tasks_max=1000)),
    warns("processes_limit_low", "room for 511 more processes and threads, but 4 ranks with loader workers need 512",
        "ulimit -u 4096", system=system(limit_processes=511)),
    warns("processes_limit_low", "room for 500 more processes and threads, but 4 ranks with loader workers need 512",
        "ulimit -u 4096",
        system=system(limit_processes=500, tasks_used=0, tasks_max=4000)),
    warns("processes_limit_low", "room for 255 more processes and threads, but 2 ranks with loader workers need 256",
        "ulimit -u",
        system=system(limit_processes=255), gpus=()),
    well("processes_limit_low", "neither ulimit -u nor a cgroup"),
    well("processes_limit_low", "room for 512 more processes and threads (cgroup)",
        system=system(tasks_used=1488, tasks_max=2000)),
    well("processes_limit_low", "room for 512 more processes and threads (ulimit)", system=system(limit_processes=512)),
    well("processes_limit_low", "neither", system=system(limit_processes=100), host=host(user_is_root=True)),
    well("processes_limit_low", "neither", system=system(limit_processes=100),
        container=container(None, capabilities=("sys_resource",))),
    # cpus_fewer_than_ranks: by affinity and by quota
    warns("cpus_fewer_than_ranks", "3 CPUs usable of 96, for 4 ranks", "srun --cpus-per-task=8",
        system=system(cpus_allowed=3)),
    warns("cpus_fewer_than_ranks", "3 CPUs usable of 96", "docker run --cpus=16", system=system(cpus_quota=3.9)),
    warns("cpus_fewer_than_ranks", "1 CPU usable", "srun", system=system(cpus_quota=0.5)),
    well("cpus_fewer_than_ranks", "4 CPUs for 4 ranks", system=system(cpus_allowed=4)),
    well("cpus_fewer_than_ranks", "4 CPUs for 4 ranks", system=system(cpus_quota=4.0)),
    skips("cpus_fewer_than_ranks", "no visible GPU", gpus=()),
    skips("cpus_fewer_than_ranks", "no visible GPU", visible=seen(value="")),
    # cpus_leave_no_loader: two CPUs a rank
    informs("cpus_leave_no_loader", "7 CPUs for 4 ranks: not enough for loader workers", "num_workers=0",
        system=system(cpus_allowed=7)),
    informs("cpus_leave_no_loader", "1 CPU for 1 rank", "srun --cpus-per-task=16",
        system=system(cpus_quota=1.5), visible=seen(0, value="0")),
    well("cpus_leave_no_loader", "CPUs for 1 loader worker per rank", system=system(cpus_allowed=8)),
    well("cpus_leave_no_loader", "CPUs for 23 loader workers per rank"),
    well("cpus_leave_no_loader", "3 CPUs: too few even for the ranks", system=system(cpus_allowed=3)),
    skips("cpus_leave_no_loader", "no visible GPU", gpus=()),
    # memory_small_for_ranks: 4 GiB a rank, of the least of machine, cgroup and Slurm
    warns("memory_small_for_ranks", "15 GiB of free host memory for 4 ranks", "ps -eo rss",
        system=system(memory_available_bytes=15 * GIB)),
    warns("memory_small_for_ranks", "8.0 GiB of free host memory for 4 ranks (limited by the cgroup)",
        "docker run --memory=64g",
        system=system(memory_limit_bytes=8 * GIB), slurm=slurm(job_id=None), container=DOCKER),
    warns("memory_small_for_ranks", "by the cgroup", "resources.limits",
        system=system(memory_limit_bytes=8 * GIB), slurm=slurm(job_id=None), container=KUBERNETES),
    warns("memory_small_for_ranks", "by the cgroup", "sbatch --mem=0", system=system(memory_limit_bytes=8 * GIB)),
    warns("memory_small_for_ranks", "4.0 GiB of free host memory for 4 ranks (limited by the cgroup)", "sbatch --mem=0",
        system=system(memory_limit_bytes=20 * GIB, memory_limit_used_bytes=16 * GIB)),
    warns("memory_small_for_ranks", "0 MiB of free host memory for 4 ranks (limited by the cgroup)", "sbatch --mem=0",
        system=system(memory_limit_bytes=GIB, memory_limit_used_bytes=2 * GIB)),
    warns("memory_small_for_ranks", "3.9 GiB of free host memory for 4 ranks (limited by Slurm's --mem)",
        "sbatch --mem=0",
        slurm=slurm(memory_bytes=4000 * MIB)),
    warns("memory_small_for_ranks", "for 4 ranks", "ps -eo rss", system=system(memory_available_bytes=16 * GIB - 1)),
    well("memory_small_for_ranks", "16 GiB of free host memory for 4 ranks",
        system=system(memory_available_bytes=16 * GIB)),
    well("memory_small_for_ranks", "16 GiB of free host memory for 4 ranks",
        system=system(memory_available_bytes=16 * GIB, memory_limit_bytes=64 * GIB)),
    well("memory_small_for_ranks", "900 GiB of free host memory for 4 ranks",
        slurm=slurm(memory_bytes=4000 * MIB, on_allocated_node=False)),
    skips("memory_small_for_ranks", "no visible GPU", gpus=()),
    skips("memory_small_for_ranks", "cannot be read", system=system(memory_total_bytes=0, memory_available_bytes=0)),
    # cpu_ranks_exceed_machine: a rehearsal, its time limit and this machine
    fails("cpu_ranks_exceed_machine",
        "64 CPU ranks at level standard need about 218 s on 2 cores, the time limit is 120 s",
        "mgpu smoke-test --cpu 24 --level standard", **rehearsal(64, 2)),
    fails("cpu_ranks_exceed_machine", "64 CPU ranks at level standard need about 218 s",
        "--cpu 64 --level standard --timeout 437", **rehearsal(64, 2)),
    fails("cpu_ranks_exceed_machine", "64 CPU ranks at level quick need about 16 GiB of memory, 8.0 GiB are available",
        "mgpu smoke-test --cpu 31 --level quick", **rehearsal(64, 96, level="quick", memory=8 * GIB)),
    fails("cpu_ranks_exceed_machine", "2 CPU ranks at level quick need about 768 MiB of memory, 300 MiB are available",
        "one rank and its launcher need about 512 MiB", **rehearsal(2, 2, level="quick", memory=300 * MIB)),
    fails("cpu_ranks_exceed_machine", "8 CPU ranks at level standard need about", "--cpu 8 --level standard --timeout",
        **rehearsal(8, 1, limit_s=2.0)),
    well("cpu_ranks_exceed_machine", "8 CPU ranks at level standard need about", **rehearsal(8, 2)),
    well("cpu_ranks_exceed_machine", "64 CPU ranks", **rehearsal(64, 96)),
    # a short limit on a machine with enough cores is a choice
    well("cpu_ranks_exceed_machine", "2 CPU ranks", **rehearsal(2, 2, limit_s=3.0)),
    skips("cpu_ranks_exceed_machine", "no smoke test on the CPU"),
    skips("cpu_ranks_exceed_machine", "no smoke test on the CPU", plan=Plan(cpu_ranks=64)),
    # processes_killed_for_memory
    informs("processes_killed_for_memory", "1 process killed by the OOM killer in this session",
        "Request more memory, or let the ranks load the model one after the other.",
        system=system(oom_kills=1)),
    informs("processes_killed_for_memory", "8 processes killed",
        "Request more memory, or let the ranks load the model one after the other.",
        system=system(oom_kills=8)),
    well("processes_killed_for_memory", "none since"),
    skips("processes_killed_for_memory", "dmesg", system=system(oom_kills=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_going_without_shared_memory_is_a_stopgap_that_names_its_price() -> None:
    found = problem("shm_too_small", **shm(64 * MIB), container=DOCKER)
    fix, stopgap = found.fixes
    assert (fix.kind, stopgap.kind) == ("fix", "stopgap")
    assert stopgap == Fix(stopgap.text, ("export NCCL_SHM_DISABLE=1",), "you", "stopgap", stopgap.caveat)
    assert "slower" in str(stopgap.caveat)
