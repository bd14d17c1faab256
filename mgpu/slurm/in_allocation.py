"""Run a job script in an existing allocation: in the shell of salloc, or in an srun step.

Its own shell runs it here, with the variables that sbatch would set. It is supervised like any launch.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.process.command import Command
from mgpu.report import screen as report_screen
from mgpu.scheduler import client
from mgpu.slurm.salloc import Allocation, gpu_count
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.launch.hang_follower import JobHangs
    from mgpu.launch.request import Request
    from mgpu.slurm.prepare import Prepared
    from mgpu.snapshot import JobScript, Run

# fmt: off
# Variables in which srun describes a task's binding and step, and which a nested srun would read as options (man srun,
# input environment variables).
_OF_A_STEP = (
    "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE", "SLURM_DISTRIBUTION",
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_GPUS", "SLURM_STEP_LAUNCHER_PORT", "SLURM_STEP_RESV_PORTS",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT", "SLURM_TASK_PID", "SLURM_PTY_PORT", "SLURM_PTY_WIN_COL", "SLURM_PTY_WIN_ROW",
    "SLURM_HOSTFILE",
)
# fmt: on
_ENDING_S, _POLL_S = 5.0, 0.2


def environment(job: JobScript, here: Allocation, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that sbatch would set for the script and that the allocation's shell lacks."""
    tasks = job.directive("ntasks-per-node")
    each = tasks.value if tasks is not None and tasks.value and tasks.value.isdecimal() else ""
    cpus = job.directive("cpus-per-task")
    added = {"SLURM_SUBMIT_DIR": os.getcwd()}
    if here.step:
        added["SLURM_OVERLAP"] = "1"  # share the resources of the current step
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
    """Raise MgpuError (125) if the script requests more than the allocation has."""
    asked_nodes = prepared.job.directive("nodes")
    wanted = prepared.nodes
    if wanted is None and asked_nodes is not None and asked_nodes.value:
        least = re.match(r"\d+", asked_nodes.value)
        wanted = int(least[0]) if least else None
    gpus = None
    for name in ("gpus-per-node", "gres"):
        said = prepared.job.directive(name)
        if said is not None and said.value:
            gpus = gpus or gpu_count(
                next((part for part in said.value.split(",") if name != "gres" or part.startswith("gpu")), "")
            )
    has = f"the allocation (job {here.job}) has"
    if wanted and here.nodes and wanted > here.nodes:
        text = (
            f"{prepared.name} requests {wanted} nodes, {has} {here.nodes}: use --nodes {here.nodes} or a larger salloc"
        )
        raise MgpuError(text, errors.LAUNCH_REFUSED)
    if gpus and gpus > (here.gpus_per_node or 0) and (here.gpus_per_node is not None or not _may_have_gpus()):
        text = f"{prepared.name} requests {gpus} GPUs per node, {has} {here.gpus_per_node or 'none'}"
        raise MgpuError(f"{text}:  salloc --gpus-per-node={gpus} ...", errors.LAUNCH_REFUSED)
    _refuse_too_many_cpus(prepared, here)


def _refuse_too_few_nodes(request: Request, prepared: Prepared, here: Allocation) -> None:
    """Raise MgpuError (125) if the script's srun would use more nodes than requested.

    It uses all nodes of the allocation; only the pre-flight excludes the surplus ones.
    """
    if request.preflight and os.environ.get("MGPU_PREFLIGHT") != "0":
        return
    asked_for = prepared.nodes if prepared.source is None or request.nodes else None
    if asked_for and here.nodes and asked_for < here.nodes:
        text = (
            f"{counted(asked_for, 'node')} requested, but the allocation (job {here.job}) has {here.nodes}, and "
            f"without the pre-flight all of them would train: use --nodes {here.nodes}, or omit --no-preflight "
            "(MGPU_PREFLIGHT=0)"
        )
        raise MgpuError(text, errors.LAUNCH_REFUSED)


def _refuse_too_many_cpus(prepared: Prepared, here: Allocation, environ: Mapping[str, str] = os.environ) -> None:
    """Raise MgpuError (125) for a step that srun would refuse with "More processors requested than permitted"."""
    said = [prepared.job.directive(name) for name in ("cpus-per-task", "ntasks-per-node")]
    cpus, tasks = (int(one.value) if one and one.value and one.value.isdecimal() else None for one in said)
    granted = [int(found) for found in re.findall(r"(?:^|,)(\d+)", environ.get("SLURM_JOB_CPUS_PER_NODE", ""))]
    if cpus is None or not granted or cpus * (tasks or 1) <= min(granted):
        return
    wanted = cpus * (tasks or 1)
    text = f"{prepared.name} requests {wanted} CPUs per node, the allocation (job {here.job}) has {min(granted)}"
    with_tasks = f"--ntasks-per-node={tasks} " if tasks else ""
    raise MgpuError(f"{text}:  salloc {with_tasks}--cpus-per-task={cpus} ...", errors.LAUNCH_REFUSED)


