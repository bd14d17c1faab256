"""Which files does mgpu write for a job, each for which engine? One record per format, and how a job starts its ranks.

job_files/NAME.py renders the format NAME.
"""

# Without `from __future__ import annotations`: NamedTuple would compile each one, 1 ms of every start.
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Shape = Literal["accelerate", "torchrun", "plain"]

# What a job starts on its nodes, and what is said of that.
SHAPES: Final[Mapping[Shape, str]] = {
    "accelerate": "one task a node; accelerate starts its ranks by the config",
    "torchrun": "one task a node; torchrun starts its ranks",
    "plain": "one task a rank; Slurm starts them all (Lightning, NeMo, submitit)",
}


class JobFormat(NamedTuple):
    """The file of one engine."""

    title: str  # the engine's name
    file: str  # the file's name, if nobody gives one
    start: str  # the command that starts the job, a template of command_line.shell
    starter: str  # what gives each machine its rank
    shapes: tuple[Shape, ...]
    takes: frozenset[str] = frozenset()  # of the answers in OF_SOME
    meeting: str = ""  # where the ranks meet: who says it instead of an answer


# Answers of the wizard that not every engine can be told: those about where the ranks meet none of them.
_OF_SLURM: Final = ("partition", "account", "qos", "constraint", "requeue", "preflight", "spare", "time", "container")
OF_SOME: Final = (*_OF_SLURM, "address", "port")
# fmt: off
FORMATS: Final[Mapping[str, JobFormat]] = {
    "slurm": JobFormat(
        "Slurm", "train.sbatch", "sbatch {:path}", "the job script", tuple(SHAPES), frozenset(_OF_SLURM)
    ),
    "torchrun": JobFormat(
        "torchrun", "train.torchrun.sh", "bash {:path}", "the command", ("torchrun",),
        meeting="the script takes it where it is started: HEAD=NAME PORT=NUMBER",
    ),
    "kubeflow": JobFormat(
        "Kubeflow", "train.trainjob.yaml", "kubectl create -f {:path}", "the job", ("accelerate", "torchrun"),
        frozenset({"time", "container"}),
    ),
    "skypilot": JobFormat(
        "SkyPilot", "train.sky.yaml", "sky launch {:path}", "the command", ("accelerate", "torchrun"),
        frozenset({"container"}),
    ),
}
# fmt: on
TITLES: Final[Mapping[str, str]] = {name: one.title for name, one in FORMATS.items()}


def taking(answer: str) -> tuple[str, ...]:
    """The engines that can be told an answer of OF_SOME."""
    return tuple(name for name, one in FORMATS.items() if answer in one.takes)
