"""A training job on Slurm, as data shared by all code that writes or submits jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from mgpu.job_formats import Shape

THIS_FILE: Final = "THIS_FILE"  # placeholder for the file's own name in its header; the code that writes it replaces it

# How long before its time limit a requeued job is signaled by default. Slurm may be 60 s early or late (man sbatch,
# --signal), and SIGTERM is followed by SIGKILL after KillWait, 30 s by default (man slurm.conf).
WARN_S: Final = 120


@dataclass(frozen=True)
class Container:
    """The container image of the ranks."""

    kind: Literal["pyxis", "apptainer"]
    image: str
    mounts: tuple[str, ...] = ()  # HOST or HOST:INSIDE


@dataclass(frozen=True)
class Watch:
    """The recorder in the ranks, and what the nodes do about a hang."""

    python: str  # the interpreter with mgpu
    hang_after_s: float
    stops: bool = False  # the first node cancels a job that hangs; else the command that follows the job does


@dataclass(frozen=True)
class Job:
    """A job of `nodes` nodes with `ranks_per_node` ranks each. None or "": Slurm's own default."""

    command: tuple[str, ...]  # the script and its arguments, or -m and a module
    shape: Shape = "accelerate"
    config: str = "accelerate.yaml"  # relative to the job's folder; only the shape accelerate reads it
    nodes: int = 1  # that train
    spare: int = 0  # extra nodes to request as replacements for bad ones
    gpus_per_node: int = 1  # 0: ranks on the CPU
    ranks_per_node: int = 1  # equal to gpus_per_node, except for ranks on the CPU
    gpu_type: str = ""
    name: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    exclude: str = ""  # nodes, as a Slurm host list: n[3,17]
    time: str = ""  # in Slurm's format: 12:00:00, 2-00:00:00
    cpus_per_node: int | None = None
    memory: str = ""  # per node: 200G; 0 is all of it
    exclusive: bool = False
    requeue: bool = False
    warn_s: int | None = None  # seconds before the time limit at which the job is signaled
    setup: tuple[str, ...] = ()  # shell lines: module load ..., source .../activate
    env: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None  # OMP_NUM_THREADS of a rank
    container: Container | None = None
    preflight: bool = False  # check and test the nodes first; needs mgpu in the job
    mgpu: str = "mgpu"  # the command for mgpu in the job
    watch: Watch | None = None  # needs mgpu in the job
    logs: str = "logs"  # the folder for the job's output, relative to the job's folder

    @property
    def warning_s(self) -> int | None:
        """Seconds before the time limit at which the job is signaled; always set for a job that is requeued."""
        return self.warn_s or (WARN_S if self.requeue else None)

    @property
    def tasks_per_node(self) -> int:
        """Tasks that Slurm starts on a node: all ranks, or the launcher that starts them."""
        return self.ranks_per_node if self.shape == "plain" else 1

    @property
    def world_size(self) -> int:
        """Number of ranks on all nodes."""
        return self.nodes * self.ranks_per_node
