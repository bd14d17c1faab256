"""Runs whose samples are no text: sizes of images, NaN, transforms, checkpoints with classes, no advice for text.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import explained

OWN = "/home/ada/net/fit.py"
SIZES = "RuntimeError: The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {at}"
MSE = ("torch/nn/functional.py", "mse_loss", "expanded_input, _ = torch.broadcast_tensors(input, target)")
LOAD = ("torch/serialization.py", "find_class", "return super().find_class(mod_name, name)")
UNEVEN = "ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 "


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("x = (x - mean) / std", (), SIZES.format(a=4, b=3, at=0), "an image with an alpha channel", "convert('RGB')"),
        ("x = F.normalize(x, mean, std)", (), SIZES.format(a=3, b=4, at=1), "an alpha channel", "IMREAD_COLOR"),
        ("x = x + skip", (), SIZES.format(a=256, b=255, at=3), "differ by one element", "skip connection"),
        ("loss = F.mse_loss(a, b)", (MSE,), SIZES.format(a=64, b=40, at=0), "64 and 40 in dim", "drop_last=True"),
        ("boxes = np.array([b.numpy() for b in found])", (), UNEVEN + "dimensions. The detected shape was (8,) + "
         "inhomogeneous part.", "arrays of different sizes was made into one array", "np.concatenate"),
        ("ck = torch.load('best.pt')", (LOAD,), "ModuleNotFoundError: No module named 'models.yolo'",
         "the file holds objects of classes whose module Python cannot find", "state_dict"),
        ("ck = torch.load('best.pt')", (LOAD,), "ModuleNotFoundError: No module named 'models'",
         "the file holds objects of classes whose module Python cannot find", "PYTHONPATH"),
        ("assert not torch.isnan(loss)", (), "AssertionError", "a value is NaN or infinite", "clip"),
        ("assert torch.isfinite(grad).all()", (), "AssertionError", "a value is NaN or infinite", "anomaly"),
        ("check(loss)", (), "FloatingPointError: NaN loss at step 31", "a value is NaN or infinite", "anomaly"),
        ("x = torch.from_numpy(img[:, ::-1])", (), "ValueError: At least one stride in the given numpy array is "
         "negative, and tensors with negative strides are not currently supported. (You can probably work around this "
         "by making a copy of your array  with array.copy().)", "flipped without a copy", ".copy()"),
        ("x = tf(img)", (("torchvision/transforms/functional.py", "to_tensor", "raise TypeError(x)"),),
         "TypeError: pic should be PIL Image or ndarray. Got <class 'torch.Tensor'>",
         "another kind of image than it accepts: <class 'torch.Tensor'>", "ToTensor once"),
        ("x = tf(img)", (("torchvision/transforms/transforms.py", "get_params", "raise ValueError(x)"),),
         "ValueError: Required crop size (256, 256) is larger than input image size (200, 300)",
         "an image of (200, 300) is smaller than the crop of (256, 256)", "pad_if_needed"),
    ],
)  # fmt: skip
def test_runs_without_text_are_explained_without_tokenizers(
    tmp_path: Path, code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str
) -> None:
    _, said, text = explained(tmp_path, f"{frames((OWN, 'main', code), *below)}{error}\n")
    assert title in said
    assert words in text
    assert "tokenizer" not in text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Epoch: [0]  [ 120/5000]  eta: 1:02:01  lr: 0.0001  loss: 7.1\nLoss is nan, stopping training\n",
         "training stopped because its loss or output is NaN or infinite"),
        ("iter 3000: loss 1.9, time 101.95ms\niter 3010: loss nan, time 101.95ms\n" * 2, "the model no longer learns"),
    ],
)  # fmt: skip
def test_nan_in_a_run_without_text_gets_torchs_own_advice(tmp_path: Path, text: str, title: str) -> None:
    _, said, advice = explained(tmp_path, text)
    assert title in said
    assert "clip_grad_norm_" in advice
    assert "accelerate" not in advice
    assert "attn_implementation" not in advice


def test_a_run_on_text_keeps_the_advice_for_text(tmp_path: Path) -> None:
    error = SIZES.format(a=187, b=203, at=1)
    trainer = ("transformers/trainer.py", "compute_loss", "outputs = model(**inputs)")
    _, _, advice = explained(tmp_path, f"{frames((OWN, 'main', 'trainer.train()'), trainer)}{error}\n")
    assert "tokenizer.pad" in advice


def test_a_smaller_last_batch_is_not_an_alpha_channel(tmp_path: Path) -> None:
    error = SIZES.format(a=3, b=4, at=0)
    _, title, _ = explained(tmp_path, f"{frames((OWN, 'main', 'loss = ((out - target) ** 2).mean()'))}{error}\n")
    assert "alpha" not in title
