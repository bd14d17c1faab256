"""An optimizer's step with a state that belongs to other parameters, in the words of each implementation.

Those of torch were measured with torch 2.13 on the CPU: a state of another shape, then step().
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

ADAM = ("torch/optim/adam.py", "_single_tensor_adam", "exp_avg.lerp_(grad, 1 - device_beta1)")
FOREACH = ("torch/optim/sgd.py", "_multi_tensor_sgd", "torch._foreach_add_(bufs, device_grads, alpha=1 - dampening)")
APPLIER = (
    "apex/multi_tensor_apply/multi_tensor_apply.py",
    "__call__",
    "return op(self.chunk_size, noop, lists, *args)",
)
APEX = (
    "apex/optimizers/fused_adam.py",
    "step",
    "multi_tensor_applier(self.multi_tensor_adam, [g_32, p_32, m_32, v_32])",
)
DEEPSPEED = ("deepspeed/ops/adam/fused_adam.py", "step", "multi_tensor_applier(self.multi_tensor_adam, buffers)")
CPU_ADAM = ("deepspeed/ops/adam/cpu_adam.py", "step", "self.ds_opt_adam.adam_update(self.opt_id)")
SIZES = "RuntimeError: The size of tensor a (24) must match the size of tensor b (6) at non-singleton dimension 1\n"
BROADCAST = "RuntimeError: output with shape [4, 6] doesn't match the broadcast shape [2, 4, 6]\n"
STATE = "the optimizer's state does not have the"


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ((ADAM,), SIZES),
        ((FOREACH,), SIZES),
        ((CPU_ADAM,), SIZES),
        ((ADAM,), BROADCAST),
        ((APEX, APPLIER), "RuntimeError: Size mismatch\n"),
        ((DEEPSPEED, APPLIER), "RuntimeError: Size mismatch\n"),
    ],
)
def test_the_state_belongs_to_other_parameters(
    calls: tuple[tuple[str, str, str], ...], error: str, tmp_path: Path
) -> None:
    _, said, rest = explained(tmp_path, f"{frames((SCRIPT, 'main', 'optimizer.step()'), *calls)}{error}")
    assert said.startswith(STATE), said
    assert "another number of ranks" in rest
    assert "load_optimizer_states=False" in rest


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        # The same operation scales gradients; a model's own step; a tensor of the script's own optimizer.
        ((("apex/amp/scaler.py", "unscale", "multi_tensor_applier(amp_C.multi_tensor_scale, x)"), APPLIER),
         "RuntimeError: Size mismatch\n"),
        ((("/home/ada/model.py", "step", "return a.mul_(b)"),), SIZES),
        ((("/home/ada/lion.py", "step", "update = a + b"),), BROADCAST),
        ((DEEPSPEED, APPLIER), "RuntimeError: A tensor was not contiguous.\n"),
    ],
)  # fmt: skip
def test_another_place_or_message(calls: tuple[tuple[str, str, str], ...], error: str, tmp_path: Path) -> None:
    _, said, _ = explained(tmp_path, f"{frames((SCRIPT, 'main', 'run()'), *calls)}{error}")
    assert not said.startswith(STATE)
