"""Cases of a full GPU in which the driver itself refused: torch's allocator would report sizes."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Applies, Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import every, last_did, message, never, shown, source_line, within
from ._gpu_memory import BY_DRIVER, ENGINE, trace

_PARALLEL = "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html"
_WINDOWS = "https://nvidia.custhelp.com/app/answers/detail/a_id/5490"
_REFUSED = message(BY_DRIVER)
_DISTRIBUTES = within(
    r"torch/nn/parallel/(?:comm|scatter_gather|data_parallel|_functions|replicate)\.py in (?:scatter\w*|replicate|"
    r"_?broadcast\w*)$"
)


def _stepped(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the log shows a step that was complete before the first exception."""
    return log.reached is not None and log.reached.at > 0


# A file of the script's own, or of a package, computes. Moving a tensor or the model there is no computation.
_COMPUTES: Applies = every(
    within(r" in (?:forward|training_step)$"),
    never(within(rf"{ENGINE}|torch/cuda/|torch/nn/parallel/|torch/nn/modules/module\.py in (?:to|cuda|cpu|_apply)$")),
    never(source_line(r"\.(?:to|cuda|cpu|pin_memory)\(")),
)
# fmt: off
DRIVER = (
    Case(every(_REFUSED, _DISTRIBUTES, never(_stepped), never(last_did("train")), never(shown("loss_logged"))),
         "a GPU was full before DataParallel computed anything on it: probably another process holds its memory",
         "It failed while the first batch was distributed to all visible GPUs. The driver itself refused: torch would "
         "report how much it tried to allocate. Probably one of the GPUs has no room even for what CUDA needs to open "
         "it; a smaller batch does not help then.",
         (Fix("See which processes are on the GPUs, and run on free ones only: DataParallel takes all it can see.",
              ("nvidia-smi", "mgpu doctor --only gpu_busy,gpu_memory_without_process",
               "CUDA_VISIBLE_DEVICES=0 python train.py  # a GPU that nvidia-smi shows as free")),
          Fix("Or start one process per GPU, on the free ones.", ("mgpu launch train.py",))),
         "  0%|          | 0/160 [00:00<?, ?it/s]\n" + trace(
             "train.py in main", "torch/nn/parallel/data_parallel.py in scatter",
             "torch/nn/parallel/comm.py in scatter", message="RuntimeError: CUDA error: out of memory"),
         _PARALLEL),
    Case(every(_REFUSED, _COMPUTES, shown("wsl")),
         "a GPU's memory is full in the forward pass on Windows or in WSL: the activations of a batch do not "
         "fit beside the model",
         "The model was on the GPU already and computed. On Windows and in WSL the driver can use host memory when the "
         "GPU's is full: steps become very slow, until the driver itself refuses, without torch's sizes. Errors that "
         "follow while the trainer cleans up have the same reason.",
         (Fix("Use a smaller batch or smaller inputs, and add up gradients of several steps.",
              ("DataLoader(dataset, batch_size=4, ...)",)),
          Fix("Compute in bf16, or recompute activations in the backward pass.",
              ("with torch.autocast('cuda', dtype=torch.bfloat16):",
               "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)")),
          Fix("If a small batch fails too: see what else uses the GPU. Programs of Windows count as well.",
              ("nvidia-smi",))),
         "  host      : DESKTOP-356K2N7.localdomain\n" + trace(
             "train.py in main", "net.py in forward", "net.py in activation",
             message="RuntimeError: CUDA error: out of memory", code="return x * torch.sigmoid(x)"),
         _WINDOWS),
)
# fmt: on
