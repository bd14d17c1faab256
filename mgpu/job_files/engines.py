"""What does an engine need to know of a run? One record for all of them; emit/NAME.py renders it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from mgpu.job_files.job import Job

# What a file of each engine is called where nobody says.
FILES: Final[Mapping[str, str]] = {
    "slurm": "train.sbatch",
    "torchrun": "train.torchrun.sh",
    "kubeflow": "train.trainjob.yaml",
    "skypilot": "train.sky.yaml",
}
ENGINES: Final = tuple(FILES)


@dataclass(frozen=True)
class Plan:
    """A verified config, and the job it is for."""

    job: Job  # nodes, ranks_per_node, command, threads, container, name, time ...
    values: Mapping[str, Any]  # of the config, in accelerate's words, sections nested
    config_text: str  # the whole YAML file: where it must travel with the job
    config_path: str = "accelerate.yaml"
    gpu_model: str = ""  # as people call it: A100-80GB; "" = CPU ranks, or not known
    cpu: bool = False  # ranks run on the CPU
    environment: Mapping[str, str] = field(default_factory=dict)  # what accelerate's launcher tells its ranks: torchrun


def render(engine: str, plan: Plan) -> str:
    """The file of an engine other than Slurm, by its module here: with the line #!/bin/bash first where it is for a
    shell. Who wrote it, and with which command, is put before it."""
    rendered: Callable[[Plan], str] = import_module(f"mgpu.job_files.{engine}").render
    return rendered(plan)
