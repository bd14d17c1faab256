"""Messages whose reason is one step further than they say: a header, a folder, a pooled sample, a text, a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

STEPS = "Epoch 7/90 loss=0.41\nEpoch 8/90 loss=0.40\n"
SCHEDULER = ("torch/optim/lr_scheduler.py", "get_lr", "return [g['lr'] * self.gamma ** self.milestones[e]")
NORM = ("torch/nn/functional.py", "batch_norm", "_verify_batch_size(input.size())")
SESSION = ("tensorflow/python/client/session.py", "_do_call", "raise type(e)(node_def, op, message)")
LINEAR = ("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")
ONE = "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([{}])"
GEMM = "InternalError: Blas GEMM launch failed : a.shape=(8, 500), b.shape=(500, 7), m=8, n=7, k=500"
NO_HOST_MEMORY = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate 400000000 bytes."
)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ('csrc/nearest.cu(41): error: identifier "FLT_MAX" is undefined\r', "uses FLT_MAX without including"),
        ("src/hash.cpp:12:5: error: 'uint32_t' does not name a type", "declares it (<cstdint>)"),
        ("src/hash.cpp:12:5: error: 'uint8_t' was not declared in this scope", "declares it (<cstdint>)"),
        ("src/a.hpp:7:10: error: 'numeric_limits' is not a member of 'std'", "declares it (<limits>)"),
        ("src/a.cc:7:10: error: use of undeclared identifier 'memcpy'", "declares it (<cstring>)"),
        ('src/a.cu(9): error: namespace "std" has no member "optional"', "declares it (<optional>)"),
    ],
)
def test_a_header_that_a_source_file_does_not_include(line: str, title: str, tmp_path: Path) -> None:
    row, said, words = explained(tmp_path, f"{line}\n")
    assert row == "log_compiler_error" and title in said and "1i #include <" in words, said


@pytest.mark.parametrize(
    "line",
    [
        'csrc/kernel.cu(41): error: identifier "__nv_bfloat162" is undefined',
        "src/a.cc:7:10: error: 'my_limits' was not declared in this scope",
        "src/a.cc:7:10: error: 'FLT_MAX' redefined",
    ],
)
def test_another_error_of_a_compiler(line: str, tmp_path: Path) -> None:
    row, said, words = explained(tmp_path, f"{line}\n")
    assert row == "log_compiler_error" and "a compiler rejected" in said and "#include" not in words


def test_a_folder_that_a_checkpoint_should_be_in(tmp_path: Path) -> None:
    save = frames((SCRIPT, "main", "torch.save(state, path)"), ("torch/serialization.py", "save", "raise"))
    for folder in ("/home/ann/runs", "out/7"):
        error = f"RuntimeError: Parent directory {folder} does not exist.\n"
        _, title, words = explained(tmp_path, save + error)
        assert "the folder of that file does not exist" in title and "quota -s" not in words
    _, title, words = explained(tmp_path, f"{save}RuntimeError: File out/a.pt cannot be opened.\n")
    assert "does not exist" not in title and "quota -s" in words


@pytest.mark.parametrize("size", ["1, 72, 1, 1", "1, 256, 1, 1, 1", "1, 16, 1"])
def test_a_sample_that_was_pooled_to_one_value(size: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", "y = net(x)"), NORM) + ONE.format(size) + "\n")
    assert "reduced to size 1" in title and "model.eval()" in words and "SyncBatchNorm" not in words


def test_a_batch_of_one_sample(tmp_path: Path) -> None:
    text = frames((SCRIPT, "main", "y = net(x)"), NORM) + ONE.format("1, 64") + "\n"
    assert "single sample" in explained(tmp_path, text)[1] and "drop_last" in explained(tmp_path, text)[2]


@pytest.mark.parametrize(
    "error",
    [
        "unsupported operand type(s) for ** or pow(): 'str' and 'int'",
        "can't multiply sequence by non-int of type 'float'",
    ],
)
def test_a_gamma_that_is_a_text(error: str, tmp_path: Path) -> None:
    step = (SCRIPT, "main", "scheduler.step()")
    _, title, words = explained(tmp_path, f"{STEPS}{frames(step, SCHEDULER)}TypeError: {error}\n")
    assert title.startswith("gamma of the learning rate scheduler is a text") and "such as a batch" not in words
    own = frames((SCRIPT, "main", "x = self.gamma ** n"))
    assert "scheduler" not in explained(tmp_path, f"{STEPS}{own}TypeError: {error}\n")[1]


def test_a_matrix_product_that_cublas_could_not_start(tmp_path: Path) -> None:
    run = (SCRIPT, "main", "session.run(op)")
    for error in (GEMM, GEMM.replace("GEMM", "xGEMMBatched")):
        _, title, words = explained(tmp_path, f"{frames(run, SESSION)}{error}\n")
        assert "older than the GPU" in title and "allow_growth" in words
    other = "InternalError: Failed to create session.\n"
    assert "older than the GPU" not in explained(tmp_path, frames(run, SESSION) + other)[1]


@pytest.mark.parametrize("code", ["out = net(x).reshape(y.shape)", "z = x.view(*mask.shape)", "a.view(b.size())"])
def test_the_shape_of_another_tensor(code: str, tmp_path: Path) -> None:
    error = "RuntimeError: shape '[20, 26, 32]' is invalid for input of size 27200\n"
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", code)) + error)
    assert "of another tensor" in title and "drop_last" not in words and code in words
    for line in ("x.view(x.shape[0], -1)", "x.view(20, 26, 32)"):
        assert "another tensor" not in explained(tmp_path, frames((SCRIPT, "main", line)) + error)[1]


def test_a_model_that_computes_on_the_cpu(tmp_path: Path) -> None:
    train = (SCRIPT, "main", "y = net(x)")
    _, title, words = explained(tmp_path, f"{STEPS}{frames(train, LINEAR)}{NO_HOST_MEMORY}\n")
    assert "computes on the CPU" in title and "loss.item()" in words and "sbatch" not in words
    _, title, words = explained(tmp_path, f"{STEPS}{frames((SCRIPT, 'load', 'x = x.clone()'))}{NO_HOST_MEMORY}\n")
    assert "on the CPU" not in title and "num_workers" in words


def test_the_buffer_that_xla_could_not_place(tmp_path: Path) -> None:
    error = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {} bytes."
    text = frames((SCRIPT, "main", "out = train(key)")) + error.format(8472607056) + "\n"
    words = explained(tmp_path, text)[2]
    assert "One buffer of 7.9 GiB did not fit" in words and "fewer environments" in words
    assert "One buffer" not in explained(tmp_path, text.replace("8472607056", "1024"))[2]


@pytest.mark.parametrize("folder", ["/home/ann/detector", "/workspace/fusion/lib"])
def test_a_name_that_a_file_of_another_branch_has(folder: str, tmp_path: Path) -> None:
    error = "ImportError: cannot import name 'crop_masks' from '{}' ({}/utils/boxes.py)\n"
    text = frames((SCRIPT, "<module>", "from utils.boxes import crop_masks"))
    _, title, words = explained(tmp_path, text + error.format("utils.boxes", folder))
    assert "boxes.py has no crop_masks" in title and "branch -a" in words and "pip check" not in words
    for module, path in (("utils.boxes", "/e/lib/python3.11/site-packages"), ("transformers.boxes", folder)):
        assert "branch -a" not in explained(tmp_path, text + error.format(module, path))[2]
