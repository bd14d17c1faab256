"""Write a SkyPilot task: the GPUs of a node, and the commands for each node.

`run` is executed on every node, with SKYPILOT_NODE_RANK, SKYPILOT_NODE_IPS (one per line, the head first),
SKYPILOT_NUM_NODES and SKYPILOT_NUM_GPUS_PER_NODE. source=https://docs.skypilot.co/en/stable/running-jobs/distributed-jobs.html
The fields were validated against `sky.utils.schemas` of skypilot 0.14.1, which no test installs (it has 90
dependencies).
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePosixPath
from typing import Final

from mgpu.errors import USAGE, MgpuError
from mgpu.job_files import parts
from mgpu.job_files.engines import Package, Plan
from mgpu.job_files.job import THIS_FILE

# Names of GPUs in SkyPilot's catalogs that differ from mgpu's (sky/catalog of 0.14.1).
_CALLED: Final = {"A100-40GB": "A100", "V100-16GB": "V100", "RTX6000Ada": "RTX6000-Ada"}
_HEAD: Final = "head=${SKYPILOT_NODE_IPS%%$'\\n'*}  # the first address of the list"
_SOFTWARE: Final = ("torch", "accelerate")

# It rejects unknown fields.
PACKAGE: Final = Package(
    "skypilot",
    "sky",
    """
import json, sys
from importlib.metadata import version
import jsonschema
from sky.utils import schemas

task = json.load(sys.stdin)
try:
    jsonschema.Draft202012Validator(schemas.get_task_schema()).validate(task)
    jsonschema.Draft202012Validator(schemas.get_resources_schema()).validate(task.get("resources", {}))
    why = ""
except jsonschema.ValidationError as error:
    why = f"{error.json_path}: {error.message}"
print(json.dumps([version("skypilot"), why]))
""",
)


def render(plan: Plan) -> str:
    """Return the task. Raises MgpuError (2) for a value that it cannot contain, or if the GPU model is unknown."""
    parts.refuse(plan)
    job = plan.job
    gpus = 0 if plan.cpu else job.gpus_per_node
    if gpus and not plan.gpu_model:
        raise MgpuError("SkyPilot needs the GPU model: add for example --gpu-model A100-80GB", USAGE)
    inside, mounted = _config(plan)
    resources = []
    if gpus:
        resources.append(f"  accelerators: {_CALLED.get(plan.gpu_model, plan.gpu_model)}:{gpus}")
    elif job.cpus_per_node:
        resources.append(f"  cpus: {job.cpus_per_node}+")
    if image := parts.image(plan):
        resources.append(f"  image_id: {json.dumps(f'docker:{image}')}")
    variables, name = parts.environment(plan), _name(job.name)
    return "\n".join(
        [
            f"# {parts.size(plan)}, with SkyPilot:  sky launch -c {name} {THIS_FILE}",
            parts.UNTRIED,
            f"name: {json.dumps(name)}",
            f"num_nodes: {job.nodes}  # machines, not GPUs",
            *(["resources:", *resources] if resources else []),
            "workdir: .  # this folder is copied to every node; exclude large data with .skyignore",
            *(["file_mounts:", f"  {json.dumps(mounted)}: {json.dumps(plan.config_path)}"] if mounted else []),
            *(
                ["envs:", *(f"  {name}: {json.dumps(text, ensure_ascii=False)}" for name, text in variables.items())]
                if variables
                else []
            ),
            "setup: |",
            *parts.literal(_setup(plan), 2),
            "run: |",
            *parts.literal(_run(plan, inside), 2),
            "",
        ]
    )


def _name(name: str) -> str:
    """Return a valid name for SkyPilot tasks and clusters: a letter first, no two of . _ - in a row, none at the end.

    source=https://github.com/skypilot-org/skypilot/blob/master/sky/task.py (_VALID_NAME_REGEX)
    """
    plain = re.sub(r"[^A-Za-z0-9]*([._-])[^A-Za-z0-9]*", r"\1", name).strip("._-")
    return plain if plain[:1].isalpha() else f"train-{plain}".rstrip("-")


def _config(plan: Plan) -> tuple[str, str]:
    """Return the config's path in the nodes' shell, and its mount target if it is outside the copied folder."""
    path = PurePosixPath(plan.config_path)
    if not path.is_absolute() and ".." not in path.parts:
        return shlex.quote(str(path)), ""
    return f'"$HOME"/{shlex.quote(path.name)}', f"~/{path.name}"


def _setup(plan: Plan) -> list[str]:
    wanted = " ".join([*_SOFTWARE, *(["deepspeed"] if plan.values.get("distributed_type") == "DEEPSPEED" else [])])
    return [
        "set -e",
        "# Install the software for the training; list your packages in requirements.txt.",
        "if [ -f requirements.txt ]; then pip install -r requirements.txt",
        f"else pip install {wanted}; fi",
    ]


def _run(plan: Plan, config: str) -> list[str]:
    job = plan.job
    ranks = str(job.ranks_per_node) if plan.cpu or not job.gpus_per_node else '"$SKYPILOT_NUM_GPUS_PER_NODE"'
    meeting = parts.Meeting('"$SKYPILOT_NUM_NODES"', ranks, '"$SKYPILOT_NODE_RANK"', '"$head"', str(parts.PORT))
    return [
        "set -euo pipefail",
        *([_HEAD] if job.nodes > 1 else []),
        'ulimit -n "$(ulimit -Hn)" || true  # loader workers open many files',
        parts.launcher(plan, meeting, config),
    ]
