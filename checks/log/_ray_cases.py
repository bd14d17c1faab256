"""What do failures mean in a process that Ray started?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, shown, within

# fmt: off
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
