"""Parts of job files that all engines share: the launcher's command, its environment, and values that are refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from mgpu.errors import USAGE, MgpuError
from mgpu.job_files.engines import Plan
from mgpu.secrets_masking import masked, masked_argv, masked_env
from mgpu.text import counted

UNTRIED: Final = "# NOT tested on a live cluster: only its fields were validated, and its commands run on one machine."
NO_IMAGE: Final = "REGISTRY/IMAGE:TAG"
PORT: Final = 29500  # torch's default; nothing else listens on a machine that is the job's alone
_UNWRITABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")  # by YAML
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # of a variable


@dataclass(frozen=True)
class Meeting:
    """The rendezvous in shell syntax; each engine passes it to its nodes in different variables."""

    nodes: str
    ranks_per_node: str
    rank: str
    head: str
    port: str


def launcher(plan: Plan, meeting: Meeting, config: str) -> str:
    """Return the command that starts the ranks of a node, over several lines. `config`: the file, in shell syntax."""
    job = plan.job
    several = job.nodes > 1
    if job.shape == "accelerate":
        words = [f"accelerate launch --config_file {config}"]
        if plan.cpu and job.world_size > 1:
            words.append("--multi_gpu")  # accelerate's flag for ranks started by torchrun's launcher
        words.append(f"--num_machines {meeting.nodes}")
        words.append(f'--num_processes "$(({_bare(meeting.nodes)} * {_bare(meeting.ranks_per_node)}))"')
        if several:
            words += [f"--machine_rank {meeting.rank}", f"--main_process_ip {meeting.head}"]
        words.append(f"--main_process_port {meeting.port}")
    else:
        words = ["torchrun", f"--nnodes {meeting.nodes}", f"--nproc-per-node {meeting.ranks_per_node}"]
        if several:
            words += [f"--node-rank {meeting.rank}", f"--master-addr {meeting.head}"]
            words.append(f"--master-port {meeting.port}")
        else:
            words.append("--standalone")
    return " \\\n    ".join([*words, shlex.join(job.command)])


def _bare(word: str) -> str:
    """Return a quoted variable in the form for shell arithmetic."""
    return word.strip('"').removeprefix("$")


def environment(plan: Plan) -> dict[str, str]:
    """Return the variables of the ranks, with torchrun including the ones that accelerate's launcher would set."""
    found = dict(plan.environment) if plan.job.shape != "accelerate" else {}
    found |= plan.job.env
    if plan.job.threads:
        found.setdefault("OMP_NUM_THREADS", str(plan.job.threads))
    if plan.cpu:
        found.setdefault("ACCELERATE_USE_CPU", "true")
    return found


def exports(variables: Mapping[str, str]) -> list[str]:
    """Return variables as `export` lines of a shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def size(plan: Plan) -> str:
    """Return the size of the job as text ("2 nodes of 4 A100-80GB GPUs")."""
    job = plan.job
    nodes = counted(job.nodes, "node")
    if plan.cpu or not job.gpus_per_node:
        return f"{nodes}, {counted(job.ranks_per_node, 'rank')} on the CPU each"
    model = f"{plan.gpu_model} " if plan.gpu_model else ""
    return f"{nodes} of {counted(job.gpus_per_node, f'{model}GPU')}"


def image(plan: Plan) -> str:
    """Return the container image in registry syntax; "" if there is none. pyxis writes nvcr.io#nvidia/pytorch."""
    container = plan.job.container
    if container is None:
        return ""
    if container.kind == "apptainer":
        raise MgpuError(f"container: {container.image} is an Apptainer file. Use an image from a registry", USAGE)
    return container.image.removeprefix("docker://").replace("#", "/", 1)


def config_name(plan: Plan) -> str:
    """Return the config's file name."""
    return PurePosixPath(plan.config_path).name


def refuse(plan: Plan) -> None:
    """Raise MgpuError (2) for a value that would break the file, or that it must not contain."""
    for name in environment(plan):
        if not _NAME.fullmatch(name):
            raise MgpuError(f"env: {name!r} is not a valid variable name", USAGE)
    if not plan.job.command:
        raise MgpuError("command: no script or module given", USAGE)
    words = [*plan.job.command, *environment(plan).values(), plan.config_text, plan.config_path, plan.gpu_model]
    _refuse_secrets(plan)
    for word in words:
        if found := _UNWRITABLE.search(word):
            raise MgpuError(f"{word[:60]!r} has a character that this file cannot contain ({found.group()!r})", USAGE)


def _refuse_secrets(plan: Plan) -> None:
    """Raise MgpuError (2) if the file would contain a secret."""
    shared = "but this file may be shared"
    for name, value in environment(plan).items():
        if masked_env({name: value})[name] != value:
            raise MgpuError(f"env: {name} is a secret, {shared}", USAGE)
    if masked_argv(plan.job.command) != [*plan.job.command]:
        advice = "Let the training read it from a file or its environment"
        raise MgpuError(f"command: an argument is a secret, {shared}.\n{advice}", USAGE)
    container = plan.job.container
    texts = [("container", container.image if container else ""), ("name", plan.job.name)]
    for field, text in [*texts, *(("setup", line) for line in plan.job.setup)]:
        if masked(text) != text:
            raise MgpuError(f"{field}: it contains a secret, {shared}", USAGE)


def literal(lines: Iterable[str], indent: int) -> list[str]:
    """Return the lines of a YAML block literal (after a `|`), indented; a quoted line may contain newlines."""
    whole = "\n".join(lines).split("\n")
    return [f"{' ' * indent}{line}" if line else "" for line in whole]
