"""Prepare the job script to submit: the given one with the pre-flight inserted, or one written for a Python script."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from mgpu import engine, errors, file_reading
from mgpu.command_line import below, shell
from mgpu.engine import before_start
from mgpu.errors import MgpuError, reason
from mgpu.job_files import insert, preflight_block, watch_block
from mgpu.job_files.job import THIS_FILE, Job, Watch
from mgpu.job_formats import SHAPES, Shape
from mgpu.launch.request import Request
from mgpu.process import scratch, training_python
from mgpu.snapshot import Config, JobScript, Plan, Snapshot
from mgpu.text import counted

_CONFIG = "accelerate.yaml"
_OF_REQUEST = ("partition", "account", "qos", "time")  # passed to sbatch unchanged
# mgpu follows exactly one job to its end.
_NOT_FOLLOWED = {
    "array": "an array is many jobs: submit it with sbatch, and run  mgpu smoke-test --slurm  in each task if needed",
    "wait": "sbatch itself would wait: remove this line",
}
_SEVERAL = re.compile(r"^#SBATCH[ \t]+(?:het|pack)job\b", re.MULTILINE)
# Programs that start a command in a container image.
_IMAGES = frozenset({"apptainer", "singularity", "docker", "podman", "enroot", "shifter"})
_BY_WATCH = "in each rank, for hangs: PYTHONPATH, MGPU_RECORDER, and a step that watches them (--no-recorder: without)"
_BY_PREFLIGHT = "checks the nodes and runs test ranks on them before the training starts"


@dataclass(frozen=True)
class Prepared:
    """A job script as it will be submitted."""

    name: str  # of the file
    text: str
    job: JobScript  # the facts of the script, given or written
    arguments: tuple[str, ...]
    options: tuple[str, ...]  # of sbatch; they override the script's
    nodes: int | None  # that train
    preflight: str  # what it does or why there is none, as text
    changed: bool  # differs from the given file
    config: Config | None
    source: Path | None  # the given file
    recorder: str = ""  # as `preflight`
    watched: Path | None = None  # where its nodes report what its ranks do; None: the ranks have no recorder


def prepare_script(request: Request, target: list[str], folder: Path) -> Prepared:
    """Return the script to run: the given one, or one written for a Python script."""
    from mgpu.readers.job_script import read

    path = Path(target[0])
    if request.module or path.suffix == ".py":
        return _write_new(request, target, folder)
    if not path.is_file():
        from mgpu.launchers import choice as launchers_choice

        launchers_choice.resolve_target(target, module=request.module)  # raises what is wrong with the name
    if not read.is_job_script(path):
        text = f"{path} is neither a job script (a shell script with #SBATCH lines) nor a Python script (.py)"
        raise MgpuError(text, errors.USAGE)
    if request.gpus_per_node is not None:
        raise MgpuError(f"--gpus-per-node is for a Python script; {path} has its own #SBATCH lines", errors.USAGE)
    job = read.read(path)
    if job.error:
        raise MgpuError(f"{path}: {job.error}", errors.USAGE)
    return _of_script(request, path, job, tuple(target[1:]), folder)


def _of_script(request: Request, path: Path, job: JobScript, arguments: tuple[str, ...], folder: Path) -> Prepared:
    from mgpu.readers.job_script import read

    for option, why in _NOT_FOLLOWED.items():
        if said := job.directive(option):
            raise MgpuError(f"{path}:{said.line}: --{option}: {why}", errors.LAUNCH_REFUSED)
    try:
        text = file_reading.read(path, most=read.LARGEST_BYTES).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {error.strerror or reason(error)}", errors.USAGE) from None
    nodes = request.nodes or _nodes(job)
    options = _options(request, path, job, nodes)
    config = _config_of(request, job)
    watched, recorder = _with_watch(request, text, job, folder)
    changed, preflight = _with_preflight(request, watched, job, nodes, config, folder)
    return Prepared(
        path.name,
        changed,
        job,
        arguments,
        options,
        nodes,
        preflight,
        changed != text,
        config,
        path,
        recorder=recorder,
        watched=folder.absolute() if watched != text else None,
    )


def _options(request: Request, path: Path, job: JobScript, nodes: int | None) -> tuple[str, ...]:
    """Return the options of sbatch that override the script's."""
    options = [f"--{name}={value}" for name in _OF_REQUEST if (value := getattr(request, name))]
    if request.spare:
        if nodes is None:
            raise MgpuError(f"--spare: {path} does not set the number of nodes: add --nodes N", errors.USAGE)
        options += with_spare(job, nodes, request.spare)
    elif request.nodes:
        options.append(f"--nodes={request.nodes}")
    return tuple(options)


