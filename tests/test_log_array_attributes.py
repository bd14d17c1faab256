"""What an attribute that a tensor or an array lacks, an index or a factory of torch shows of the script's own line.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

TENSOR = "AttributeError: 'Tensor' object has no attribute '{}'"
ARRAY = "AttributeError: 'numpy.ndarray' object has no attribute '{}'"
DEVICES = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, {} and {}!"


@pytest.mark.parametrize(
    ("line", "error", "title", "words"),
    [
        ("frames[0].save(path)", ARRAY.format("save"), "frames[0] is an array of numpy", "Image.fromarray"),
        ("grid.convert('RGB')", TENSOR.format("convert"), "grid is a tensor, and fit.py:7 in main uses it as an "
         "image of PIL: it has no convert", "to_pil_image"),
        ("axs.plot(history)", ARRAY.format("plot"), "as one of matplotlib's axes", "axes.ravel()"),
        ("ax[1].set_title('loss')", ARRAY.format("set_title"), "ax[1] is an array", "axes[0, 1].plot"),
        ("preds.append(y)", ARRAY.format("append"), "fit.py:7 in main uses it as a list", "different names"),
        ("losses.append(loss)", TENSOR.format("append"), "losses is a tensor", "torch.cat([x, y])"),
        ("y = y.astype('float32')", TENSOR.format("astype"), "as an array of numpy", "x.to(torch.float32)"),
        ("out.logits.argmax(-1)", TENSOR.format("logits"), "out is a tensor, and fit.py:7 in main uses it as the "
         "output object of a model", "return_dict=True"),
        ("a = policy(s).sample()", TENSOR.format("sample"), "a distribution", "Categorical"),
        ("opt.zero_grad()", TENSOR.format("zero_grad"), "a model or an optimizer", "out = model(x)"),
        ("batch.keys()", TENSOR.format("keys"), "fit.py:7 in main uses it as a dict", "collate"),
        ("x = x_train.iloc[idx]", ARRAY.format("iloc"), "x_train is an array of numpy", "pd.DataFrame"),
        ("words = t.lower()", TENSOR.format("lower"), "fit.py:7 in main uses it as a text", "decode"),
        ("x = x.frobnicate()", TENSOR.format("frobnicate"), "x is a tensor, which has no frobnicate", "x.shape"),
    ],
)  # fmt: skip
def test_a_missing_attribute_shows_what_was_expected(
    line: str, error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, frames((SCRIPT, "main", line)) + f"{error}\n")
    assert title in found and words in text and "class Tensor" not in text, (found, text)


@pytest.mark.parametrize(
    ("place", "line", "error", "absent"),
    [
        # Methods of tensors, which an array lacks: the entry of numpy's messages.
        (SCRIPT, "x = x.unsqueeze(0)", ARRAY.format("unsqueeze"), "uses it as"),
        # Python suggests a name.
        (SCRIPT, "x.shpe", "AttributeError: 'Tensor' object has no attribute 'shpe'. Did you mean: 'shape'?", "result"),
        # A class of the script, and a line of a package.
        (SCRIPT, "bag.append(1)", "AttributeError: 'Bag' object has no attribute 'append'", "as a list"),
        ("trl/trainer/sft_trainer.py", "x = out.logits", TENSOR.format("logits"), "is a tensor, and"),
    ],
)
def test_near_messages_of_attributes_are_not_explained_so(
    place: str, line: str, error: str, absent: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, frames((SCRIPT, "main", "fit()"), (place, "run", line)) + f"{error}\n")
    assert absent not in found + text, (found, text)


@pytest.mark.parametrize(
    ("line", "marks", "error", "title", "words"),
    [
        ("score = self.trans[tags[i + 1], tags[i]] + feat[tags[i + 1]]", (("tags", "[i + 1]"),),
         "index 1 is out of bounds for dimension 0 with size 1", "tags has only 1 element, and i + 1", "lacks a dim"),
        ("y = first[a] + second[b + 2]", (("second", "[b + 2]"),),
         "index 3000 is out of bounds for dimension 0 with size 3000", "second has only 3,000", "one past the end"),
        ("y = grid[row, col] * other[row]", (("grid", "[row, col]"),),
         "index 35 is out of bounds for axis 0 with size 28", "row is, or holds, 35, and grid has 28", "print(grid"),
        # Two candidates, and nothing underlined.
        ("y = first[a] + second[b]", (), "index 9 is out of bounds for axis 0 with size 8", "too large: 9", ""),
    ],
)  # fmt: skip
def test_the_underlined_part_names_the_tensor(
    line: str, marks: tuple[tuple[str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    text = frames((SCRIPT, "main", line))
    for of, item in marks:
        at = line.index(of + item)
        text += f"    {' ' * at}{'~' * len(of)}{'^' * len(item)}\n"
    row, found, why = explained(tmp_path, f"{text}IndexError: {error}\n")
    assert row == "log_index_beyond_tensor" and title in found and words in why, (found, why)


@pytest.mark.parametrize(
    ("line", "devices", "title"),
    [
        (
            "h = h * torch.block_diag(*[torch.ones((u,u)) for u in sizes])",
            ("cuda:0", "cpu"),
            "torch.ones((u, u)) makes",
        ),
        (
            "x = x + torch.zeros(x.size(0), 64)",
            ("cuda:3", "cpu"),
            "torch.zeros(x.size(0), 64) makes a tensor on the CPU",
        ),
        ("loss = (w * torch.linspace(0, 1, n)).sum()", ("cpu", "cuda:1"), "torch.linspace(0, 1, n) makes"),
        # A device is named, the call is only an index, both are GPUs, or nothing is made there.
        ("x = x + torch.zeros(64, device=dev)", ("cuda:0", "cpu"), "mixes a tensor on the CPU"),
        ("x = x + torch.zeros(64).to(x.device)", ("cuda:0", "cpu"), "mixes a tensor on the CPU"),
        ("x = x[torch.randperm(n)] + y", ("cuda:0", "cpu"), "mixes a tensor on the CPU"),
        ("x = x + torch.zeros(64)", ("cuda:0", "cuda:1"), ""),
        ("x = x + y", ("cuda:0", "cpu"), "mixes a tensor on the CPU"),
    ],
)
def test_a_tensor_that_the_line_makes_without_a_device(
    line: str, devices: tuple[str, str], title: str, tmp_path: Path
) -> None:
    text = frames((SCRIPT, "main", line)) + DEVICES.format(*devices) + "\n"
    row, found, _ = explained(tmp_path, text)
    assert row == "log_tensors_on_several_devices" and title in found, found
    assert ("makes a tensor" in found) == ("makes" in title)
