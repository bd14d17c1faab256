"""Write the job script of a Job.

All user values are quoted, and each appears once. The nodes evaluate one fixed line, `bash -c '...'`; its arguments are
expanded by the batch shell. The script needs mgpu on the nodes only for the pre-flight.

Measured with Slurm 22.05, torch 2.13 and accelerate 1.15 (2026-11): a `wait` that is interrupted by a trap must be
repeated, and bash returns the same exit status every time. `srun --wait=60` kills a task that is still saving the model
60 s after the first one has finished, and the job fails with 137. Under pipefail, `scontrol show hostnames | head -n 1`
failed 4 of 40 times with 1,000 nodes, `sed -n 1p` never. `scancel` sends SIGTERM to the tasks and to the batch shell,
and SIGKILL after KillWait.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mgpu.job_files import preflight_block, validate, watch_block
from mgpu.job_files.job import THIS_FILE, Job
from mgpu.job_formats import Shape
from mgpu.text import counted

# The port is this number plus a value from the job's number. It stays below 32768, where Linux's ports for outgoing
# connections begin (/proc/sys/net/ipv4/ip_local_port_range), with room for the next ones.
_FIRST_PORT = 12000
_PORTS = 20000
_WIDTH = 120  # of a comment
_UNQUOTED = re.compile(r"[\w@%+=:,./\-\[\]&|*()!^~]+", re.ASCII)  # needs no quotes in an #SBATCH line


def render(job: Job) -> str:
    """Return the sbatch script. Raises MgpuError (2) for a value that it cannot contain; writes nothing.

    Slurm opens the job's output before the script runs, so the folder `job.logs` must be created before submitting.
    `mgpu launch --slurm` creates it, and the script's header shows how to do so by hand.
    """
    validate.refuse_invalid(job)
    parts = [
        [*_head(job), "", *_directives(job)],
        [
            "set -euo pipefail",
            'cd "$SLURM_SUBMIT_DIR"',
            "export SLURM_EXPORT_ENV=ALL  # pass variables set here to the nodes, even after sbatch --export=NONE",
        ],
        _setup(job),
        _variables(job),
        _time_limit(job),
        preflight_block.of_job(job) if job.preflight else [],
        watch_block.lines(job.watch, job.logs) if job.watch else [],
        _rendezvous(job),
        _step(job),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _output(job: Job) -> str:
    """Return the file for the job's output in Slurm's syntax: %x is the job's name, %j its number."""
    return f"{job.logs.rstrip('/') or '/'}/%x-%j.out".replace("//", "/")


def _head(job: Job) -> list[str]:
    by_hand = [] if job.logs in (".", "") else [f"mkdir -p {shlex.quote(job.logs)}"]
    by_hand.append(f"sbatch {THIS_FILE}")
    together = f"#     or:  {' && '.join(by_hand)}"
    what = (
        counted(job.gpus_per_node, "GPU") if job.gpus_per_node else f"{counted(job.ranks_per_node, 'rank')} on the CPU"
    )
    spare = f", and {counted(job.spare, 'spare node')}" if job.spare else ""
    return [
        "#!/bin/bash",
        f"# {counted(job.nodes, 'node')} of {what}{spare};",
        f"# {_STARTED[job.shape].how}",
        f"# Submit:  mgpu launch --slurm {THIS_FILE}",
        *([together] if len(together) <= _WIDTH else [f"#     or:  {by_hand[0]}", f"#          {by_hand[1]}"]),
    ]


