"""Write a script that starts torchrun on each of several machines, without a scheduler.

torchrun reads no config, so the script sets the variables that accelerate's launcher would set. The rendezvous is
static: each machine has the rank it is given.
"""

from __future__ import annotations

from dataclasses import replace

from mgpu.job_files import parts
from mgpu.job_files.engines import Plan
from mgpu.job_files.job import THIS_FILE

_MEETING = parts.Meeting("{nodes}", "{ranks}", '"$NODE_RANK"', '"$HEAD"', '"$PORT"')


def render(plan: Plan) -> str:
    """Return the script. Raises MgpuError (2) for a value that it cannot contain."""
    plan = replace(plan, job=replace(plan.job, shape="torchrun"))
    parts.refuse(plan)
    job = plan.job
    meeting = replace(_MEETING, nodes=str(job.nodes), ranks_per_node=str(job.ranks_per_node))
    head = ["#!/bin/bash", f"# {parts.size(plan)}, started by torchrun."]
    several = []
    if job.nodes > 1:
        head += [
            "# Run on every machine within 15 minutes of the first (torchrun's timeout), with the same HEAD:",
            f"#   HEAD=first-machine NODE_RANK=0 bash {THIS_FILE}    # NODE_RANK 0 (HEAD itself) to {job.nodes - 1}",
        ]
        several = [
            ': "${HEAD:?set it to the name or address of the machine with NODE_RANK=0}"',
            f': "${{NODE_RANK:?set it to the number of this machine, 0 to {job.nodes - 1}; HEAD is 0}}"',
            f"PORT=${{PORT:-{parts.PORT}}}  # the same on all machines, and free on HEAD",
        ]
    variables = parts.exports(parts.environment(plan))
    return "\n".join(
        [
            *head,
            parts.UNTRIED,
            "set -euo pipefail",
            *several,
            *(["", "# Load the software for the training.", "set +u", *job.setup, "set -u"] if job.setup else []),
            *(["", "# Variables that accelerate's launcher would set.", *variables] if variables else []),
            "",
            f"exec {parts.launcher(plan, meeting, '')}",
            "",
        ]
    )
