"""Where sharded and plain tensors meet, by the frames of the traceback, or of another rank's that is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

Calls = tuple[tuple[str, str, str], ...]
MIXED = (
    "RuntimeError: {}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
    "distributed operators!\n"
)
DISPATCH = ("torch/distributed/tensor/_dispatch.py", "dispatch", "raise RuntimeError(")
LINEAR = ("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")
MAIN = (SCRIPT, "main", "run(model)")
LOSS = "the loss multiplies by the head's weight itself"


def failed(calls: Calls, operator: str) -> str:
    return frames(*calls, DISPATCH) + MIXED.format(operator)


@pytest.mark.parametrize(
    ("calls", "operator", "title", "there"),
    [
        ((MAIN, ("/home/ada/chunked_loss.py", "forward", "logits = x @ weight.T")), "aten.mm.default", LOSS,
         "full_tensor()"),
        ((MAIN, ("liger_kernel/ops/fused_linear_cross_entropy.py", "fused_linear_cross_entropy_forward", "x @ w.t()")),
         "aten.mm.default", LOSS, "pip show liger_kernel torch"),
        ((MAIN, ("torch/nn/modules/loss.py", "forward", "return F.cross_entropy("),
          ("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(")),
         "aten.nll_loss_forward.default", "the loss gets sharded logits (DTensor) and plain labels", "loss_parallel"),
        ((MAIN, ("transformers/generation/utils.py", "_sample", "outputs = self(**inputs)"), MODULE, LINEAR),
         "aten.mm.default", "generate() uses the sharded model outside of its own forward()",
         "register_fsdp_forward_method(model, 'generate')"),
        ((MAIN, ("torch/nn/utils/clip_grad.py", "clip_grad_norm_", "total = norm(")), "aten.mul.Tensor",
         "gradient clipping mixes", "foreach=False"),
        ((MAIN, ("torch/optim/adamw.py", "_single_tensor_adamw", "param.mul_(1 - lr * weight_decay)")),
         "aten.mul_.Tensor", "the optimizer's step mixes", "set_optimizer_state_dict"),
        ((MAIN, ("/home/ada/model.py", "embed", "h = self.tok(ids)"), MODULE,
          ("torch/nn/functional.py", "embedding", "return torch.embedding(")), "aten.embedding.default",
         "an embedding mixes", "inputs_embeds"),
        # A function that is called like a loss runs the model: the layer is the place.
        ((MAIN, ("/home/ada/steps.py", "loss_fn", "out = model(ids)"), MODULE,
          ("/home/ada/model.py", "forward", "h = self.proj(x)"), MODULE, LINEAR), "aten.mm.default",
         "aten.mm.default got a sharded tensor (DTensor) and a plain tensor", "The script uses"),
        # A framework's own recipe: not the user's script.
        ((("torchtune/training/recipe.py", "train", "out = self.head(h)"), LINEAR), "aten.mm.default",
         "aten.mm.default got a sharded tensor", "torchtune uses the sharded weights"),
    ],
)  # fmt: skip
def test_the_frames_name_the_place(calls: Calls, operator: str, title: str, there: str, tmp_path: Path) -> None:
    found, said, rest = explained(tmp_path, failed(calls, operator))
    assert found == "log_tensor_kinds_mixed"
    assert said.startswith(title), said
    assert there in rest


def of_two_ranks(file: str, code: str) -> str:
    """Rank 0's traceback lacks its first frames, and rank 3's lacks its end."""
    first = frames(DISPATCH, prefix="[rank0]: ").partition("\n")[2] + "[rank0]: " + MIXED.format("aten.mm.default")
    return first + frames(MAIN, (file, "_loss_step", code), prefix="[rank3]: ")


def test_another_ranks_traceback_has_the_place(tmp_path: Path) -> None:
    own = of_two_ranks("/home/ada/steps.py", "loss = self._loss_fn(hidden, head.weight, labels)")
    _, said, rest = explained(tmp_path, own)
    assert said.startswith(LOSS)
    assert "pip show" not in rest
    theirs = of_two_ranks("/w/torchtune/recipes/full.py", "loss = self._loss_fn(weight, outputs, labels)")
    assert "It is in torchtune's own code" in explained(tmp_path, theirs)[2]


def test_a_cut_traceback_that_ends_before_the_place_says_nothing(tmp_path: Path) -> None:
    text = of_two_ranks("/home/ada/steps.py", "logits = self.model(ids)")
    assert explained(tmp_path, text)[1] == "aten.mm.default got a sharded tensor (DTensor) and a plain tensor"
