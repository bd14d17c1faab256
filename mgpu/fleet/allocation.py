"""Read the Slurm job from the environment, and what will be trained on its nodes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mgpu import errors, hostlist
from mgpu.config import reading
from mgpu.errors import MgpuError
from mgpu.hosts.named_hosts import Host, names
from mgpu.smoke import config_under_test as subjects
from mgpu.smoke.request import Request
from mgpu.snapshot import Config
from mgpu.text import counted

_COUNT = re.compile(r"\d+")
# "2" or "a100:2" from --gpus-per-task; from --tres-per-task the part after "gres/gpu" ("=2", "=a100:2", older: ":2").
_OF_A_TASK = re.compile(r"(?P<type>[^:,]+:)?(?P<number>\d+)")


@dataclass(frozen=True)
class Allocation:
    """The job whose nodes are checked, or the hosts of `--hosts`."""

    job: str
    nodes: tuple[str, ...]
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    in_step: bool = False
    gpus: str | None = None  # per node, "4" or "a100:4", if the job requested GPUs per task
    hosts: tuple[Host, ...] = ()  # reached with ssh; then there is no job

    @property
    def label(self) -> str:
        """What the nodes belong to, as text."""
        return f"{counted(len(self.hosts), 'host')}" if self.hosts else f"job {self.job}"

    @property
    def cpus_per_node(self) -> int | None:
        """CPUs for a launcher on a node, or for all its ranks if Slurm starts them."""
        if self.cpus_per_task is None and self.tasks_per_node == 1:
            return None
        return (self.cpus_per_task or 1) * self.tasks_per_node


def of_hosts(hosts: Sequence[Host]) -> Allocation:
    """Return the hosts of `--hosts`."""
    return Allocation("", names(hosts), hosts=tuple(hosts))


def allocation(environ: Mapping[str, str]) -> Allocation:
    """Return the job of this process from Slurm's variables. Raises MgpuError (2)."""
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job:
        raise MgpuError(
            "--slurm checks the nodes of a Slurm job, but this is not inside a job.\n"
            "  mgpu launch --slurm job.sbatch     submits a job that checks its nodes first\n"
            "  salloc --nodes 2 ...               opens a shell in which this command works",
            errors.USAGE,
        )
    several = _number(environ.get("SLURM_STEP_NUM_NODES")) or 0
    in_step = environ.get("SLURM_STEP_ID") is not None or environ.get("SLURM_STEP_NODELIST") is not None
    if in_step and (_number(environ.get("SLURM_PROCID")) or 0) > 0:
        raise MgpuError(
            f"this is task {environ['SLURM_PROCID']} of a step, but the pre-flight starts its own workers.\n"
            "Run it once: in the job script without srun, or in a step with one task",
            errors.USAGE,
        )
    names = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""
    if in_step and several > 1:  # a step on one node is a shell in the job
        names = environ.get("SLURM_STEP_NODELIST") or names
    try:
        nodes = hostlist.expand(names)
    except ValueError as error:
        raise MgpuError(f"SLURM_JOB_NODELIST={names}: {error}", errors.USAGE) from None
    if not nodes:
        raise MgpuError(f"job {job} has no nodes (SLURM_JOB_NODELIST is empty)", errors.USAGE)
    if shutil.which("srun", path=environ.get("PATH")) is None:
        raise MgpuError("srun is not on PATH, and the pre-flight needs it to start its workers", errors.NOT_FOUND)
    per_node = _number(environ.get("SLURM_NTASKS_PER_NODE")) or _number(environ.get("SLURM_TASKS_PER_NODE")) or 1
    cpus = _number(environ.get("SLURM_CPUS_PER_TASK"))
    return Allocation(job, nodes, per_node, cpus, in_step, _gpus_of_tasks(environ, per_node))


def _gpus_of_tasks(environ: Mapping[str, str], tasks_per_node: int) -> str | None:
    """Return the GPUs per node of a job with --gpus-per-task.

    A step with one task per node has only one task's GPUs unless it requests all of them.
    """
    tres = re.search(r"gres/gpu[:=]([^,]+)", environ.get("SLURM_TRES_PER_TASK", ""))
    value = environ.get("SLURM_GPUS_PER_TASK") or (tres[1] if tres else "")
    found = _OF_A_TASK.fullmatch(value.replace("=", ":"))
    if found is None:
        return None
    return f"{found['type'] or ''}{int(found['number']) * tasks_per_node}"


