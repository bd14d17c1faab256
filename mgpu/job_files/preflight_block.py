"""Which lines of a job script examine and test its nodes before the training starts?

The same lines stand in the scripts that mgpu writes and in those it is handed: the shell that runs them is any POSIX
shell, with `set -e` or without.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from mgpu.job_files.job import Job

BEGIN: Final = "# >>> mgpu: every node is examined and tested before the training (MGPU_PREFLIGHT=0: not)"
END: Final = "# <<< mgpu"
_PRESENT = re.compile(r"^[^#\n]*\bsmoke-test\b[^#\n]*--slurm\b", re.MULTILINE)


def lines(
    *,
    mgpu: str,
    need: int | None,
    config: str | None,
    logs: str,
    container: bool = False,
    spare: int = 0,
    tasks_per_node: int | None = None,
) -> list[str]:
    """The block. `mgpu`: how the job calls it, as shell words. `need`: nodes that train, None: all of the job's.
    `config`: where there is one. `container`: the training runs in an image, which the pre-flight does not. `spare`:
    nodes more than that, which do not train where nobody examines the nodes either: then the first train, where it is
    known how many tasks a node has, and else the job ends.

    Afterwards srun and the variables of Slurm name the nodes that are left, so that the lines below stay as they are.
    """
    folder = f'{shlex.quote(logs)}/"preflight-$SLURM_JOB_ID"'
    chosen = f" -c {shlex.quote(config)}" if config else ""
    needed = "" if need is None else f" --need {need}"
    return [
        BEGIN,
        'if [ "${MGPU_PREFLIGHT:-1}" != 0 ]; then',
        *(
            ["    echo 'mgpu: examined outside of the container: not the software in its image' >&2"]
            if container
            else []
        ),
        f"    {mgpu} smoke-test --slurm{needed}{chosen} --log-dir {folder} || exit $?",
        "    # Where nodes are left out: from here on srun and $SLURM_* know only of the others.",
        f"    . {folder}/nodes.sh || exit $?",
        *(_unexamined(need, folder, tasks_per_node) if spare and need is not None else []),
        "fi",
        END,
    ]


def _unexamined(need: int, folder: str, tasks_per_node: int | None) -> list[str]:
    """The nodes of a job with spare ones that are not examined: the world would be larger than was planned."""
    more = f'elif [ "${{SLURM_JOB_NUM_NODES:-0}}" -gt {need} ]; then'
    if tasks_per_node is None:
        words = f"mgpu: the nodes are not examined (MGPU_PREFLIGHT=0), and the spare ones would train: --nodes={need}"
        return [more, f"    echo {shlex.quote(words)} >&2", "    exit 1"]
    first = "the first node trains" if need == 1 else f"the first {need} nodes train"
    printed = "p;" * tasks_per_node  # a line for each task
    tasks = need * tasks_per_node
    return [
        more,
        f"    echo 'mgpu: not examined (MGPU_PREFLIGHT=0): {first}, the spare ones do not' >&2",
        f"    mkdir -p {folder} || exit $?",
        f"    SLURM_HOSTFILE=$(cd {folder} && pwd)/hostfile || exit $?  # srun takes its nodes from it",
        '    scontrol show hostnames "$SLURM_JOB_NODELIST" > "$SLURM_HOSTFILE.all" || exit $?',
        f"""    sed -n '1,{need}{{{printed}}}' "$SLURM_HOSTFILE.all" > "$SLURM_HOSTFILE" || exit $?""",
        f"""    SLURM_JOB_NODELIST=$(sed -n '1,{need}p' "$SLURM_HOSTFILE.all" | paste -s -d , -)""",
        f"    SLURM_NODELIST=$SLURM_JOB_NODELIST SLURM_NNODES={need} SLURM_JOB_NUM_NODES={need}",
        f"    SLURM_NTASKS={tasks} SLURM_NPROCS={tasks} SLURM_TASKS_PER_NODE='{_each(tasks_per_node, need)}'",
        "    export SLURM_HOSTFILE SLURM_JOB_NODELIST SLURM_NODELIST SLURM_NNODES SLURM_JOB_NUM_NODES SLURM_NTASKS",
        "    export SLURM_NPROCS SLURM_TASKS_PER_NODE",
    ]


def _each(tasks_per_node: int, nodes: int) -> str:
    return f"{tasks_per_node}(x{nodes})" if nodes > 1 else str(tasks_per_node)


def of_job(job: Job) -> list[str]:
    """The block of a job that mgpu writes."""
    config = job.config if job.shape == "accelerate" else None
    return lines(
        mgpu=job.mgpu,
        need=job.nodes,
        config=config,
        logs=job.logs,
        container=job.container is not None,
        spare=job.spare,
        tasks_per_node=job.tasks_per_node,
    )


def off(script: str) -> str | None:
    """A script whose block does not examine the nodes; None where it has no block of mgpu's."""
    found = re.search(rf"^[ \t]*{re.escape(BEGIN)}$", script, re.MULTILINE)
    if found is None:
        return None
    return f"{script[: found.start()]}MGPU_PREFLIGHT=0  # --no-preflight\n{script[found.start() :]}"


def present(script: str) -> bool:
    """Whether a script examines its nodes already."""
    return bool(_PRESENT.search(script))