def _directives(job: Job) -> list[str]:
    tasks = job.tasks_per_node
    gpus = f"{job.gpu_type}:{job.gpus_per_node}" if job.gpu_type else str(job.gpus_per_node)
    cpus = max(1, job.cpus_per_node // tasks) if job.cpus_per_node else None
    warn = job.warning_s
    options: list[tuple[str, str | None]] = [
        ("job-name", job.name),
        ("partition", job.partition),
        ("account", job.account),
        ("qos", job.qos),
        ("nodes", str(job.nodes + job.spare)),
        ("ntasks-per-node", str(tasks)),
        ("gpus-per-node", gpus if job.gpus_per_node else ""),
        ("cpus-per-task", str(cpus) if cpus else ""),
        ("mem", job.memory),
        ("constraint", job.constraint),
        ("exclude", job.exclude),
        ("exclusive", None if job.exclusive else ""),
        ("time", job.time),
        ("output", _output(job)),
        ("open-mode", "append"),  # a requeued job continues its file
        ("requeue", None if job.requeue else ""),
        ("signal", f"B:USR1@{warn}" if warn else ""),
    ]
    return [
        f"#SBATCH --{name}" + ("" if value is None else f"={_directive(value)}")
        for name, value in options
        if value != ""
    ]


def _directive(value: str) -> str:
    """Return a value quoted for an #SBATCH line, where sbatch handles quotes, backslashes and # comments."""
    if _UNQUOTED.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _setup(job: Job) -> list[str]:
    if not job.setup:
        return []
    # The scripts of modules and conda read unset variables.
    return [
        "# Load the software for the training; srun passes the environment to the nodes.",
        "set +u",
        *job.setup,
        "set -u",
    ]


def _variables(job: Job) -> list[str]:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in job.env.items()]
    if "OMP_NUM_THREADS" not in job.env:
        lines += _threads(job)
    if job.gpus_per_node == 0 and "ACCELERATE_USE_CPU" not in job.env:
        # Without it, each rank of an accelerate script whose torch sees no GPU trains alone.
        lines.append("export ACCELERATE_USE_CPU=true  # the ranks of an accelerate script train together on CPUs")
    return lines


def _threads(job: Job) -> list[str]:
    """Return the lines that set a rank's threads: its share of the granted CPUs, which may differ from the request.

    The shell of salloc has no SLURM_CPUS_ON_NODE.
    """
    ranks, lines = job.ranks_per_node, list[str]()
    variable = "SLURM_CPUS_PER_TASK" if job.cpus_per_node else "SLURM_CPUS_ON_NODE"
    if job.threads:
        share = str(job.threads)
    elif ranks == 1 or (job.shape == "plain" and job.cpus_per_node):
        share = f"${{{variable}:-1}}"
    else:
        share = f"$((cpus > {ranks} ? cpus / {ranks} : 1))"
        lines.append(f"cpus=${{{variable}:-{ranks}}}")
    return [*lines, f"export OMP_NUM_THREADS={share}  # per rank"]


def _time_limit(job: Job) -> list[str]:
    """Return the lines that handle Slurm's signal before the time limit; if they fail, the training continues."""
    warn = job.warning_s
    if warn is None:
        return []
    # In the last task of an array, the number alone would mean the whole array (measured on 22.05).
    this = [
        "this_job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}  # in an array, only this task",
        "this_job=${this_job:-$SLURM_JOB_ID}",
    ]
    if job.requeue:
        return [
            f"# {warn} s before the time limit: requeue the job, to continue from the training's last checkpoint. The",
            "# ranks get SIGTERM, and SIGKILL after KillWait (scontrol show config).",
            *this,
            """trap 'echo "mgpu: time limit almost reached, requeueing job $this_job"
      scontrol requeue "$this_job" || true' USR1""",
        ]
    return [
        f"# {warn} s before the time limit: send SIGTERM to the ranks, so that they can save a checkpoint.",
        *this,
        """trap 'echo "mgpu: time limit almost reached, sending SIGTERM to the ranks"
      scancel --signal=TERM "$this_job" || true' USR1""",
    ]


def _rendezvous(job: Job) -> list[str]:
    lines = [
        "# Rendezvous on the first node, at a port derived from the job number, or the next free one.",
        # sed reads all input; `head` would break scontrol's pipe and end this script.
        """MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)""",
        f"MASTER_PORT=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))",
        """while timeout 2 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$MASTER_ADDR" "$MASTER_PORT" 2>/dev/null; do""",
        "    MASTER_PORT=$((MASTER_PORT + 1))",
        "done",
    ]
    return [*lines, "export MASTER_ADDR MASTER_PORT"] if job.shape == "plain" else lines


