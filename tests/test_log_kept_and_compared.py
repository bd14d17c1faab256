"""What does the script's line compare, keep or go through: a loss, an object of a model's copies, a method, a cache?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

GRAPHS = ("torch_geometric/loader/dataloader.py", "__call__", "return Batch.from_data_list(batch)")
REPLICA = ("torch/nn/parallel/parallel_apply.py", "_worker", "output = module(*input, **kwargs)")
TWO_GPUS = (
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:2 and cuda:0!\n"
)


def of_loss(code: str, loss: str, sizes: tuple[int, int, int], *between: tuple[str, str, str]) -> str:
    a, b, dim = sizes
    calls = (
        (SCRIPT, "fit", code),
        *between,
        ("torch/nn/functional.py", loss, "expanded_input, expanded_target = torch.broadcast_tensors(input, target)"),
        ("torch/functional.py", "broadcast_tensors", "return _VF.broadcast_tensors(tensors)"),
    )
    return (
        f"{frames(*calls)}RuntimeError: The size of tensor a ({a}) must match the size of tensor b ({b}) at "
        f"non-singleton dimension {dim}\n"
    )


@pytest.mark.parametrize(
    ("code", "loss", "sizes", "words"),
    [
        ("loss = crit(out.view(-1), y)", "mse_loss", (600, 200, 0),
         ("out.view(-1) is the prediction, and y the target", "exactly 3 times", "not emptied")),
        ("total = F.l1_loss(net(x), goal)", "l1_loss", (17, 32, 0),
         ("net(x) is the prediction, and goal the target", "fixed batch size", "drop_last=True")),
        ("loss = self.huber(q, wanted)", "smooth_l1_loss", (6, 4, 1), ("another number of values per sample",)),
        ("loss = crit(recon, image)", "mse_loss", (96, 128, 3), ("another height, width or length",)),
        ("loss = crit(**batch)", "huber_loss", (8, 5, 0), ("of different samples",)),
    ],
)  # fmt: skip
def test_a_loss_names_its_prediction_and_target(
    code: str, loss: str, sizes: tuple[int, int, int], words: tuple[str, ...], tmp_path: Path
) -> None:
    _, title, text = explained(tmp_path, of_loss(code, loss, sizes))
    assert f"prediction and the target of {loss} have different sizes: {sizes[0]} and {sizes[1]}" in title
    assert all(word in text for word in words), text
    assert ("is the prediction, and" in text) == ("**" not in code)


@pytest.mark.parametrize(
    "text",
    [
        # A loss of a package, a size that was rounded, and another operation.
        of_loss("loss = crit(a, b)", "l1_loss", (64, 40, 0), ("monai/losses/ds.py", "forward", "return self.loss(a)")),
        of_loss("loss = crit(recon, image)", "mse_loss", (256, 255, 3)),
        frames((SCRIPT, "fit", "d = a - b")) + "RuntimeError: The size of tensor a (8) must match the size of tensor b "
        "(4) at non-singleton dimension 0\n",
    ],
)
def test_other_operations_have_no_prediction(text: str, tmp_path: Path) -> None:
    assert "the prediction and the target of" not in explained(tmp_path, text)[1]


@pytest.mark.parametrize(
    ("code", "function", "shared"),
    [
        ("self.past = torch.cat([self.past, new], dim=1)", "extend", True),
        ("self.keys[layer] = torch.cat((self.keys[layer], k), dim=2)", "push", True),
        ("self.seen = torch.hstack([self.seen, x])", "forward", False),
        ("x = torch.cat([self.past, new], dim=1)", "extend", False),
        ("self.past = torch.cat([old, new], dim=1)", "extend", False),
    ],
)
def test_copies_of_a_model_share_what_it_keeps(code: str, function: str, shared: bool, tmp_path: Path) -> None:
    row, title, text = explained(tmp_path, frames(REPLICA, ("/home/ada/memory.py", function, code)) + TWO_GPUS)
    assert row == "log_tensors_on_several_devices" and "nn.DataParallel copied the model" in title
    assert (f"memory.py:7 in {function} extends a tensor" in title) == shared
    assert ("one object in all copies" in text) == shared
    alone = explained(tmp_path, frames(("/home/ada/memory.py", function, code)) + TWO_GPUS)
    assert "nn.DataParallel copied" not in alone[1]


@pytest.mark.parametrize(
    ("code", "error", "method"),
    [
        ("names = [set(graph.keys) for graph in graphs]", "'method' object is not iterable", "graph.keys"),
        ("if 'pos' in sample.keys:", "argument of type 'method' is not iterable", "sample.keys"),
        ("n = len(self.items.values)", "object of type 'method' has no len()", "self.items.values"),
        ("for p in net.parameters:", "'method' object is not iterable", "net.parameters"),
        ("for k in table.items:", "'builtin_function_or_method' object is not iterable", "table.items"),
        # More than one, or none, can be the method.
        ("for a, b in zip(x.keys, y.keys) if c in d.e]", "'method' object is not iterable", ""),
        ("opt = SGD(net.parameters, lr=1)", "'method' object is not iterable", ""),
        ("for p in params:", "'method' object is not iterable", ""),
        ("sizes = [set(hook) for hook in net.hooks]", "'method' object is not iterable", ""),
    ],
)
def test_a_method_that_a_line_goes_through(code: str, error: str, method: str, tmp_path: Path) -> None:
    _, title, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}TypeError: {error}\n")
    assert (" is a method, and fit.py:7 in main goes through it" in title) == bool(method)
    assert f"{method} is a method" in title if method else "a function was used where a value belongs" in title
    assert (f"{method}()." in text) == bool(method) and "torch_geometric" not in text


def test_keys_of_a_graph_became_a_method(tmp_path: Path) -> None:
    line = ("/home/ada/graphs.py", "join", "for key in data.keys:")
    error = "TypeError: 'method' object is not iterable\n"
    text = explained(tmp_path, frames((SCRIPT, "main", "for b in loader:"), GRAPHS, line) + error)[2]
    assert "PyTorch Geometric 2.4" in text and "pip install 'torch_geometric<2.4'" in text
    values = (line[0], line[1], "for v in data.values:")
    assert "Geometric" not in explained(tmp_path, frames((SCRIPT, "main", "b = 1"), GRAPHS, values) + error)[2]
    in_package = ("einops/parsing.py", "parse", "for axis in self.axes:")
    title = explained(tmp_path, frames((SCRIPT, "main", "for x in net.layers: f(x)"), in_package) + error)[1]
    assert "net.layers is a method" not in title


KEY = frames((SCRIPT, "show", "mask = batch['sky_mask'][0]")) + "KeyError: 'sky_mask'\n"


@pytest.mark.parametrize(
    ("line", "cached"),
    [
        ("Warning: cache folder /data/cache/val already exists, skip", True),
        ("INFO Loading dataset from cached file /data/val.pt", True),
        ("Loaded 900 samples from the cache in 0.2 s", True),
        ("cache folder /data/cache/val does not exist already, building", False),
        ("loading file tokenizer.json from cache at /home/ada/.cache/x", False),
        ("Using cached torch-2.9.0-cp311-manylinux.whl", False),
        ("Output folder exists already", False),
    ],
)
def test_a_key_that_a_cache_may_be_too_old_for(line: str, cached: bool, tmp_path: Path) -> None:
    text = explained(tmp_path, f"{line}\n{KEY}")[2]
    assert ("Line 1 of the log shows that prepared data from a cache is used" in text) == cached
    assert ("build the cache again" in text) == cached
    assert "build the cache again" not in explained(tmp_path, KEY + line + "\n")[2]
    config = KEY.replace("batch[", "config[")
    assert "from a cache" not in explained(tmp_path, f"{line}\n{config}")[2]


@pytest.mark.parametrize(
    ("head", "bits", "installed"),
    [
        ("GPU available: True (cuda), used: True\n", "4", False),
        ("     75         if not is_bitsandbytes_available(check_library_only=True):\n", "8", False),
        ("Found 2 folders\n", "4", True),
        ("GPU available: True (cuda), used: False\n", "8", True),
    ],
)
def test_bitsandbytes_is_missing_if_the_gpu_is_there(head: str, bits: str, installed: bool, tmp_path: Path) -> None:
    call = (f"transformers/quantizers/quantizer_bnb_{bits}bit.py", "validate_environment", "raise ImportError(")
    error = f"ImportError: Using `bitsandbytes` {bits}-bit quantization requires the latest version of bitsandbytes"
    row, title, text = explained(tmp_path, f"{head}{frames((SCRIPT, 'main', 'model = load()'), call)}{error}\n")
    assert row == "log_bitsandbytes_without_cuda"
    assert ("or torch has no GPU here" in title) == installed
    assert ("restart the kernel" in text) != installed