def _may_have_gpus(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there may be GPUs of unknown number: salloc --gpus=8 or --gres, run on a login node."""
    return any(environ.get(name) for name in ("SLURM_GPUS", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_JOB_GRES")) or (
        not environ.get("SLURMD_NODENAME")
    )


def start(request: Request, prepared: Prepared, here: Allocation, folder: Path) -> int:
    """Run the script here; return its exit code."""
    refuse_too_large(prepared, here)
    _refuse_too_few_nodes(request, prepared, here)
    if request.dry_run:
        return _run_script(request, prepared, here, folder)
    from mgpu.launchers import run_folder

    more = [prepared.name] if prepared.changed else []
    named, outlived = bool(request.log_dir), request.detach
    with run_folder.claim_folder(folder, run_folder.LAUNCH, named=named, more=more, outlived=outlived) as made:
        return _run_script(request, prepared, here, made)


def _run_script(request: Request, prepared: Prepared, here: Allocation, made: Path) -> int:
    from mgpu.job_files.watch_block import FOLDER
    from mgpu.launch import hand_off
    from mgpu.launch.hang_follower import JobHangs
    from mgpu.slurm import prepare
    from mgpu.slurm import report as slurm_report
    from mgpu.snapshot import Snapshot

    run = _command(prepared, here, made)
    slurm_report.show_plan(_rows(prepared, here, run), report_screen.Screen.of(sys.stderr))
    if request.dry_run:
        prepare.show_text(prepared)
        return errors.READY
    if not request.yes and report_screen.can_ask():
        from mgpu.launch import result_document, summary

        if not summary.confirm_start():
            prepare.remove_script(prepared, made)
            return result_document.record_declined(request)
    prepare.write_script(prepared, made)
    before = _steps(here)
    watched = prepared.watched / f"{FOLDER}{here.job}" if prepared.watched else None
    hangs = JobHangs(watched, stops=request.on_hang == "stop", copy=made)
    try:
        if request.detach:
            from mgpu.launch import detached, run_entry

            run_entry.can_keep()
            return detached.start(request, run, made, Snapshot(), hangs, partial(_ended, hangs, here, before))
        code = hand_off.hand_off(request, run, made, Snapshot(), hangs=hangs, recorded=hangs.with_records)
        if code:
            _show_preflight(made / f"preflight-{here.job}")
        return code
    finally:
        if not request.detach:
            _end_steps(here, before)


def _ended(hangs: JobHangs, here: Allocation, before: frozenset[str] | None, run: Run) -> Run:
    """Return a detached run that has ended with what its nodes recorded; then cancel its steps, also the watch."""
    found = hangs.with_records(run)
    _end_steps(here, before)
    return found


def _command(prepared: Prepared, here: Allocation, made: Path) -> Command:
    """Return the command: the script's own shell, with the variables that sbatch would set."""
    script = prepared.source if not prepared.changed and prepared.source is not None else made / prepared.name
    argv = (*_env_prefix(here), *_shell(prepared.job.shebang), str(script), *prepared.arguments)
    name, added = str(prepared.source or script), environment(prepared.job, here)
    return Command(argv, added, uuid.uuid4().hex, ranks=0, script=name, arguments=prepared.arguments, is_job=True)


def _rows(prepared: Prepared, here: Allocation, run: Command) -> list[tuple[str, str]]:
    nodes = f"job {here.job}" + (f", {counted(here.nodes, 'node')}" if here.nodes else "")
    return [
        ("Job", run.script),
        ("Allocation", f"{nodes}{', in a step' if here.step else ''}: runs here, nothing is submitted"),
        ("Config", prepared.config.path if prepared.config else ""),
        ("Pre-flight", prepared.preflight),
        ("Recorder", prepared.recorder),
        ("Env", "  ".join(f"{name}={shlex.quote(value)}" for name, value in run.env_added.items())),
        ("", "without this task's own srun variables (SLURM_CPU_BIND, SLURM_STEP_...)" if here.step else ""),
        ("Command", shlex.join(run.argv[len(_env_prefix(here)) :])),
    ]


def _show_preflight(folder: Path) -> None:
    """If the pre-flight did not start the training, show which nodes are bad, and why."""
    from mgpu.report import failure
    from mgpu.slurm import job_outcome
    from mgpu.slurm import report as slurm_report

    found = job_outcome.preflight_in([folder])
    if found is not None and not found["chosen"]:
        screen = report_screen.Screen.of(sys.stderr)
        slurm_report.show(screen, failure.row(screen, "Pre-flight", slurm_report.stopped_it(found, "salloc")))


def _env_prefix(here: Allocation) -> tuple[str, ...]:
    """Return the `env` prefix that removes this task's own variables in a step; else nothing."""
    if not here.step:
        return ()
    return ("env", *(word for name in _OF_A_STEP if name in os.environ for word in ("-u", name)))


def _shell(shebang: str | None) -> tuple[str, ...]:
    """Return the shell in the script's shebang line, with its options."""
    command = (shebang or "").removeprefix("#!").split()
    return tuple(command) or ("/bin/bash",)


def _steps(here: Allocation) -> frozenset[str] | None:
    """Return the running steps of the job; None if Slurm did not answer."""
    if not client.is_there("squeue"):
        return None
    command = ("squeue", "--steps", "--noheader", f"--jobs={here.job}", "--format=%i")
    answer = client.ask(*command, limit_s=client.LOOK_S)
    return frozenset(answer.out.split()) if answer.code == 0 else None


def _end_steps(here: Allocation, before: frozenset[str] | None) -> None:
    """Cancel the steps that the script left running: a step continues when its srun is killed."""
    if before is None or (now := _steps(here)) is None:
        return
    numbered = (step for step in now - before if re.fullmatch(r"\d+\.\d+", step))
    if left := sorted(numbered):
        client.ask("scancel", "--signal=TERM", *left, limit_s=client.LOOK_S)  # the default for a step is KILL
        until = time.monotonic() + _ENDING_S
        while left and time.monotonic() < until:
            time.sleep(_POLL_S)
            if (now := _steps(here)) is not None:
                left = [step for step in left if step in now]
        if left:
            client.ask("scancel", *left, limit_s=client.LOOK_S)