def _number(text: str | None) -> int | None:
    """Return the first number in "4", "4(x2)" or "4(x2),2"."""
    found = _COUNT.match(text or "")
    return int(found[0]) if found else None


# Their launchers give each machine the same number of ranks. torchrun's agents exchange their own numbers, also under
# accelerate (measured with torch 2.13 and accelerate 1.15: 2 ranks on one host and 1 on the other, static and c10d).
_SAME_EVERYWHERE = ("DEEPSPEED", "MEGATRON_LM", "XLA")
_USE_CPU = "ACCELERATE_USE_CPU"
_TRUE = ("y", "yes", "t", "true", "on", "1")  # accelerate's str_to_bool


@dataclass(frozen=True)
class Wanted:
    """What will be trained on the nodes."""

    config: Config
    cpu: bool
    ranks_per_node: int
    need: int
    name: str
    over_ssh: bool = False  # on the hosts of --hosts, whose GPUs are not known yet
    slots: Mapping[str, int] = field(default_factory=dict)  # ranks of hosts with another number of them

    def ranks_on(self, node: str) -> int:
        """Return the number of ranks on a node."""
        return self.slots.get(node, self.ranks_per_node)

    @property
    def what(self) -> str:
        """The config and its ranks per node, as text."""
        one = "rank" if self.cpu or self.over_ssh else "GPU"  # hosts without GPUs train on the CPU
        cpu = " on the CPU" if self.cpu else ""
        return f"{self.name}, {counted(self.ranks_per_node, one)} per node{self._others}{cpu}"

    @property
    def _others(self) -> str:
        return f" ({', '.join(f'{count} on {node}' for node, count in self.slots.items())})" if self.slots else ""


def read_wanted(request: Request, job: Allocation, environ: Mapping[str, str], scratch: Path) -> Wanted:
    """Return the config, its ranks per node, and the number of nodes needed. Raises MgpuError (2)."""
    nodes = len(job.nodes)
    missing = not request.config and not Path(subjects.config_path(request)).exists()
    if request.cpu is None and missing and not job.hosts:
        gpus = _number(environ.get("SLURM_GPUS_ON_NODE"))
        need, ranks = request.need or nodes, gpus or job.tasks_per_node
        path = scratch / reading.DEFAULT_CONFIG
        cpu = "" if gpus else "use_cpu: true\n"
        path.write_text(
            f"compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\n{cpu}"
            f"num_machines: 1\nnum_processes: {ranks}\n",
            "utf-8",
        )
        subject = subjects.load_subject(replace(request, config=str(path)), scratch)
        subject = replace(subject, name="no config")
    else:
        subject = subjects.load_subject(request, scratch)
        machines = subject.config.num_machines
        need = request.need or (machines if request.config and 1 < machines <= nodes else nodes)
        world = subject.config.num_processes or machines
        ranks, rest = divmod(world, machines)
        if rest or not ranks:
            raise MgpuError(
                f"{subject.name}: {world} processes cannot be divided equally among {machines} machines", errors.USAGE
            )
    if need > nodes:
        raise MgpuError(
            f"--need {need}: {'there are' if job.hosts else f'job {job.job} has'} only {counted(nodes, 'node')}",
            errors.USAGE,
        )
    # CPU ranks of a job are marked by a comment in the config, and by a variable in the job.
    on_cpu = subject.cpu or subject.config.cpu_job or environ.get(_USE_CPU, "").lower() in _TRUE
    slots = _slots(job.hosts, ranks, subject)
    return Wanted(subject.config, on_cpu, ranks, need, subject.name, over_ssh=bool(job.hosts), slots=slots)


def _slots(hosts: Sequence[Host], ranks: int, subject: subjects.Subject) -> dict[str, int]:
    """Return the ranks of hosts that have another number than the config's. Raises MgpuError (2)."""
    slots = {host.name: host.slots for host in hosts if host.slots and host.slots != ranks}
    kind = subject.config.distributed_type
    if slots and kind in _SAME_EVERYWHERE:
        name, count = next(iter(slots.items()))
        raise MgpuError(
            f"{name} has slots={count} in the hosts file, but {subject.name} starts {counted(ranks, 'rank')} on each "
            f"host, and {kind} needs the same number on each: remove the slots",
            errors.USAGE,
        )
    return slots
