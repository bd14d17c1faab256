"""How is a limit raised in the service, login or container that started the process, or kept by fewer ranks?"""

from __future__ import annotations

import math

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.planning.rehearsal import memory_bytes, most_ranks, seconds
from mgpu.snapshot import Container, Slurm

from ._wording import gib

_LIFT_FOR_SERVICE = Fix(
    "Jobs inherit the limit of the service that starts them. Raise it there.",
    (
        "sudo mkdir -p /etc/systemd/system/slurmd.service.d && cd /etc/systemd/system/slurmd.service.d",
        "printf '[Service]\\nLimitMEMLOCK=infinity\\n' | sudo tee memlock.conf",
        "sudo systemctl daemon-reload && sudo systemctl restart slurmd",
    ),
    who="admin",
)
_LIFT_FOR_LOGIN = Fix(
    "Raise the limit, then log in again.",
    ("echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf",),
    who="admin",
)


def raise_locked_memory(hard: int | None, container: Container, slurm: Slurm) -> Fix:
    """Return the fix that raises the limit on locked memory where this process was started."""
    if container.kind == "kubernetes":
        return Fix(
            "Grant the container the IPC_LOCK capability.",
            ("kubectl explain pod.spec.containers.securityContext.capabilities",),
        )
    if container.kind and container.kind not in ("enroot", "apptainer"):
        return Fix("Start the container without the limit.", ("docker run --ulimit memlock=-1 --cap-add IPC_LOCK ...",))
    if hard is None:
        return Fix("Raise it before the launch.", ("ulimit -l unlimited",))
    return _LIFT_FOR_SERVICE if slurm.job_id else _LIFT_FOR_LOGIN


def request_memory(container: Container, slurm: Slurm) -> tuple[str, ...]:
    """Return the commands that give the job or the container more memory."""
    of_slurm, of_docker = "sbatch --mem=0 ...", "docker run --memory=64g ..."
    if slurm.job_id:
        return (of_slurm,)
    if container.kind == "kubernetes":
        return ("kubectl explain pod.spec.containers.resources.limits",)
    return (of_docker,) if container.kind else (of_slurm, of_docker)


def enlarge_shm(container: Container) -> Fix:
    """Return the fix that makes /dev/shm larger in this kind of container."""
    match container.kind:
        case "kubernetes":
            how = "kubectl explain pod.spec.volumes.emptyDir.medium"
            return Fix("Mount a memory-backed emptyDir on /dev/shm in the pod.", (how,))
        case "apptainer":
            return Fix("Start it without --contain to use the host's /dev/shm.", ("apptainer exec --nv image.sif ...",))
        case None | "enroot" | "lxc" | "nspawn":
            return Fix("Remount it with a larger size.", ("sudo mount -o remount,size=8G /dev/shm",), who="admin")
        case _:
            commands = ("docker run --shm-size=8g ...", "docker run --ipc=host ...")
            return Fix("Start the container with a larger /dev/shm.", commands)


def ranks_that_fit(ranks: int, level: str, cores: int, limit_s: float, free_bytes: int) -> tuple[Fix, ...]:
    """Return the fixes: fewer ranks, more time, or more memory if there is not enough for one rank."""
    fitting, in_memory = (min(ranks, most_ranks(level, cores, s, free_bytes)) for s in (limit_s, math.inf))
    if not in_memory:
        text = f"Free up memory, or request more: one rank and its launcher need about {gib(memory_bytes(1))}."
        return (Fix(text, ("free -h",)),)
    longer_s = round(2 * seconds(in_memory, level, cores))
    fewer = shell("mgpu smoke-test --cpu {:number} --level {:id}", fitting, level)
    longer = shell("mgpu smoke-test --cpu {:number} --level {:id} --timeout {:number}", in_memory, level, longer_s)
    return (
        *((Fix(commands=(fewer,)),) if fitting else ()),
        *((Fix("Or give it more time.", (longer,)),) if in_memory == ranks or not fitting else ()),
    )
