"""What starts a run with torchrun alone, on machines that no engine hands out? A script that each of them runs.

The ranks find the settings of the config in the variables that accelerate's launcher would have set: torchrun reads no
config. Static rendezvous: the rank of each machine is the one it is given.
"""

from __future__ import annotations

from dataclasses import replace

from mgpu.job_files import parts
from mgpu.job_files.engines import Plan
from mgpu.job_files.job import THIS_FILE

_MEETING = parts.Meeting("{nodes}", "{ranks}", '"$NODE_RANK"', '"$HEAD"', '"$PORT"')


def render(plan: Plan) -> str:
    """The script. Raises MgpuError (2) where a value cannot stand in one."""
    plan = replace(plan, job=replace(plan.job, shape="torchrun"))
    parts.refuse(plan)
    job = plan.job
    meeting = replace(_MEETING, nodes=str(job.nodes), ranks_per_node=str(job.ranks_per_node))
    head = ["#!/bin/bash", f"# {parts.size(plan)}, started by torchrun."]
    several = []
    if job.nodes > 1:
        head += [
            "# On every machine, within 15 minutes of the first (torchrun waits so long), with the same HEAD:",
            f"#   HEAD=first-machine NODE_RANK=0 bash {THIS_FILE}    # 0 is HEAD itself, the last {job.nodes - 1}",
        ]
        several = [
            ': "${HEAD:?the name or address of the machine with NODE_RANK=0}"',
            f': "${{NODE_RANK:?the number of this machine, 0 to {job.nodes - 1}; HEAD is 0}}"',
            f"PORT=${{PORT:-{parts.PORT}}}  # the same on all machines, and free on HEAD",
        ]
    variables = parts.exports(parts.environment(plan))
    return "\n".join(
        [
            *head,
            parts.UNTRIED,
            "set -euo pipefail",
            *several,
            *(["", "# The software of the training.", "set +u", *job.setup, "set -u"] if job.setup else []),
            *(["", "# What accelerate's launcher would tell the ranks.", *variables] if variables else []),
            "",
            f"exec {parts.launcher(plan, meeting, '')}",
            "",
        ]
    )
