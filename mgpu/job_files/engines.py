"""What does an engine need to know of a run? One record for all of them; the module of its name here renders it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from mgpu.job_files.job import Job


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


class Package(NamedTuple):
    """The engine's own package, and a program that prints its version and why it refuses the file on stdin."""

    name: str
    module: str
    program: str


def package_of(engine: str) -> Package | None:
    """The package that knows the fields of the engine's file; None where there is none."""
    found: Package | None = getattr(import_module(f"mgpu.job_files.{engine}"), "PACKAGE", None)
    return found


def render(engine: str, plan: Plan) -> str:
    """The file of an engine other than Slurm, by its module here: with the line #!/bin/bash first where it is for a
    shell. Who wrote it, and with which command, is put before it."""
    rendered: Callable[[Plan], str] = import_module(f"mgpu.job_files.{engine}").render
    return rendered(plan)
