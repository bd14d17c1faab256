"""Names of one letter, a tuple among numbers, values that were never set, tensors of the script's own lines.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_log_callers import MODULE, SCRIPT, frames
from .test_log_meanings import explained
from .test_log_memory import message

LOADS = frames(
    (SCRIPT, "main", "model = AutoModelForCausalLM.from_pretrained("),
    ("transformers/utils/hub.py", "cached_file", "raise EnvironmentError("),
)
UNKNOWN = "OSError: {name} is not a local folder and is not a valid model identifier listed on 'https://hf.example'\n"
NO_DATA = "datasets.exceptions.DatasetNotFoundError: Dataset '{name}' doesn't exist on the Hub or cannot be accessed.\n"


@pytest.mark.parametrize(
    ("error", "name", "letter"),
    [(UNKNOWN, "q", True), (NO_DATA, "s", True), (UNKNOWN, "qw", False), (NO_DATA, "squad2", False)],
)
def test_a_name_of_one_letter(error: str, name: str, letter: bool, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, LOADS + error.format(name=name))
    assert row == "log_hub_name_wrong"
    assert (f"the name '{name}', a single letter" in title and "fit.py:7 in main" in title) == letter, title
    assert ("isinstance(names, str)" in words) == letter


COMBINATION = (
    "TypeError: {call}() received an invalid combination of arguments - got ({got}, device=torch.device), but expected "
    "one of:\n * (tuple of ints size, *, torch.device device)\n"
)


@pytest.mark.parametrize(
    ("code", "call", "got", "title"),
    [
        ("h = torch.zeros(count, self.width)", "zeros", "tuple, int", "zeros() got a tuple and another number: count "),
        ("h = torch.randn(x.shape, 3)", "randn", "torch.Size, int", "randn() got a tuple and another number: x.shape "),
        ("h = torch.ones((n, 2), width)", "ones", "tuple, int", "its first argument is a tuple"),
        ("h = torch.zeros(count)", "zeros", "tuple", "an item of count is probably not an int"),
        ("h = torch.full(count, 3)", "full", "tuple, int", "an item of count is probably not an int"),
    ],
)
def test_a_tuple_among_the_numbers_of_a_size(code: str, call: str, got: str, title: str, tmp_path: Path) -> None:
    calls = ((SCRIPT, "main", "y = prior.draw((len(x),))"), ("/home/ada/prior.py", "draw", code))
    _, found, words = explained(tmp_path, frames(*calls) + COMBINATION.format(call=call, got=got))
    assert title in found, found
    assert ("y = prior.draw((len(x),))" in words) == found.startswith("zeros() got a tuple"), words
    assert not found.startswith("randn()") or "randn(*x.shape, dim)" in words


UNSET = "UnboundLocalError: local variable 'mean' referenced before assignment\n"
READS = frames((SCRIPT, "main", "fit(net)"), (SCRIPT, "fit", "report(mean)")) + UNSET
FAILS = ("/home/ada/losses.py", "score", "return x.sum(dim=9)")
TOO_MANY = "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 9)\n"


@pytest.mark.parametrize(
    ("before", "consequence"),
    [
        (frames((SCRIPT, "fit", "mean = score(x)"), FAILS), True),
        (frames((SCRIPT, "main", "fit(net)"), (SCRIPT, "fit", "mean = score(x)"), FAILS), False),  # of an earlier run
        (frames((SCRIPT, "load", "x = score(x)"), FAILS), False),  # another function caught it
    ],
)
def test_a_value_that_was_not_set_since_each_try_failed(before: str, consequence: bool, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, f"skipped a batch\n{before}{TOO_MANY}\n" * 2 + f"epoch done\n{READS}")
    assert title.startswith("losses.py:7 in score failed, and probably mean") == consequence, title
    assert not consequence or ("fit.py:7 in fit" in words and "Look at losses.py:7 in score first" in words)


@pytest.mark.parametrize(
    ("chain", "first"),
    [
        ("During handling of the above exception, another exception", True),
        ("The above exception was the direct cause of the following", False),
    ],
)
def test_a_value_that_is_read_while_an_exception_is_handled(chain: str, first: bool, tmp_path: Path) -> None:
    failed = frames((SCRIPT, "fit", "mean = score(x)"), FAILS) + "FloatingPointError: score is negative\n"
    end = " occurred:" if first else " exception:"
    _, title, _ = explained(tmp_path, f"{failed}\n{chain}{end}\n\n{READS}")
    assert title.startswith("FloatingPointError: score is negative; what handled it then failed too") == first, title


DEVICES = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, {}!\n"
MIXES = "fit.py:7 in update mixes a tensor on the CPU with one on the GPU"
SHADOW = "self.shadow[n].data = 0.1 * param.data + 0.9 * self.shadow[n].data"


@pytest.mark.parametrize(
    ("code", "devices", "title"),
    [
        (SHADOW, "cuda:0 and cpu",
         "of the weights and their moving average, one is on the CPU and one on the GPU (fit.py:7 in update)"),
        ("loss = (ema_loss + loss) / 2", "cpu and cuda:1", MIXES),
        ("x = x * self.mask", "cuda:0 and cpu", MIXES),
        ("x = x * self.mask", "cuda:0 and cuda:1", "the model and its input are on different devices"),
    ],
)  # fmt: skip
def test_devices_in_a_line_of_the_script(code: str, devices: str, title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, frames((SCRIPT, "update", code)) + DEVICES.format(devices))
    assert found == title


def test_devices_in_a_layer_of_torch_are_no_matter_of_the_line(tmp_path: Path) -> None:
    calls = ((SCRIPT, "update", "y = net(x)"), MODULE, ("torch/nn/modules/activation.py", "forward", "return x * y"))
    _, found, _ = explained(tmp_path, frames(*calls) + DEVICES.format("cuda:0 and cpu"))
    assert "mixes a tensor" not in found


TOO_LARGE = "IndexError: index 2 is out of bounds for dimension {} with size 2\n"
IN_TORCH = ("torch/utils/data/dataset.py", "__getitem__", "return tuple(tensor[index] for tensor in self.tensors)")


@pytest.mark.parametrize(
    ("calls", "axis", "title"),
    [
        ([(SCRIPT, "main", "z = parts[step][None]")], 0,
         "parts has only 2 elements, and step is, or holds, 2 (fit.py:7 in main)"),
        ([(SCRIPT, "main", "z = parts[2]")], 0, "parts has only 2 elements, and the line reads parts[2]"),
        ([(SCRIPT, "main", "z = parts[step] + rest[step]")], 0, "2, but the dimension has 2 elements"),
        ([(SCRIPT, "main", "z = parts[:, step]")], 1,
         "step is, or holds, 2, and parts has 2 elements in that dimension (fit.py:7 in main)"),
        ([(SCRIPT, "main", "z = data[step]"), IN_TORCH], 0, "2, but the dimension has 2 elements"),
    ],
)  # fmt: skip
def test_an_index_beyond_a_tensor(calls: list[tuple[str, str, str]], axis: int, title: str, tmp_path: Path) -> None:
    _, found, words = explained(tmp_path, frames(*calls) + TOO_LARGE.format(axis))
    assert found.startswith(f"an index is too large: {title}"), found
    assert ("tokenizer" in words) == (IN_TORCH in calls)  # no position of a sample in the others


BACKWARD = frames(
    (SCRIPT, "main", "loss.backward()"),
    ("torch/_tensor.py", "backward", "torch.autograd.backward("),
    ("torch/autograd/graph.py", "_engine_run_backward", "return Variable._execution_engine.run_backward("),
)
# 8 x 4,096 x 201,088 x 4 bytes
CONFIG = "Config: batch=8 seq_length=4096 vocab_size={}\n"


@pytest.mark.parametrize(
    ("before", "logits"), [(CONFIG.format(201088), True), (CONFIG.format(32000), False), ("seq_length=4096\n", False)]
)
def test_the_logits_in_the_backward_pass_only_by_their_size(before: str, logits: bool, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, before + BACKWARD + message("24.55 GiB", "", ""))
    assert ("probably the full logits" in title) == logits, title
    assert ("set_detect_anomaly(True)" in words) != logits


@pytest.mark.parametrize(("pids", "ranks"), [((4711, 9822), False), ((4711, 4712), True), ((10, 4711, 4790), True)])
def test_ranks_have_pids_that_are_close(pids: tuple[int, ...], ranks: bool, tmp_path: Path) -> None:
    others = "".join(f"Process {pid} has 1.20 GiB memory in use. " for pid in pids)
    own = "Including non-PyTorch memory, this process has 75.00 GiB memory in use. "
    _, title, _ = explained(tmp_path, frames((SCRIPT, "main", "y = net(x)")) + message("480.00 MiB", others, own))
    assert ("probably the other ranks" in title) == ranks, title


EXECUTOR = "AttributeError: 'LLMEngine' object has no attribute 'model_executor'\n"


@pytest.mark.parametrize("inside", [True, False])
def test_an_executor_that_vllm_itself_expects(inside: bool, tmp_path: Path) -> None:
    calls = [("openrlhf/trainer/ray/vllm_engine.py", "init_process_group", "return self.llm.collective_rpc(")]
    if inside:
        calls.append(("vllm/entrypoints/llm.py", "collective_rpc", "executor = self.llm_engine.model_executor"))
    _, title, words = explained(tmp_path, frames(*calls) + EXECUTOR)
    assert title.startswith("vllm's own code reads model_executor") == inside, title
    assert ("pip install --upgrade vllm" in words) == inside
