"""Which job files does mgpu write, and for which engine? One record per format, and how a job starts its ranks.

job_files/NAME.py renders the format NAME.
"""

# Without `from __future__ import annotations`: NamedTuple would compile each one, 1 ms of every start.
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Shape = Literal["accelerate", "torchrun", "plain"]

# What a job starts on its nodes, with a description.
SHAPES: Final[Mapping[Shape, str]] = {
    "accelerate": "one task per node; accelerate starts its ranks from the config",
    "torchrun": "one task per node; torchrun starts its ranks",
    "plain": "one task per rank; Slurm starts them all (Lightning, NeMo, submitit)",
}


class JobFormat(NamedTuple):
    """The file of one engine."""

    title: str  # the engine's name
    file: str  # the default file name
    start: str  # the command that starts the job, a template for command_line.shell
    starter: str  # what assigns each node its rank
    shapes: tuple[Shape, ...]
    takes: frozenset[str] = frozenset()  # which answers of OF_SOME it supports
    meeting: str = ""  # how the rendezvous endpoint is set, if not by an answer


# Answers of the wizard that only some engines support. No engine supports address and port.
_OF_SLURM: Final = ("partition", "account", "qos", "constraint", "requeue", "preflight", "spare", "time", "container")
SOME_ENGINES: Final = (*_OF_SLURM, "address", "port")
# fmt: off
FORMATS: Final[Mapping[str, JobFormat]] = {
    "slurm": JobFormat(
        "Slurm", "train.sbatch", "sbatch {:path}", "the job script", tuple(SHAPES), frozenset(_OF_SLURM)
    ),
    "torchrun": JobFormat(
        "torchrun", "train.torchrun.sh", "bash {:path}", "the command", ("torchrun",),
        meeting="set it when you start the script: HEAD=NAME PORT=NUMBER",
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


def engines_supporting(answer: str) -> tuple[str, ...]:
    """Return the engines that support an answer of OF_SOME."""
    return tuple(name for name, one in FORMATS.items() if answer in one.takes)
