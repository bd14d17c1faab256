"""What does Kubeflow Trainer run in its pods? A TrainJob on the runtime `torch-distributed`.

Its controller tells each pod PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT, and
refuses a TrainJob that sets them (pkg/runtime/framework/plugins/torch/torch.go). torchrun reads them by itself;
accelerate is given them by its flags. The container and the replicated job of the runtime are both called `node`.
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
from mgpu.probes.cluster import seconds
from mgpu.secrets_masking import masked

_MEETING: Final = parts.Meeting(
    '"$PET_NNODES"', '"$PET_NPROC_PER_NODE"', '"$PET_NODE_RANK"', '"$PET_MASTER_ADDR"', '"$PET_MASTER_PORT"'
)
_END: Final = "END_OF_CONFIG"
_LONGEST: Final = 40  # pods are called NAME-xxxxx-node-0-0, and one label of a host name has at most 63 characters

# What the models do not know they drop without a word: a text that comes back otherwise has a field of another version.
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
    why = f"it does not know {', '.join(gone)}" if gone else ""
except ValueError as error:
    why = str(error)
print(json.dumps([version("kubeflow-trainer-api"), why]))
""",
)


def render(plan: Plan) -> str:
    """The TrainJob. Raises MgpuError (2) where a value cannot stand in one."""
    parts.refuse(plan)
    job, image = plan.job, parts.image(plan)
    gpus = 0 if plan.cpu else job.gpus_per_node
    cpus = ["      requests:", f'        cpu: "{job.cpus_per_node}"'] if job.cpus_per_node else []
    limits = ["      limits:", f'        nvidia.com/gpu: "{gpus}"'] if gpus else []
    variables = parts.environment(plan)
    length = seconds(job.time) if job.time else None
    return "\n".join(
        [
            f"# {parts.size(plan)}, by Kubeflow Trainer 2.3:  kubectl create -f {THIS_FILE}",
            parts.UNTRIED,
            "apiVersion: trainer.kubeflow.org/v1alpha1",
            "kind: TrainJob",
            "metadata:",
            f"  generateName: {_name(job.name)}-  # each `kubectl create` makes a job of its own",
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
            *(
                [
                    "    env:",
                    *(
                        f"      - name: {name}\n        value: {json.dumps(_kept(text), ensure_ascii=False)}"
                        for name, text in variables.items()
                    ),
                ]
                if variables
                else []
            ),
            "    command:",
            "      - /bin/bash",
            "      - -c",
            "      - |",
            *parts.literal(_run(plan), 8),
            *_shared_memory(),
            "",
        ]
    )


def _name(name: str) -> str:
    """A name that Kubernetes takes for objects and hosts: a-z, 0-9 and -, with a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).lstrip("-0123456789")[:_LONGEST].rstrip("-")
    return plain or "train"


def _kept(text: str) -> str:
    """A text that Kubernetes hands on as it is: in commands and variables it reads $$ as $, and $(NAME) as a variable.
    source=https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/"""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _run(plan: Plan) -> list[str]:
    if plan.job.shape != "accelerate":
        return ["set -euo pipefail", f"exec torchrun {_kept(shlex.join(plan.job.command))}  # finds all of it in PET_*"]
    path = shlex.quote(f"/tmp/{parts.config_name(plan)}")
    return [
        "set -euo pipefail",
        f"cat > {path} <<'{_END}'",
        *_kept(_settings(plan.config_text)).splitlines(),
        _END,
        f"exec {_kept(parts.launcher(plan, _MEETING, path))}",
    ]


def _settings(config: str) -> str:
    """The config without its comments, but for the one that says who starts it."""
    kept = [line for line in config.splitlines() if line.strip() and not line.startswith("#") and line != _END]
    text = "\n".join(kept)
    if masked(text) != text:
        raise MgpuError("config: it holds a secret, and this file is one that people share: it has the config", USAGE)
    return "\n".join([for_engine("kubeflow"), *kept])


def _shared_memory() -> list[str]:
    """/dev/shm of a pod is 64 MiB: too small for NCCL and for loader workers. A volume in memory has no such limit."""
    return [
        "  # /dev/shm: a pod has 64 MiB; NCCL and loader workers need more. It counts as memory of the pod.",
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
