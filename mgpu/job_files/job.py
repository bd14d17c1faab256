"""What is a training job on Slurm made of? Data: who writes, submits or emits a job agrees on this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from mgpu.job_formats import Shape

THIS_FILE: Final = "THIS_FILE"  # the file's own name, in its head; whoever writes the file replaces it

# How long before its time limit a job that is to start again is told, where nobody says. Slurm may be 60 s early or
# late (man sbatch, --signal), and SIGTERM is followed by SIGKILL after KillWait, 30 s by default (man slurm.conf).
WARN_S: Final = 120


@dataclass(frozen=True)
class Container:
    """The image the ranks run in."""

    kind: Literal["pyxis", "apptainer"]
    image: str
    mounts: tuple[str, ...] = ()  # HOST or HOST:INSIDE


@dataclass(frozen=True)
class Job:
    """A job of `nodes` nodes with `ranks_per_node` ranks each. None or "": Slurm's own default."""

    command: tuple[str, ...]  # the script and its arguments, or -m and a module
    shape: Shape = "accelerate"
    config: str = "accelerate.yaml"  # as the job finds it from its folder; only the shape accelerate reads it
    nodes: int = 1  # that train
    spare: int = 0  # more nodes are asked for, to stand in for those the pre-flight finds bad
    gpus_per_node: int = 1  # 0: ranks on the CPU
    ranks_per_node: int = 1  # the same number, but for ranks on the CPU
    gpu_type: str = ""
    name: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    exclude: str = ""  # nodes, in Slurm's form: n[3,17]
    time: str = ""  # as Slurm reads it: 12:00:00, 2-00:00:00
    cpus_per_node: int | None = None
    memory: str = ""  # of a node: 200G; 0 is all of it
    exclusive: bool = False
    requeue: bool = False
    warn_s: int | None = None  # the job is told so long before its time limit
    setup: tuple[str, ...] = ()  # shell lines: module load ..., source .../activate
    env: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None  # OMP_NUM_THREADS of a rank
    container: Container | None = None
    preflight: bool = False  # examine and test the nodes first; needs mgpu in the job
    mgpu: str = "mgpu"  # how the job calls it
    logs: str = "logs"  # the folder of the job's output, from the job's folder

    @property
    def warning_s(self) -> int | None:
        """How long before its time limit the job is told; a job that is to start again has to be."""
        return self.warn_s or (WARN_S if self.requeue else None)

    @property
    def tasks_per_node(self) -> int:
        """What Slurm starts on a node: each rank, or the launcher that starts them."""
        return self.ranks_per_node if self.shape == "plain" else 1

    @property
    def world_size(self) -> int:
        """Ranks over all nodes."""
        return self.nodes * self.ranks_per_node
