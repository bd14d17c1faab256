"""The lines of a job script that check and test its nodes before the training starts.

The same lines go into scripts that mgpu writes and into users' scripts, so they work in any POSIX shell, with or
without `set -e`.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from mgpu.job_files.job import Job

BEGIN: Final = "# >>> mgpu: check and test every node before the training (skip with MGPU_PREFLIGHT=0)"
END: Final = "# <<< mgpu"
_BEGIN = re.compile(r"^[ \t]*# >>> mgpu: .*\(.*MGPU_PREFLIGHT=0.*\)$", re.MULTILINE)  # of any version of mgpu
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
    """Return the block.

    `mgpu`: its command in the job, in shell syntax. `need`: number of nodes that train; None: all of the job's.
    `config`: the config, if there is one. `container`: the training runs in an image, the pre-flight does not. `spare`:
    number of extra nodes. They must not train if the pre-flight is skipped: then the first `need` nodes train if
    `tasks_per_node` is known, else the job ends.

    After the block, srun and Slurm's variables name only the chosen nodes, so the rest of the script stays unchanged.
    """
    folder = f'{shlex.quote(logs)}/"preflight-$SLURM_JOB_ID"'
    chosen = f" -c {shlex.quote(config)}" if config else ""
    needed = "" if need is None else f" --need {need}"
    return [
        BEGIN,
        'if [ "${MGPU_PREFLIGHT:-1}" != 0 ]; then',
        *(
            ["    echo 'mgpu: checking outside the container, so the software in its image is not checked' >&2"]
            if container
            else []
        ),
        f"    {mgpu} smoke-test --slurm{needed}{chosen} --log-dir {folder} || exit $?",
        "    # If nodes were excluded, srun and $SLURM_* name only the remaining ones from here on.",
        f"    . {folder}/nodes.sh || exit $?",
        *(_lines_without_preflight(need, folder, tasks_per_node) if spare and need is not None else []),
        "fi",
        END,
    ]


def _lines_without_preflight(need: int, folder: str, tasks_per_node: int | None) -> list[str]:
    """Return the lines for a job with spare nodes that skips the pre-flight: without them all nodes would train."""
    more = f'elif [ "${{SLURM_JOB_NUM_NODES:-0}}" -gt {need} ]; then'
    if tasks_per_node is None:
        text = f"mgpu: pre-flight skipped (MGPU_PREFLIGHT=0), so the spare nodes would train: use --nodes={need}"
        return [more, f"    echo {shlex.quote(text)} >&2", "    exit 1"]
    first = "the first node trains" if need == 1 else f"the first {need} nodes train"
    printed = "p;" * tasks_per_node  # one line per task
    tasks = need * tasks_per_node
    return [
        more,
        f"    echo 'mgpu: pre-flight skipped (MGPU_PREFLIGHT=0): {first}, the spare ones do not' >&2",
        f"    mkdir -p {folder} || exit $?",
        f"    SLURM_HOSTFILE=$(cd {folder} && pwd)/hostfile || exit $?  # srun reads its nodes from it",
        '    scontrol show hostnames "$SLURM_JOB_NODELIST" > "$SLURM_HOSTFILE.all" || exit $?',
        f"""    sed -n '1,{need}{{{printed}}}' "$SLURM_HOSTFILE.all" > "$SLURM_HOSTFILE" || exit $?""",
        f"""    SLURM_JOB_NODELIST=$(sed -n '1,{need}p' "$SLURM_HOSTFILE.all" | paste -s -d , -)""",
        f"    SLURM_NODELIST=$SLURM_JOB_NODELIST SLURM_NNODES={need} SLURM_JOB_NUM_NODES={need}",
        f"    SLURM_NTASKS={tasks} SLURM_NPROCS={tasks} "
        f"SLURM_TASKS_PER_NODE='{_format_tasks_per_node(tasks_per_node, need)}'",
        "    export SLURM_HOSTFILE SLURM_JOB_NODELIST SLURM_NODELIST SLURM_NNODES SLURM_JOB_NUM_NODES SLURM_NTASKS",
        "    export SLURM_NPROCS SLURM_TASKS_PER_NODE",
    ]


def _format_tasks_per_node(tasks_per_node: int, nodes: int) -> str:
    return f"{tasks_per_node}(x{nodes})" if nodes > 1 else str(tasks_per_node)


def of_job(job: Job) -> list[str]:
    """Return the block of a job that mgpu writes."""
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
    """Return a script whose block skips the pre-flight; None if it has no block."""
    found = _BEGIN.search(script)
    if found is None:
        return None
    return f"{script[: found.start()]}MGPU_PREFLIGHT=0  # --no-preflight\n{script[found.start() :]}"


def present(script: str) -> bool:
    """Whether a script already runs the pre-flight."""
    return bool(_PRESENT.search(script))
