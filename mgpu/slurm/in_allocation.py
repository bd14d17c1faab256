"""How does a job script run in an allocation that is there already: in the shell of salloc, or in a step of srun?

By its own shell, here, with the variables that sbatch would have given it. It is watched as any launch is.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.process.command import Command
from mgpu.report import screen as report_screen
from mgpu.scheduler import client
from mgpu.slurm.salloc import Allocation, _count
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.launch.request import Request
    from mgpu.slurm.prepare import Prepared
    from mgpu.snapshot import JobScript

# fmt: off
# What srun tells its tasks of their binding and step, and an srun below them takes for a wish (man srun, input
# environment variables).
_OF_A_STEP = (
    "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE", "SLURM_DISTRIBUTION",
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_GPUS", "SLURM_STEP_LAUNCHER_PORT", "SLURM_STEP_RESV_PORTS",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT", "SLURM_TASK_PID", "SLURM_PTY_PORT", "SLURM_PTY_WIN_COL", "SLURM_PTY_WIN_ROW",
    "SLURM_HOSTFILE",
)
# fmt: on


def environment(job: JobScript, here: Allocation, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What sbatch would have told the script, and the shell of an allocation does not."""
    tasks = job.directive("ntasks-per-node")
    each = tasks.value if tasks is not None and tasks.value and tasks.value.isdecimal() else ""
    cpus = job.directive("cpus-per-task")
    added = {"SLURM_SUBMIT_DIR": os.getcwd()}
    if here.step:
        added["SLURM_OVERLAP"] = "1"  # beside the step that this is
    if (here.step or each) and here.nodes:
        number = str(here.nodes * int(each or 1))
        added |= {
            "SLURM_NNODES": str(here.nodes),
            "SLURM_NTASKS": number,
            "SLURM_NPROCS": number,
            "SLURM_NTASKS_PER_NODE": each or "1",
        }
        if nodes := environ.get("SLURM_JOB_NODELIST"):
            added["SLURM_NODELIST"] = nodes
    if cpus is not None and cpus.value and cpus.value.isdecimal() and "SLURM_CPUS_PER_TASK" not in environ:
        added["SLURM_CPUS_PER_TASK"] = cpus.value
    if "SLURM_CPUS_ON_NODE" not in environ:
        granted = re.match(r"\d+", environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
        if granted:
            added["SLURM_CPUS_ON_NODE"] = granted[0]
    if "SLURM_GPUS_ON_NODE" not in environ and here.gpus_per_node is not None:
        added["SLURM_GPUS_ON_NODE"] = str(here.gpus_per_node)
    return added


def refuse_too_large(prepared: Prepared, here: Allocation) -> None:
    """Raises MgpuError (125) where the script wants more than the allocation has."""
    asked_nodes = prepared.job.directive("nodes")
    wanted = prepared.nodes
    if wanted is None and asked_nodes is not None and asked_nodes.value:
        least = re.match(r"\d+", asked_nodes.value)
        wanted = int(least[0]) if least else None
    gpus = None
    for name in ("gpus-per-node", "gres"):
        said = prepared.job.directive(name)
        if said is not None and said.value:
            gpus = gpus or _count(
                next((part for part in said.value.split(",") if name != "gres" or part.startswith("gpu")), "")
            )
    has = f"the allocation (job {here.job}) has"
    if wanted and here.nodes and wanted > here.nodes:
        words = f"{prepared.name} wants {wanted} nodes, {has} {here.nodes}: --nodes {here.nodes}, or a larger salloc"
        raise MgpuError(words, errors.LAUNCH_REFUSED)
    if gpus and gpus > (here.gpus_per_node or 0) and (here.gpus_per_node is not None or not _any_gpu_told()):
        words = f"{prepared.name} wants {gpus} GPUs a node, {has} {here.gpus_per_node or 'none'}"
        raise MgpuError(f"{words}:  salloc --gpus-per-node={gpus} ...", errors.LAUNCH_REFUSED)
    _refuse_too_many_cpus(prepared, here)


def _refuse_too_few_nodes(request: Request, prepared: Prepared, here: Allocation) -> None:
    """The script's srun takes all nodes of the allocation; only the pre-flight leaves those out that are too many."""
    if request.preflight and os.environ.get("MGPU_PREFLIGHT") != "0":
        return
    asked_for = prepared.nodes if prepared.source is None or request.nodes else None
    if asked_for and here.nodes and asked_for < here.nodes:
        words = (
            f"{asked_for} node{'s are' if asked_for > 1 else ' is'} to train, the allocation (job {here.job}) has "
            f"{here.nodes}, and without the pre-flight all of them would: --nodes {here.nodes}, or leave out "
            "--no-preflight (MGPU_PREFLIGHT=0)"
        )
        raise MgpuError(words, errors.LAUNCH_REFUSED)


def _refuse_too_many_cpus(prepared: Prepared, here: Allocation, environ: Mapping[str, str] = os.environ) -> None:
    """srun refuses such a step: "More processors requested than permitted"."""
    said = [prepared.job.directive(name) for name in ("cpus-per-task", "ntasks-per-node")]
    cpus, tasks = (int(one.value) if one and one.value and one.value.isdecimal() else None for one in said)
    granted = [int(found) for found in re.findall(r"(?:^|,)(\d+)", environ.get("SLURM_JOB_CPUS_PER_NODE", ""))]
    if cpus is None or not granted or cpus * (tasks or 1) <= min(granted):
        return
    words = (
        f"{prepared.name} wants {cpus * (tasks or 1)} CPUs a node, the allocation (job {here.job}) has {min(granted)}"
    )
    with_tasks = f"--ntasks-per-node={tasks} " if tasks else ""
    raise MgpuError(f"{words}:  salloc {with_tasks}--cpus-per-task={cpus} ...", errors.LAUNCH_REFUSED)


def _any_gpu_told(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there are GPUs whose number a node is not told: salloc --gpus=8, or --gres, typed on a login node."""
    return any(environ.get(name) for name in ("SLURM_GPUS", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_JOB_GRES")) or (
        not environ.get("SLURMD_NODENAME")
    )


def start(request: Request, prepared: Prepared, here: Allocation, folder: Path) -> int:
    """Run the script here; its own exit status."""
    refuse_too_large(prepared, here)
    _refuse_too_few_nodes(request, prepared, here)
    if request.dry_run:
        return _started(request, prepared, here, folder)
    from mgpu.launchers import run_folder

    more = [prepared.name] if prepared.changed else []
    named, outlived = bool(request.log_dir), request.detach
    with run_folder.claim_folder(folder, run_folder.LAUNCH, named=named, more=more, outlived=outlived) as made:
        return _started(request, prepared, here, made)


def _started(request: Request, prepared: Prepared, here: Allocation, made: Path) -> int:
    from mgpu.launch import hand_off
    from mgpu.slurm import prepare
    from mgpu.slurm import report as slurm_report
    from mgpu.snapshot import Snapshot

    run = _command(prepared, here, made)
    slurm_report.plan(_rows(prepared, here, run), report_screen.Screen.of(sys.stderr))
    if request.dry_run:
        prepare.show_text(prepared)
        return errors.READY
    if not request.yes and report_screen.can_ask():
        from mgpu.launch import result_document, summary

        if not summary.agreed():
            prepare.nothing_was_run(prepared, made)
            return result_document.declined(request)
    prepare.written(prepared, made)
    before = _steps(here)
    try:
        if request.detach:
            from mgpu.launch import detached, run_entry

            run_entry.can_keep()
            return detached.start(request, run, made, Snapshot())
        code = hand_off.hand_off(request, run, made, Snapshot())
        if code:
            _tell_preflight(made / f"preflight-{here.job}")
        return code
    finally:
        if not request.detach:
            _end_steps(here, before)


def _command(prepared: Prepared, here: Allocation, made: Path) -> Command:
    """The script's own shell, with what sbatch would have told it."""
    script = prepared.source if not prepared.changed and prepared.source is not None else made / prepared.name
    argv = (*_clean(here), *_shell(prepared.job.shebang), str(script), *prepared.arguments)
    name, added = str(prepared.source or script), environment(prepared.job, here)
    return Command(argv, added, uuid.uuid4().hex, ranks=0, script=name, arguments=prepared.arguments, is_job=True)


def _rows(prepared: Prepared, here: Allocation, run: Command) -> list[tuple[str, str]]:
    nodes = f"job {here.job}" + (f", {counted(here.nodes, 'node')}" if here.nodes else "")
    return [
        ("Job", run.script),
        ("Allocation", f"{nodes}{', in a step' if here.step else ''}: it runs here, nothing is submitted"),
        ("Config", prepared.config.path if prepared.config else ""),
        ("Pre-flight", prepared.preflight),
        ("Env", "  ".join(f"{name}={shlex.quote(value)}" for name, value in run.env_added.items())),
        ("", "without what srun has told this task alone (SLURM_CPU_BIND, SLURM_STEP_...)" if here.step else ""),
        ("Command", shlex.join(run.argv[len(_clean(here)) :])),
    ]


def _tell_preflight(folder: Path) -> None:
    """Where the pre-flight of this run let no training start: which nodes, and why."""
    from mgpu.report import failure
    from mgpu.slurm import job_outcome
    from mgpu.slurm import report as slurm_report

    found = job_outcome.preflight_in([folder])
    if found is not None and not found["chosen"]:
        screen = report_screen.Screen.of(sys.stderr)
        slurm_report.show(screen, failure.row(screen, "Pre-flight", slurm_report.stopped_it(found, "salloc")))


def _clean(here: Allocation) -> tuple[str, ...]:
    """In a step: without the variables that are this task's alone."""
    if not here.step:
        return ()
    return ("env", *(word for name in _OF_A_STEP if name in os.environ for word in ("-u", name)))


def _shell(shebang: str | None) -> tuple[str, ...]:
    """The shell that the script names, with its options."""
    words = (shebang or "").removeprefix("#!").split()
    return tuple(words) or ("/bin/bash",)


def _steps(here: Allocation) -> frozenset[str] | None:
    """The steps of the job that run now; None: Slurm did not say."""
    if not client.is_there("squeue"):
        return None
    words = ("squeue", "--steps", "--noheader", f"--jobs={here.job}", "--format=%i")
    answer = client.ask(*words, limit_s=client.LOOK_S)
    return frozenset(answer.out.split()) if answer.code == 0 else None


def _end_steps(here: Allocation, before: frozenset[str] | None) -> None:
    """A step whose srun was killed goes on by itself: what the script has started and left is ended."""
    if before is None or (now := _steps(here)) is None:
        return
    numbered = (step for step in now - before if re.fullmatch(r"\d+\.\d+", step))
    if left := sorted(numbered):
        client.ask("scancel", *left, limit_s=client.LOOK_S)