def _with_preflight(
    request: Request, text: str, job: JobScript, nodes: int | None, config: Config | None, folder: Path
) -> tuple[str, str]:
    """Return the script with or without the pre-flight, as requested, and a text that describes it."""
    present = preflight_block.present(text)
    if not request.preflight:
        without = preflight_block.off(text) if present else text
        if without is None:
            return text, "in the script, in lines that --no-preflight cannot remove"
        return without, "omitted (--no-preflight)"
    if present:
        spare = f", with {counted(request.spare, 'spare node')}" if request.spare else ""
        return text, f"in the script{spare}"
    if _SEVERAL.search(text):
        return text, "none: this is a heterogeneous job (hetjob)"
    if (line := insert.place(job)) is None:
        return text, "none: no launch command found in the script"
    named = str(Path(config.path).absolute()) if config else None
    logs, image = str(folder.absolute()), _in_image(job)
    lines = preflight_block.lines(
        mgpu=training_python.own_command(), need=nodes, config=named, logs=logs, container=image, spare=request.spare
    )
    how = f"inserted before line {line}: {_BY_PREFLIGHT} (omit with --no-preflight)"
    return insert.with_block(text, "\n".join(lines), line), how


def _with_watch(request: Request, text: str, job: JobScript, folder: Path) -> tuple[str, str]:
    """Return the script with the recorder, if it is wanted and possible, and a text that describes it."""
    if not request.recorder:
        return text, ""
    if _SEVERAL.search(text):
        return text, "none: this is a heterogeneous job (hetjob)"
    line = job.first_launch_line
    if line is None or insert.place(job) is None:
        return text, "none: no launch command found in the script"
    if _in_image(job):
        return text, "none: the ranks run in a container image"
    lines = watch_block.lines(_watch(request), str(folder.absolute()))
    return insert.with_block(text, "\n".join(lines), line), f"inserted before line {line}: {_BY_WATCH}"


def _watch(request: Request) -> Watch:
    """Return what the nodes do about a hang. If no command follows the job, they end it, but never an allocation."""
    from mgpu.slurm import salloc

    alone = request.detach and salloc.allocation() is None
    return Watch(sys.executable, request.hang_after_s, stops=alone and request.on_hang == "stop")


def _in_image(job: JobScript) -> bool:
    """Whether the training runs in a container image, which the pre-flight does not check."""
    if job.directive("container-image") or job.directive("container"):
        return True
    steps = [job.commands[launch.step].words for launch in job.launches if launch.step is not None]
    options = any(word.startswith(("--container-image", "--container=")) for words in steps for word in words)
    return options or any(_IMAGES & {*launch.through} for launch in job.launches)


def _write_new(request: Request, target: list[str], folder: Path) -> Prepared:
    """Return a job for a Python script, from the options and the config."""
    from mgpu.job_files import environment, sbatch
    from mgpu.readers.job_script import read

    words, config = _target(request, target), _config(request)
    job = replace(_job(request, words, config, folder), watch=_watch(request) if request.recorder else None)
    folder_name = "job.sbatch"
    head, blank, rest = sbatch.render(replace(job, setup=environment.setup_lines())).partition("\n\n")
    text = head.replace(THIS_FILE, folder_name) + blank + rest
    with scratch.folder() as place:
        path = place / folder_name
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        facts = read.read(path)
    facts = replace(facts, path=str(folder / folder_name))
    how = f"{_BY_PREFLIGHT} (omit with --no-preflight)" if job.preflight else "omitted (--no-preflight)"
    found = Prepared(folder_name, text, facts, (), (), job.nodes, how, True, config, None)
    return replace(found, recorder=_BY_WATCH, watched=folder.absolute()) if job.watch else found


def _target(request: Request, target: list[str]) -> list[str]:
    from mgpu.launchers import choice as launchers_choice

    return launchers_choice.resolve_target(target, module=request.module)


