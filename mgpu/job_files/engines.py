"""The input for an engine's job file: one record for all engines, rendered by the module with the engine's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from mgpu.job_files.job import Job


@dataclass(frozen=True)
class Plan:
    """A verified config and its job."""

    job: Job  # nodes, ranks_per_node, command, threads, container, name, time ...
    values: Mapping[str, Any]  # of the config, with accelerate's keys, sections nested
    config_text: str  # the complete YAML file, for engines that embed it
    config_path: str = "accelerate.yaml"
    gpu_model: str = ""  # common name: A100-80GB; "": CPU ranks, or unknown
    cpu: bool = False  # ranks run on the CPU
    environment: Mapping[str, str] = field(default_factory=dict)  # set by accelerate's launcher; needed with torchrun


class Package(NamedTuple):
    """The engine's own package, and a program that prints its version and why it rejects the file on stdin."""

    name: str
    module: str
    program: str


def package_of(engine: str) -> Package | None:
    """Return the package that validates the engine's file; None if there is none."""
    found: Package | None = getattr(import_module(f"mgpu.job_files.{engine}"), "PACKAGE", None)
    return found


def render(engine: str, plan: Plan) -> str:
    """Return the file for an engine other than Slurm; a shell script starts with #!/bin/bash.

    The caller adds the header that says which command wrote it.
    """
    rendered: Callable[[Plan], str] = import_module(f"mgpu.job_files.{engine}").render
    return rendered(plan)
