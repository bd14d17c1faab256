"""What do failures mean in a process that Ray started?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import either, said, shown, within

_RESOURCES = "https://docs.ray.io/en/latest/ray-core/scheduling/resources.html"
_WANTED = re.compile(r"'GPU': (?P<gpus>\d+(?:\.\d+)?)")
_USED = re.compile(r"(?P<used>[\d.]+)/(?P<all>[\d.]+) GPU\b")


def _gpus(log: Log) -> tuple[float, float, float] | None:
    """Return the GPUs that a request wants, that are used and that Ray has; None if the log does not show all."""
    request = next((one.text for one in log.seen if one.signature == "log_ray_request_too_large"), "")
    usage = next((one.text for one in log.shows if one.name == "ray_gpus_used"), "")
    wanted, used = _WANTED.search(request), _USED.search(usage)
    return (float(wanted["gpus"]), float(used["used"]), float(used["all"])) if wanted and used else None


def _fewer(log: Log, raised: UncaughtException | None) -> bool:
    gpus = _gpus(log)
    return gpus is not None and gpus[0] > gpus[2]


def _in_use(log: Log, raised: UncaughtException | None) -> bool:
    gpus = _gpus(log)
    return gpus is not None and gpus[2] - gpus[1] < gpus[0] <= gpus[2]


_REQUEST = (
    "(autoscaler +3s) Error: No available node types can fulfill resource request {{'CPU': 4.0, 'GPU': 4.0}}. Add "
    "suitable node types to this cluster to resolve this issue.\nUsage:\n 0.0/16.0 CPU\n {used}/{all} GPU\n"
)
# fmt: off
FEWER_GPUS = Case(
    _fewer,
    "Ray has fewer GPUs than the job requests, even with all of them free",
    "The request is {request}, and the usage table in this log shows what Ray has in total. Nothing else has to stop. "
    "Either the job's settings are for a larger machine, or Ray was started where it sees only some GPUs "
    "(CUDA_VISIBLE_DEVICES, --num-gpus, a container, a node that did not join).",
    (Fix("Compare with the GPUs of the nodes.", ("ray status", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES")),
     Fix("If there are no more, request as many as Ray has.", ("trainer.n_gpus_per_node=1 trainer.nnodes=1  # verl",)),
     Fix("If there are, start Ray again where it sees them.",
         ("ray stop", "unset CUDA_VISIBLE_DEVICES; ray start --head"))),
    _REQUEST.format(used="0.0", all="1.0"), _RESOURCES)
GPUS_IN_USE = Case(
    _in_use,
    "Ray has enough GPUs, but other tasks hold them",
    "The request is {request}, and the usage table in this log shows fewer free GPUs. They belong to another job on "
    "this cluster, to the actors of an earlier run, or to another part of this one (rollout workers, a reference "
    "model).",
    (Fix("See who holds them, and stop what is left of an earlier run.",
         ("ray status", "ray list actors --filter state=ALIVE", "ray stop --force")),
     Fix("If they are this job's own, let its parts share GPUs, or request fewer.")),
    _REQUEST.format(used="6.0", all="8.0"), _RESOURCES)
POD_MEMORY = Case(
    said(r"may have exceeded K8s pod memory limits"),
    "a Ray worker process died, probably because it exceeded the memory limit of its pod",
    "Ray prints this in Kubernetes if a worker disappears without an exit code. The limit is of the host memory of the "
    "pod, not of a GPU, and all workers in the pod share it.",
    (Fix("Check whether the pod reports OOMKilled, and its limit.",
         ("kubectl describe pod POD | grep -A5 -E 'Last State|Limits'", "cat /sys/fs/cgroup/memory.events")),
     Fix("Raise the limit of the pod, or use less: fewer workers, no offload to the CPU, fewer loader workers.",
         ("resources.limits.memory: 512Gi",))),
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: The "
    "worker may have exceeded K8s pod memory limits.", "https://kubernetes.io/docs/tasks/configure-pod-container/"
    "assign-memory-resource/")
NODE_DIED = Case(
    said(r"The actor is dead because its node has died"),
    "a Ray worker ended because its node died or lost its connection",
    "Ray says so of the node, not of the process: the node was preempted or shut down, its network failed, or its "
    "raylet was killed (host memory).",
    (Fix("Check what happened to the node, and whether it is in the cluster again.",
         ("ray list nodes", "sudo dmesg -T | grep -i 'killed process' | tail")),
     Fix("Let the run go on after the loss of a node.",
         ("RunConfig(failure_config=FailureConfig(max_failures=3))",))),
    "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n"
    "The actor is dead because its node has died. Node Id: 677df2a9",
    "https://docs.ray.io/en/latest/ray-core/fault_tolerance/nodes.html")
GPU_NOT_REQUESTED = Case(
    either(within(r"^ray/"), shown("ray_run")),
    "the ranks see no GPU: their Ray task or actor probably did not request one (num_gpus)",
    "Ray hides all GPUs (an empty CUDA_VISIBLE_DEVICES) from tasks and actors that do not request any, and from the "
    "driver of vLLM if its placement group has no GPU on that node. If none of the nodes shows a GPU in `ray status`, "
    "Ray was started without them.",
    (Fix("Request GPUs where the task or actor is defined, and keep CUDA calls out of the driver.",
         ("worker = ray.remote(num_gpus=1)(function)", "Actor.options(num_gpus=1).remote()")),
     Fix("Compare with what Ray has.", ("ray status", "nvidia-smi -L", "ray start --head --num-gpus=8")),
     Fix("If the framework sets the visible GPUs itself, configure Ray to leave them.",
         ("export RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1",))),
    "(RolloutWorker pid=5901, ip=10.0.0.4) Loading checkpoint shards: 100%\n"
    "ray.exceptions.RayTaskError(RuntimeError): ray::RolloutWorker.__init__() (pid=5901, ip=10.0.0.4)\n"
    '  File "/x/site-packages/torch/cuda/__init__.py", line 319, in _lazy_init\n    torch._C._cuda_init()\n'
    "RuntimeError: No CUDA GPUs are available",
    "https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html")
# fmt: on