def _job(request: Request, words: list[str], config: Config, folder: Path) -> Job:
    from mgpu.config.reading import pinning_variables
    from mgpu.launchers import choice as launchers_choice
    from mgpu.launchers.table import WAYS
    from mgpu.slurm import salloc

    here = salloc.allocation()
    given = here.nodes - request.spare if here is not None and here.nodes else 0
    nodes = request.nodes or max(given, 0) or max(1, config.num_machines)
    machines = max(1, config.num_machines)
    each = max(1, (config.num_processes or machines) // machines)
    on_cpu = config.on_cpu or config.cpu_job
    gpus = request.gpus_per_node if request.gpus_per_node is not None else 0 if on_cpu else each
    script = launchers_choice.read(words)
    choice = launchers_choice.choose(config, script, request.launcher, gpus=request.gpus)
    if choice.own_ranks:
        raise MgpuError(f"{choice.why}: write a job script that starts it once, with srun python", errors.USAGE)
    if choice.launcher not in SHAPES:
        why = "starts a single process, but a Slurm job needs a distributed launcher"
        if not WAYS[choice.launcher].one_process:
            why = f"is not supported in Slurm jobs: use {', '.join(SHAPES)}"
        raise MgpuError(f"--launcher {choice.launcher} {why}", errors.USAGE)
    return Job(
        tuple(words),
        cast(Shape, choice.launcher),
        str(Path(config.path).absolute()),
        nodes,
        request.spare,
        gpus,
        gpus or each,
        name=Path(words[1] if words[0] == "-m" else words[0]).name.removesuffix(".py"),
        partition=request.partition,
        account=request.account,
        qos=request.qos,
        time=request.time,
        preflight=request.preflight,
        mgpu=training_python.own_command(),
        logs=str(folder),
        env=pinning_variables(config.launch_flags) if gpus else {},
    )


def _config(request: Request) -> Config:
    """Return the config of the request. Raises MgpuError if it does not exist or would be refused."""
    from mgpu.config import facts

    path = Path(request.config or os.environ.get("MGPU_CONFIG") or _CONFIG)
    if not path.exists():
        raise MgpuError(f"config {path} not found. Create one with:  mgpu configure --slurm", errors.LAUNCH_REFUSED)
    config = replace(facts(path, ask_loader=False), engine="slurm")  # the job sets the rendezvous endpoint
    problems = [outcome for outcome in before_start.refusals(_of_config(config)) if outcome.check.area == "config"]
    if problems:
        again = below(shell("mgpu configure --validate {:path}", str(path)))
        raise MgpuError(f"{path}: {title(problems[0])}{again}", errors.LAUNCH_REFUSED)
    return config


def _of_config(config: Config) -> Snapshot:
    return Snapshot(config=config, plan=Plan(nodes=config.num_machines))


def _config_of(request: Request, job: JobScript) -> Config | None:
    """Return the config in a job script's launch command, for the pre-flight's smoke test."""
    from mgpu.config import facts
    from mgpu.readers.job_script import read

    if request.config:
        return _config(request)
    named = read.named_config(job)
    if named is None and Path(_CONFIG).is_file() and any(one.launcher == "accelerate" for one in job.launches):
        named = Path(_CONFIG)
    return facts(named, ask_loader=False) if named is not None else None


def _nodes(job: JobScript) -> int | None:
    """Return the number of nodes that a script requests; None if it sets none or a range."""
    said = job.directive("nodes")
    return (int(said.value) or None) if said is not None and said.value and said.value.isdecimal() else None


def with_spare(job: JobScript, nodes: int, spare: int) -> list[str]:
    """Return the sbatch options that request spare nodes, with tasks and GPUs in proportion."""
    options = [f"--nodes={nodes + spare}"]
    tasks = job.directive("ntasks")
    if tasks is not None and tasks.value and tasks.value.isdecimal() and int(tasks.value) % nodes == 0:
        options.append(f"--ntasks={int(tasks.value) // nodes * (nodes + spare)}")
    gpus = job.directive("gpus")
    if gpus is not None and gpus.value:
        kind, colon, number = gpus.value.rpartition(":")
        if number.isdecimal() and int(number) % nodes == 0:
            options.append(f"--gpus={kind}{colon}{int(number) // nodes * (nodes + spare)}")
    return options


def title(outcome: engine.Outcome) -> str:
    """Return the title of an outcome, one line."""
    return outcome.problem.title if outcome.problem else outcome.check.summary


def remove_script(prepared: Prepared, folder: Path) -> None:
    """Remove the script of a run that did not start; its folder is removed with the claim on it (run_folder)."""
    if prepared.changed:
        with contextlib.suppress(OSError):
            (folder / prepared.name).unlink()


def write_script(prepared: Prepared, folder: Path) -> Path:
    """Return the script to submit: the given file if it is unchanged, else one written into the run's folder."""
    if not prepared.changed and prepared.source is not None:
        return prepared.source
    path = folder / prepared.name
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
        with open(handle, "wb") as file:
            file.write(prepared.text.encode("utf-8", "surrogateescape"))
            os.fchmod(handle, 0o700)
    except OSError as error:
        raise MgpuError(f"cannot write {path}: {errors.reason(error)}", errors.LAUNCH_REFUSED) from None
    return path


def show_text(prepared: Prepared) -> None:
    """Print the script byte for byte."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is not None:
        stream.write(prepared.text.encode("utf-8", "surrogateescape"))
        stream.flush()
