"""Write a Kubeflow Trainer TrainJob for the runtime `torch-distributed`.

Its controller sets PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT in each pod, and
rejects a TrainJob that sets them (pkg/runtime/framework/plugins/torch/torch.go). torchrun reads them by itself;
accelerate gets them as flags. The container and the replicated job of the runtime are both called `node`.
source=https://github.com/kubeflow/trainer/blob/master/pkg/apis/trainer/v1alpha1/trainjob_types.go
The fields were validated against the models of kubeflow-trainer-api 2.3.0, for Trainer 2.3.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

from mgpu.config.reading import for_engine
from mgpu.errors import USAGE, MgpuError
from mgpu.job_files import parts
from mgpu.job_files.engines import Package, Plan
from mgpu.job_files.job import THIS_FILE
from mgpu.probes.cluster import parse_time
from mgpu.secrets_masking import masked

_MEETING: Final = parts.Meeting(
    '"$PET_NNODES"', '"$PET_NPROC_PER_NODE"', '"$PET_NODE_RANK"', '"$PET_MASTER_ADDR"', '"$PET_MASTER_PORT"'
)
_END: Final = "END_OF_CONFIG"
_LONGEST: Final = 40  # pods are called NAME-xxxxx-node-0-0, and one label of a host name has at most 63 characters

# The models silently drop unknown fields: if the text comes back different, it has fields of another version.
PACKAGE: Final = Package(
    "kubeflow-trainer-api",
    "kubeflow_trainer_api",
    """
import json, sys
from importlib.metadata import version
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

def without_none(value):
    if isinstance(value, dict):
        return {name: without_none(part) for name, part in value.items() if part is not None}
    return [without_none(part) for part in value] if isinstance(value, list) else value

def lost(before, after, where):
    if isinstance(before, dict) and isinstance(after, dict):
        return [name for key in before for name in lost(before[key], after.get(key), f"{where}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [name for one, other in zip(before, after) for name in lost(one, other, where)]
    return [] if before == after else [where[1:]]

task = json.load(sys.stdin)
try:
    gone = lost(task, without_none(TrainerV1alpha1TrainJob.from_dict(task).to_dict()), "")
    why = f"unknown fields: {', '.join(gone)}" if gone else ""
except ValueError as error:
    why = str(error)
print(json.dumps([version("kubeflow-trainer-api"), why]))
""",
)


def render(plan: Plan) -> str:
    """Return the TrainJob. Raises MgpuError (2) for a value that it cannot contain."""
    parts.refuse(plan)
    job, image = plan.job, parts.image(plan)
    gpus = 0 if plan.cpu else job.gpus_per_node
    cpus = ["      requests:", f'        cpu: "{job.cpus_per_node}"'] if job.cpus_per_node else []
    limits = ["      limits:", f'        nvidia.com/gpu: "{gpus}"'] if gpus else []
    length = parse_time(job.time) if job.time else None
    return "\n".join(
        [
            f"# {parts.size(plan)}, with Kubeflow Trainer 2.3:  kubectl create -f {THIS_FILE}",
            parts.UNTRIED,
            "apiVersion: trainer.kubeflow.org/v1alpha1",
            "kind: TrainJob",
            "metadata:",
            f"  generateName: {_name(job.name)}-  # each `kubectl create` makes a new job",
            "spec:",
            *([f"  activeDeadlineSeconds: {int(length)}  # {job.time}"] if length else []),
            "  runtimeRef:",
            "    name: torch-distributed  # kubectl get clustertrainingruntimes",
            "  trainer:",
            f"    image: {json.dumps(image or parts.NO_IMAGE)}"
            + ("" if image else "  # CHANGE THIS: an image with the script, torch and accelerate"),
            f"    numNodes: {job.nodes}",
            f"    numProcPerNode: {job.ranks_per_node}",
            *(["    resourcesPerNode:", *cpus, *limits] if cpus or limits else []),
            *_variables(plan),
            "    command:",
            "      - /bin/bash",
            "      - -c",
            "      - |",
            *parts.literal(_run(plan), 8),
            *_shared_memory(),
            "",
        ]
    )


def _variables(plan: Plan) -> list[str]:
    """Return the lines of the trainer's environment."""
    lines = [
        f"      - name: {name}\n        value: {json.dumps(_escape(text), ensure_ascii=False)}"
        for name, text in parts.environment(plan).items()
    ]
    return ["    env:", *lines] if lines else []


def _name(name: str) -> str:
    """Return a valid name for Kubernetes objects and hosts: a-z, 0-9 and -, with a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).lstrip("-0123456789")[:_LONGEST].rstrip("-")
    return plain or "train"


def _escape(text: str) -> str:
    """Escape a text for Kubernetes, which reads $$ as $ and $(NAME) as a variable in commands and variables.

    source=https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def _run(plan: Plan) -> list[str]:
    if plan.job.shape != "accelerate":
        return [
            "set -euo pipefail",
            f"exec torchrun {_escape(shlex.join(plan.job.command))}  # reads its settings from PET_*",
        ]
    path = shlex.quote(f"/tmp/{parts.config_name(plan)}")
    return [
        "set -euo pipefail",
        f"cat > {path} <<'{_END}'",
        *_escape(_settings(plan.config_text)).splitlines(),
        _END,
        f"exec {_escape(parts.launcher(plan, _MEETING, path))}",
    ]


def _settings(config: str) -> str:
    """Return the config without comments, except the one that names its engine."""
    kept = [line for line in config.splitlines() if line.strip() and not line.startswith("#") and line != _END]
    text = "\n".join(kept)
    if masked(text) != text:
        raise MgpuError("config: it contains a secret, but this file contains the config and may be shared", USAGE)
    return "\n".join([for_engine("kubeflow"), *kept])


def _shared_memory() -> list[str]:
    """Return a memory volume for /dev/shm, which has 64 MiB in a pod, too small for NCCL and loader workers."""
    return [
        "  # /dev/shm has 64 MiB in a pod; NCCL and loader workers need more. It counts toward the pod's memory.",
        "  # Before Trainer 2.2:  podTemplateOverrides: [{targetJobs: [{name: node}], spec: {volumes, containers}}]",
        "  runtimePatches:",
        "    - manager: mgpu/configure",
        "      trainingRuntimeSpec:",
        "        template:",
        "          spec:",
        "            replicatedJobs:",
        "              - name: node",
        "                template:",
        "                  spec:",
        "                    template:",
        "                      spec:",
        "                        volumes:",
        "                          - name: shm",
        "                            emptyDir: {medium: Memory}",
        "                        containers:",
        "                          - name: node",
        "                            volumeMounts:",
        "                              - {name: shm, mountPath: /dev/shm}",
    ]
