"""What cannot stand in a job script, and is refused before one is written?"""

from __future__ import annotations

import re

from mgpu.errors import USAGE, MgpuError
from mgpu.job_files.job import Job
from mgpu.job_formats import SHAPES
from mgpu.probes import cluster
from mgpu.secrets_masking import masked, masked_argv, masked_env

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_TYPE = re.compile(r"[\w.+-]+", re.ASCII)  # of a GPU
_EARLY_S = 60  # Slurm's signal may come so much earlier than asked for (man sbatch, --signal)
_LATEST_S = 65535  # before the end of a job that Slurm's signal can be asked for (man sbatch, --signal)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)  # of a variable


def hold(job: Job) -> None:
    """Raise where a value would break the script, or say something else in it than was meant."""
    if job.shape not in SHAPES:
        raise MgpuError(f"shape: {job.shape!r} is none of {', '.join(SHAPES)}", USAGE)
    least = {"nodes": 1, "spare": 0, "gpus_per_node": 0, "ranks_per_node": 1, "cpus_per_node": 1, "warn_s": 1}
    for field, lowest in least.items():
        if (value := getattr(job, field)) is not None and value < lowest:
            raise MgpuError(f"{field}: {value} is less than {lowest}", USAGE)
    if job.spare and not job.preflight:
        raise MgpuError("spare: only the pre-flight can leave nodes out, and it is not asked for", USAGE)
    if not job.command:
        raise MgpuError("command: there is nothing to train", USAGE)
    for field in ("name", "partition", "account", "qos", "constraint", "exclude", "time", "memory", "logs", "mgpu"):
        _one_line(field, getattr(job, field))
    for line in job.setup:
        _one_line("setup", line)
    if "/" in job.name:
        raise MgpuError(f"name: {job.name!r} has a /, and stands in the names of the job's files", USAGE)
    # man sbatch, filename pattern: % is filled in, and with a backslash anywhere nothing is, %j neither
    if found := re.search(r"[\\%]", job.logs):
        raise MgpuError(f"logs: {job.logs!r} has a {found.group()}, which Slurm reads as part of a pattern", USAGE)
    _refuse_times(job)
    if job.gpu_type and not _TYPE.fullmatch(job.gpu_type):
        raise MgpuError(f"gpu_type: {job.gpu_type!r} is no type of a GRES (a100, h100-sxm)", USAGE)
    _refuse_words(job)


def _refuse_times(job: Job) -> None:
    """A job that is told of its end as it begins would queue again at once, and again, for ever."""
    try:
        limit_s = cluster.seconds(job.time) if job.time else None
    except ValueError:
        words = f"time: {job.time!r} is no time as Slurm reads it (90 for minutes, 12:00:00, 2-00:00:00)"
        raise MgpuError(words, USAGE) from None
    warn_s = job.warning_s
    if warn_s is None:
        return
    if warn_s > _LATEST_S:
        raise MgpuError(f"warn_s: {warn_s} is more than {_LATEST_S}, the most that Slurm takes", USAGE)
    if limit_s and limit_s <= warn_s + _EARLY_S:  # 0: no limit
        again = ", and would start again and again" if job.requeue else ""
        raise MgpuError(
            f"time: {job.time} is too short: the job is warned {warn_s} s before its end, or up to "
            f"{_EARLY_S} s earlier{again}",
            USAGE,
        )


def _refuse_words(job: Job) -> None:
    """The same for what stands in the script's commands, where any text may be but the byte that ends one."""
    container = job.container
    words = [*job.command, *job.env.values(), job.config, *((container.image, *container.mounts) if container else ())]
    if any("\0" in word for word in words):
        raise MgpuError(
            "a word of the command or the environment has a NUL in it, and no program can be given one", USAGE
        )
    try:
        "".join([*words, *job.setup, job.name, job.logs]).encode()
    except UnicodeEncodeError:
        raise MgpuError("a word of the command is no UTF-8, and a job script is: rename that file", USAGE) from None
    for word, hidden in zip(job.command, masked_argv(job.command), strict=True):
        if word != hidden:
            told = "command: one of its words is a secret, and a job script is kept and shown by Slurm.\n"
            raise MgpuError(f"{told}Let the training read it from a file, or from its environment", USAGE)
    _refuse_secrets(job)
    for name, value in job.env.items():
        if not _NAME.fullmatch(name):
            raise MgpuError(f"env: {name!r} is no name of a variable", USAGE)
        if masked_env({name: value})[name] != value:
            told = f"env: {name} is a secret, and a job script is kept and shown by Slurm.\n"
            raise MgpuError(f"{told}Set it before you submit: a job has the environment it was submitted from", USAGE)
    for mount in container.mounts if container else ():
        if "," in mount:
            raise MgpuError(f"container: {mount!r} has a comma, which divides mounts", USAGE)


def _refuse_secrets(job: Job) -> None:
    """The same for the other texts of the script: lines of setup, the image of a container, names."""
    container = job.container
    texts = {
        "setup": [*job.setup],
        "config": [job.config],
        "container": [container.image, *container.mounts] if container else [],
        **{field: [getattr(job, field)] for field in ("name", "partition", "account", "qos", "constraint", "logs")},
    }
    for field, values in texts.items():
        if any(masked(value) != value for value in values):
            words = f"{field}: it holds a secret, and a job script is kept and shown by Slurm.\n"
            raise MgpuError(f"{words}Set it in the environment that you submit from, or read it from a file", USAGE)


def _one_line(field: str, value: str) -> None:
    if found := _CONTROL.search(value):
        raise MgpuError(f"{field}: {value!r} has a control character ({found.group()!r})", USAGE)
