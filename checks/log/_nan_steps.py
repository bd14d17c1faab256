"""Was a step of the training NaN before the model's probabilities were?"""

from __future__ import annotations

from dataclasses import replace

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import every, reported

# A gradient norm that is infinite does not count: with fp16, a gradient scaler skips such steps in a normal run.
_PAIRS = (("gradients_nan", "gradients_finite"), ("training_loss_nan", "training_loss_finite"))


def last_step_was_nan(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the gradient norm or the loss of the last logged step is NaN."""
    last = {one.name: one.last for one in log.shows}
    return any(last.get(lost, 0) > last.get(finite, 0) for lost, finite in _PAIRS)


# fmt: off
_STEP = "{'loss': -0.2, 'grad_norm': nan, 'learning_rate': 2e-07, 'epoch': 3.1}\n"
_PROBABILITIES = "probability tensor contains either `inf`, `nan` or element < 0"
SAMPLED_AFTER_NAN = Case(
    every(reported(r"probability tensor contains"), last_step_was_nan),
    "sampling failed after a training step with NaN: the last logged gradient norm or loss is NaN",
    "Probably that step wrote NaN into the weights (clipping by a norm of NaN makes all gradients NaN; only a gradient "
    "scaler skips such a step), so the next generation has probabilities that are NaN. The generation is then not the "
    "cause. Usual reasons: a KL or a ratio of probabilities that overflows, a division by a deviation of 0, a learning "
    "rate that is too high, fp16.",
    (Fix("Go on from the last checkpoint before that step, with a lower learning rate and smaller updates.",
         ("--resume_from_checkpoint CHECKPOINT", "GRPOConfig(learning_rate=5e-7, max_grad_norm=0.2)")),
     Fix("Leave out updates that are not finite.", ("if not torch.isfinite(grad_norm): optimizer.zero_grad()",)),
     Fix("Find the first operation with NaN.", ("torch.autograd.set_detect_anomaly(True)",))),
    f"{_STEP}/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:112: _assert_async_cuda_kernel: block: [0,0,0], "
    f"thread: [0,0,0] Assertion `{_PROBABILITIES}` failed.\n",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html")
# fmt: on
STOPPED_AFTER_NAN = replace(SAMPLED_AFTER_NAN, sample=f"{_STEP}RuntimeError: {_PROBABILITIES}\n")
