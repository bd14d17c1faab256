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
    Case,
    fails,
    gpus,
    problem,
    seen,
    skips,
    system,
    table,
    warns,
    well,
)


def shm(total: int, free: int | None = None) -> dict[str, Any]:
    return {"system": system(shm_total_bytes=total, shm_free_bytes=total if free is None else free)}


CASES = (
    # shm_too_small: 64 MiB a rank, and not less than for 2
    fails("shm_too_small", "/dev/shm is 64 MiB, too small for 4 ranks", "docker run --shm-size=8g",
        **shm(64 * MIB), container=DOCKER),
    fails("shm_too_small", "/dev/shm is 64 MiB", "docker run --ipc=host", **shm(64 * MIB), container=DOCKER),
    fails("shm_too_small", "/dev/shm is 64 MiB", "kubectl explain", **shm(64 * MIB), container=KUBERNETES),
    fails("shm_too_small", "too small for 4 ranks", "remount,size=8G", **shm(256 * MIB - 1)),
    fails("shm_too_small", "too small for 8 ranks", "NCCL_SHM_DISABLE=1", **shm(512 * MIB - 1), gpus=gpus(8)),
    fails("shm_too_small", "too small for 1 rank", "remount", **shm(128 * MIB - 1), visible=seen(0, value="0")),
    fails("shm_too_small", "too small for 6 ranks", "remount", **shm(383 * MIB), gpus=(), plan=Plan(cpu_ranks=6)),
    fails("shm_too_small", "/dev/shm: 10 MiB free of 512 GiB, 4 ranks want 256 MiB", "ls -la /dev/shm",
        **shm(512 * GIB, 10 * MIB)),
    fails("shm_too_small", "/dev/shm: 10 MiB free of 256 MiB", "ls -la /dev/shm", **shm(256 * MIB, 10 * MIB)),
    well("shm_too_small", "256 MiB free for 4 ranks", **shm(256 * MIB)),
    well("shm_too_small", "128 MiB free for 1 rank", **shm(128 * MIB), visible=seen(0, value="0")),
    well("shm_too_small", "128 MiB free for 2 ranks", **shm(128 * MIB), gpus=()),
    skips("shm_too_small", "cannot be read", system=system(shm_total_bytes=None, shm_free_bytes=None)),
    fails("shm_too_small", "too small for 2 ranks", "mount",
        system=system(shm_total_bytes=MIB, shm_free_bytes=MIB), visible=seen(value="")),
    # shm_tight_for_loaders: 1 GiB
    warns("shm_tight_for_loaders", "/dev/shm is 512 MiB, 1 GiB or more is advised", "docker run --shm-size=8g",
        **shm(512 * MIB), container=DOCKER),
    warns("shm_tight_for_loaders", "1 GiB or more", "remount,size=8G", **shm(GIB - 1)),
    well("shm_tight_for_loaders", "/dev/shm is 1.0 GiB", **shm(GIB)),
    skips("shm_tight_for_loaders", "cannot be read", system=system(shm_total_bytes=None)),
    # shm_not_writable
    fails("shm_not_writable", "there is no /dev/shm", "sudo mount -t tmpfs", system=system(shm_writable=None)),
    fails("shm_not_writable", "/dev/shm is read-only", "remount,rw,mode=1777", system=system(shm_writable=False)),
    well("shm_not_writable", "can be written"),
    # open_files_limit_low: 4096
    warns("open_files_limit_low", "ulimit -n is 1024, 4096 or more is advised", "ulimit -n 65536",
        system=system(limit_open_files=1024)),
    warns("open_files_limit_low", "ulimit -n is 4095", "ulimit -n", system=system(limit_open_files=4095)),
    well("open_files_limit_low", "4096 open files", system=system(limit_open_files=4096)),
    well("open_files_limit_low", "unlimited", system=system(limit_open_files=None)),
    # cpus_fewer_than_ranks: by affinity and by quota
    warns("cpus_fewer_than_ranks", "3 CPUs usable of 96, for 4 ranks", "srun --cpus-per-task=8",
        system=system(cpus_allowed=3)),
    warns("cpus_fewer_than_ranks", "3 CPUs usable of 96", "docker run --cpus=16", system=system(cpus_quota=3.9)),
    warns("cpus_fewer_than_ranks", "1 CPU usable", "srun", system=system(cpus_quota=0.5)),
    well("cpus_fewer_than_ranks", "4 CPUs for 4 ranks", system=system(cpus_allowed=4)),
    well("cpus_fewer_than_ranks", "4 CPUs for 4 ranks", system=system(cpus_quota=4.0)),
    skips("cpus_fewer_than_ranks", "no visible GPU", gpus=()),
    skips("cpus_fewer_than_ranks", "no visible GPU", visible=seen(value="")),
    # memory_small_for_ranks: 4 GiB a rank
    warns("memory_small_for_ranks", "15 GiB of host memory for 4 ranks", "sbatch --mem=64G",
        system=system(memory_available_bytes=15 * GIB)),
    warns("memory_small_for_ranks", "8.0 GiB of host memory for 4 ranks", "docker run --memory=64g",
        system=system(memory_limit_bytes=8 * GIB)),
    warns("memory_small_for_ranks", "for 4 ranks", "--mem", system=system(memory_available_bytes=16 * GIB - 1)),
    well("memory_small_for_ranks", "16 GiB for 4 ranks", system=system(memory_available_bytes=16 * GIB)),
    well("memory_small_for_ranks", "16 GiB for 4 ranks",
        system=system(memory_available_bytes=16 * GIB, memory_limit_bytes=64 * GIB)),
    skips("memory_small_for_ranks", "no visible GPU", gpus=()),
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
