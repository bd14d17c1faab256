"""Which lines of a job script examine and test its nodes before the training starts?

The same lines stand in the scripts that mgpu writes and in those it is handed: the shell that runs them is any POSIX
shell, with `set -e` or without.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from mgpu.slurm.job import Job

BEGIN: Final = "# >>> mgpu: every node is examined and tested before the training (MGPU_PREFLIGHT=0: not)"
END: Final = "# <<< mgpu"
_PRESENT = re.compile(r"^[^#\n]*\bsmoke-test\b[^#\n]*--slurm\b", re.MULTILINE)


def lines(*, mgpu: str, need: int | None, config: str | None, logs: str, container: bool = False) -> list[str]:
    """The block. `mgpu`: how the job calls it, as shell words. `need`: nodes that train, None: all of the job's.
    `config`: where there is one. `container`: the training runs in an image, which the pre-flight does not.

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
        "fi",
        END,
    ]


def of_job(job: Job) -> list[str]:
    """The block of a job that mgpu writes."""
    config = job.config if job.shape == "accelerate" else None
    return lines(mgpu=job.mgpu, need=job.nodes, config=config, logs=job.logs, container=job.container is not None)


def present(script: str) -> bool:
    """Whether a script examines its nodes already."""
    return bool(_PRESENT.search(script))
