"""Refuse values that a job script cannot contain, before one is written."""

from __future__ import annotations

import re

from mgpu.errors import USAGE, MgpuError
from mgpu.job_files.job import Job
from mgpu.job_formats import SHAPES
from mgpu.probes import cluster
from mgpu.secrets_masking import masked, masked_argv, masked_env

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_TYPE = re.compile(r"[\w.+-]+", re.ASCII)  # of a GPU
_EARLY_S = 60  # Slurm's signal may come this much earlier than requested (man sbatch, --signal)
_LATEST_S = 65535  # the earliest time before a job's end for Slurm's signal (man sbatch, --signal)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # of a variable


def refuse_invalid(job: Job) -> None:
    """Raise MgpuError (2) for a value that would break the script or change its meaning."""
    if job.shape not in SHAPES:
        raise MgpuError(f"shape: {job.shape!r} is not one of {', '.join(SHAPES)}", USAGE)
    least = {"nodes": 1, "spare": 0, "gpus_per_node": 0, "ranks_per_node": 1, "cpus_per_node": 1, "warn_s": 1}
    for field, lowest in least.items():
        if (value := getattr(job, field)) is not None and value < lowest:
            raise MgpuError(f"{field}: {value} is less than {lowest}", USAGE)
    if job.spare and not job.preflight:
        raise MgpuError("spare: spare nodes need the pre-flight, which excludes bad ones", USAGE)
    if not job.command:
        raise MgpuError("command: no script or module given", USAGE)
    for field in ("name", "partition", "account", "qos", "constraint", "exclude", "time", "memory", "logs", "mgpu"):
        _one_line(field, getattr(job, field))
    for line in job.setup:
        _one_line("setup", line)
    if "/" in job.name:
        raise MgpuError(f"name: {job.name!r} has a /, but it is part of the job's file names", USAGE)
    # man sbatch, filename pattern: % is expanded; with a backslash anywhere, nothing is, not even %j
    if found := re.search(r"[\\%]", job.logs):
        raise MgpuError(f"logs: {job.logs!r} has a {found.group()}, which Slurm reads as part of a pattern", USAGE)
    _refuse_times(job)
    if job.gpu_type and not _TYPE.fullmatch(job.gpu_type):
        raise MgpuError(f"gpu_type: {job.gpu_type!r} is not a valid GRES type (a100, h100-sxm)", USAGE)
    _refuse_texts(job)


def _refuse_times(job: Job) -> None:
    """Raise MgpuError (2) for invalid times.

    A job that is signaled when it starts would requeue at once, again and again.
    """
    try:
        limit_s = cluster.parse_time(job.time) if job.time else None
    except ValueError:
        text = f"time: {job.time!r} is not a valid Slurm time (90 for minutes, 12:00:00, 2-00:00:00)"
        raise MgpuError(text, USAGE) from None
    warn_s = job.warning_s
    if warn_s is None:
        return
    if warn_s > _LATEST_S:
        raise MgpuError(f"warn_s: {warn_s} is more than {_LATEST_S}, Slurm's maximum", USAGE)
    if limit_s and limit_s <= warn_s + _EARLY_S:  # 0: no limit
        again = ", and would be requeued again and again" if job.requeue else ""
        raise MgpuError(
            f"time: {job.time} is too short: the job is signaled {warn_s} s before its end, or up to "
            f"{_EARLY_S} s earlier{again}",
            USAGE,
        )


def _refuse_texts(job: Job) -> None:
    """Raise MgpuError (2) for texts that the script's commands cannot contain, and for secrets in them."""
    container = job.container
    words = [*job.command, *job.env.values(), job.config, *((container.image, *container.mounts) if container else ())]
    if any("\0" in word for word in words):
        raise MgpuError(
            "an argument or environment variable contains a NUL byte, which cannot be passed to a program", USAGE
        )
    try:
        "".join([*words, *job.setup, job.name, job.logs]).encode()
    except UnicodeEncodeError:
        text = "an argument of the command is not valid UTF-8, but a job script must be: rename that file"
        raise MgpuError(text, USAGE) from None
    for word, hidden in zip(job.command, masked_argv(job.command), strict=True):
        if word != hidden:
            text = "command: an argument is a secret, but Slurm stores and shows job scripts.\n"
            raise MgpuError(f"{text}Let the training read it from a file or its environment", USAGE)
    _refuse_secrets(job)
    for name, value in job.env.items():
        if not _NAME.fullmatch(name):
            raise MgpuError(f"env: {name!r} is not a valid variable name", USAGE)
        if masked_env({name: value})[name] != value:
            text = f"env: {name} is a secret, but Slurm stores and shows job scripts.\n"
            raise MgpuError(f"{text}Set it before submitting: a job inherits the environment of its submission", USAGE)
    for mount in container.mounts if container else ():
        if "," in mount:
            raise MgpuError(f"container: {mount!r} has a comma, which separates mounts", USAGE)


def _refuse_secrets(job: Job) -> None:
    """Raise MgpuError (2) for secrets in the script's other texts: setup lines, container image, names."""
    container = job.container
    texts = {
        "setup": [*job.setup],
        "config": [job.config],
        "container": [container.image, *container.mounts] if container else [],
        **{field: [getattr(job, field)] for field in ("name", "partition", "account", "qos", "constraint", "logs")},
    }
    for field, values in texts.items():
        if any(masked(value) != value for value in values):
            text = f"{field}: it contains a secret, but Slurm stores and shows job scripts.\n"
            raise MgpuError(f"{text}Set it in the environment before submitting, or read it from a file", USAGE)


def _one_line(field: str, value: str) -> None:
    if found := _CONTROL.search(value):
        raise MgpuError(f"{field}: {value!r} has a control character ({found.group()!r})", USAGE)