def _step(job: Job) -> list[str]:
    """Return the step that trains, in the background, so that the waiting shell can handle signals."""
    srun = ["srun", "--kill-on-bad-exit=1", "--wait=0", "--label"]
    if job.cpus_per_node:
        # Slurm 22.05 to 23.02 does not pass it on by itself. In a salloc allocation it may be unset.
        srun.append('${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}')
    on_node, words = _STARTED[job.shape].step(job)
    words.append(shlex.join(job.command))
    inner = f"bash -c {shlex.quote(on_node)} bash"
    comments = [
        "# A failed task stops all others; a finished one does not (--wait=0), because others may still be saving.",
        "# --label: each line starts with its task number.",
    ]
    if job.shape != "plain":
        comments.append("# Each rank's own output, in the folder of the job's output:")
        comments.append("# NAME-JOB/NODE/*/attempt_0/RANK_OF_NODE/")
    comments.append("# Each node evaluates the part in single quotes.")
    lines = [" ".join(srun), *_container(job), inner, *words]
    return [*comments, " \\\n    ".join(lines) + " &", *_wait()]


def _plain(job: Job) -> tuple[str, list[str]]:
    """Return what a task runs: the part that its node evaluates, and the arguments after it."""
    return (
        "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID\n"
        f"        export WORLD_SIZE=$SLURM_NTASKS LOCAL_WORLD_SIZE={job.ranks_per_node}\n"
        '        exec python3 "$@"',
        [],
    )


def _with_logs(job: Job, launcher: str) -> str:
    """Return a launcher's command with the folder of its ranks' logs and the name at which others reach this node.

    accelerate has no flag for the name, but passes the variable on.
    """
    address = 'export PET_LOCAL_ADDR="$SLURMD_NODENAME"\n        ' if job.nodes > 1 else ""
    logs = f'logs={shlex.quote(job.logs)}/"$SLURM_JOB_NAME-$SLURM_JOB_ID/$SLURMD_NODENAME"'
    return f"{logs}\n        {address}exec {launcher}"


def _torchrun(job: Job) -> tuple[str, list[str]]:
    return _with_logs(job, 'torchrun --log-dir "$logs" "$@"'), [
        '--nnodes "$SLURM_JOB_NUM_NODES"',
        f"--nproc-per-node {job.ranks_per_node}",
        "--rdzv-backend c10d",
        '--rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT"',
        '--rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"',
        "--tee 3",
    ]


def _accelerate(job: Job) -> tuple[str, list[str]]:
    several = job.nodes > 1
    return _with_logs(job, 'accelerate launch --machine_rank "$SLURM_NODEID" --log_dir "$logs" "$@"'), [
        f"--config_file {shlex.quote(job.config)}",
        *(["--multi_gpu"] if job.gpus_per_node == 0 and job.world_size > 1 else []),
        '--num_machines "$SLURM_JOB_NUM_NODES"',
        f'--num_processes "$((SLURM_JOB_NUM_NODES * {job.ranks_per_node}))"',
        *(['--main_process_ip "$MASTER_ADDR"'] if several else []),
        '--main_process_port "$MASTER_PORT"',
        *(["--rdzv_backend c10d"] if several else []),
        "--tee 3",
    ]


class _Started(NamedTuple):
    """The way the ranks of one shape are started."""

    how: str
    step: Callable[[Job], tuple[str, list[str]]]


_STARTED: Mapping[Shape, _Started] = {
    "accelerate": _Started("one task per node: accelerate starts the ranks of its node.", _accelerate),
    "torchrun": _Started("one task per node: torchrun starts the ranks of its node.", _torchrun),
    "plain": _Started("one task per rank: Slurm starts them all.", _plain),
}


def _container(job: Job) -> list[str]:
    if job.container is None:
        return []
    image = shlex.quote(job.container.image)
    mounts = "".join(f",{shlex.quote(mount)}" for mount in job.container.mounts)
    if job.container.kind == "pyxis":
        return [f'--container-image={image} --container-mounts="$PWD:$PWD"{mounts} --container-workdir="$PWD"']
    gpus = "--nv " if job.gpus_per_node else ""
    return [f'apptainer exec {gpus}--bind "$PWD:$PWD"{mounts} --pwd "$PWD" {image}']


def _wait() -> list[str]:
    return [
        "step=$!",
        """trap 'kill -TERM "$step" 2>/dev/null || true' TERM INT""",
        "# A trapped signal interrupts `wait`, not the step. The last wait returns the step's exit status to the job.",
        'while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done',
        'wait "$step"',
    ]
