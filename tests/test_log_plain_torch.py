"""Messages of torch in a script without a trainer, whose reason is another one than in a run of a framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained
from tests.test_log_went_on import cause

BACKWARD = ("torch/_tensor.py", "backward", "torch.autograd.backward(")
TRAINER = ("transformers/trainer.py", "training_step", "self.accelerator.backward(loss)")
ATTENTION = ("torch/nn/functional.py", "multi_head_attention_forward", "k = k.view(k.shape[0], bsz * heads, dim)")
LOAD = ("torch/nn/modules/module.py", "load_state_dict", "raise RuntimeError(")
NO_GRAD = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
INTEGERS = "RuntimeError: only Tensors of floating point and complex dtype can require gradients"
RESHAPE = "RuntimeError: shape '[16, 64, 192]' is invalid for input of size 1228800"
KEYS = "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: {missing}. \n\t"
UNEXPECTED = "Unexpected key(s) in state_dict: {left}. "
WORKERS = (
    "/x/site-packages/torch/utils/data/dataloader.py:557: UserWarning: This DataLoader will create 8 worker "
    "processes in total. Our suggested max number of worker in current system is 1, which is smaller than what "
    "this DataLoader is going to create.\n"
)


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("loss.backward()", (BACKWARD,), NO_GRAD, "the loss has no path to a parameter", "grad_fn"),
        (
            "trainer.train()",
            (TRAINER, BACKWARD),
            NO_GRAD,
            "does not depend on any trained",
            "enable_input_require_grads",
        ),
        ("x = out.detach().requires_grad_()", (), INTEGERS, "requested for a tensor of integers", "x.float()"),
        (
            "x = torch.tensor([1, 2], requires_grad=True)",
            (),
            INTEGERS,
            "requested for a tensor of integers",
            "1.0, 2.0",
        ),
        ("param.requires_grad = True", (), INTEGERS, "quantized (integer) weights", "LoraConfig"),
        ("y = model(src, tgt)", (ATTENTION,), RESHAPE, "another batch size than its queries", "batch_first=True"),
        ("y = x.view(16, 64, 192)", (), RESHAPE, "cannot be reshaped to [16, 64, 192]", "drop_last"),
        (
            "y = a @ b",
            (),
            "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != long int",
            "one of two tensors holds integers",
            "x.float()",
        ),
        (
            "y = fc(x)",
            (),
            "RuntimeError: mat1 and mat2 must have the same dtype, but got Long and Float",
            "one of two tensors holds integers",
            "x.float()",
        ),
        (
            "y = fc(x)",
            (),
            "RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float",
            "is float64 (Double), which numpy makes",
            "astype('float32')",
        ),
        (
            "y = fc(x)",
            (),
            "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
            "have the types Float and BFloat16",
            "autocast",
        ),
        (
            "y = fc(x)",
            (),
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "probably the GPU's memory is full",
            "nvidia-smi",
        ),
        (
            "y = torch.cumprod(x, 0)",
            (),
            "NotImplementedError: The operator 'aten::cumprod.out' is not currently implemented for the MPS device.",
            "cannot compute aten::cumprod.out on Apple's GPU",
            "MPS_FALLBACK=1",
        ),
        (
            "d = np.zeros((n, n))",
            (),
            "numpy.core._exceptions.MemoryError: Unable to allocate 474. GiB for an array with "
            "shape (2735, 2735, 63, 135) and data type int64",
            "numpy could not allocate one array of 474 GiB",
            "sparse",
        ),
        (
            "d = np.zeros((n, n))",
            (),
            "numpy.core._exceptions.MemoryError: Unable to allocate 1.2 GiB for an array with "
            "shape (9, 9) and data type int64",
            "numpy could not allocate one array of 1.2 GiB: shape (9, 9)",
            "open_memmap",
        ),
        (
            "x = scaler.transform(x)",
            (("sklearn/utils/validation.py", "_check_n_features", "raise ValueError("),),
            "ValueError: X has 4 features, but StandardScaler is expecting 6 features as input.",
            "StandardScaler was fitted with 6 columns, and gets 4 (called by fit.py:7",
            "n_features_in_",
        ),
    ],
)
def test_the_reason_is_that_of_a_plain_script(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)


@pytest.mark.parametrize(
    ("missing", "left", "title", "words"),
    [
        (
            '"layers.0.q.weight", "layers.0.k.weight"',
            '"mamba.0.a_log", "mamba.0.d"',
            "the checkpoint has the layers mamba.*, and Net the layers layers.*: it was saved from another model",
            "head",
        ),
        (
            '"conv.weight", "fc.bias"',
            '"encoder.conv.weight", "encoder.fc.bias"',
            "the names of the checkpoint have the prefix 'encoder.'",
            "name.removeprefix('encoder.')",
        ),
        (
            '"model.conv.weight"',
            '"conv.weight"',
            "the names of the checkpoint lack the prefix 'model.'",
            "model.model.load_state_dict(state)",
        ),
        (
            '"out.0.weight", "out.0.bias"',
            '"out.weight", "out.bias"',
            "Net has out.0.weight, and the checkpoint has out.weight instead",
            "nn.Sequential",
        ),
        (
            '"norm.weight", "head.bias"',
            '"layers.norm.weight", "other.bias"',
            "it was saved from another model",
            "another config",
        ),
        ('"head.weight"', None, "the checkpoint lacks weights of Net, the first is head.weight", "strict=False"),
        ('"module.fc.weight"', '"fc.weight"', "a wrapper's prefix ('module.')", "unwrap_model"),
        (
            ", ".join(f'"blocks.{n}.attention.weight"' for n in range(99)),
            '"mamba.0.d"',
            "the checkpoint has the layers mamba.*, and Net the layers blocks.*",
            "ls -lt",
        ),
    ],
)
def test_the_names_of_a_state_dict_show_how_it_differs(
    missing: str, left: str | None, title: str, words: str, tmp_path: Path
) -> None:
    error = KEYS.format(missing=missing) + (UNEXPECTED.format(left=left) if left else "")
    code = "model.load_state_dict(torch.load(path))"
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), LOAD)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)


def test_a_syntax_error_has_its_place(tmp_path: Path) -> None:
    own = "  File \"/home/ada/tools/make.py\", line 148\n    x = f(1\n         ^\nSyntaxError: '(' was never closed\n"
    above = (
        'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in <module>\n    import tools.make\n'
    )
    for text in (own, above + own):
        _, title, words = explained(tmp_path, text)
        assert title.startswith("a syntax error in make.py:148: '(' was never closed"), title
        assert "python -m py_compile make.py" in words and "x = f(1" in words
    of_package = (
        f'{above}  File "/opt/env/lib/python3.6/site-packages/rich/text.py", line 9\n    if n := 3:\n         ^\n'
        "SyntaxError: invalid syntax\n"
    )
    _, title, words = explained(tmp_path, of_package)
    assert title.startswith("a file of rich has a syntax that this Python does not accept"), title
    assert "py_compile" not in words
    assert "syntax error: invalid syntax" in explained(tmp_path, "SyntaxError: invalid syntax\n")[1]


def test_a_warning_about_workers_is_no_cause_of_a_run_without_an_error(tmp_path: Path) -> None:
    assert cause(f"{WORKERS}tick 0     kimg 0.1      loss 3.2\ntick 1     kimg 50.1      loss 3.1\n", tmp_path) is None
    assert cause(WORKERS, tmp_path) is None
    killed = (
        f"{WORKERS}{frames((SCRIPT, 'main', 'next(loader)'))}RuntimeError: DataLoader timed out after 300 seconds\n"
    )
    assert cause(killed, tmp_path) == "log_loader_timed_out"


@pytest.mark.parametrize(
    "line",
    [
        "ERROR:smemwatch:This job has exceeded its memory quota and will be terminated",
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        "=>> PBS: job killed: mem 16803280kb exceeded limit 16777216kb",
    ],
)
def test_a_clusters_memory_watcher(line: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, f"Epoch 1 loss 0.3\n{line}\n")
    assert row == "log_memory_watcher_killed", title
    assert "host memory" in title and "item()" in words


def test_lsf_reports_a_failure_whose_error_is_in_another_file(tmp_path: Path) -> None:
    summary = "Exited with exit code 1.\n\nResource usage summary:\n\n" + "    Run time :   94 sec.\n" * 12
    summary += (
        "\nThe output (if any) is above this job summary.\n\nRead file </home/u/t.err> for stderr output of this job.\n"
    )
    _, title, words = explained(tmp_path, f"epoch 1 loss 0.3\nepoch 2 loss 0.2\n{summary}")
    assert title == "the errors of this job are in /home/u/t.err, not in this log" and "bsub -e" in words
    error = frames((SCRIPT, "main", "x = f(3)")) + "NameError: name 'f' is not defined\n"
    assert "f, which does not exist there" in explained(tmp_path, f"{error}{summary}")[1]
    assert cause(f"epoch 2 loss 0.2\nSuccessfully completed.\n{summary[25:]}", tmp_path) is None


@pytest.mark.parametrize(
    ("code", "error", "title"),
    [
        ("return X[:, k%m].view_as(x0), res", "unsupported operand type(s) for %: 'int' and 'str'", "m is a text, and"),
        ("if step % args.log_every == 0:", "unsupported operand type(s) for %: 'int' and 'str'", "args.log_every is a"),
        ("while cfg['steps'] > step:", "'>' not supported between instances of 'str' and 'int'", "cfg['steps'] is a"),
        ("lr = scale * 0.1", "unsupported operand type(s) for *: 'str' and 'float'", "scale is a text, and"),
        ("x = f(a)", "unsupported operand type(s) for *: 'str' and 'float'", "a number is computed with text"),
        ("x = a * b * c", "unsupported operand type(s) for *: 'float' and 'str'", "a number is computed with text"),
    ],
)
def test_a_setting_that_is_a_text_is_named(code: str, error: str, title: str, tmp_path: Path) -> None:
    row, found, _ = explained(tmp_path, f"{frames((SCRIPT, 'main', code))}TypeError: {error}\n")
    assert row == "log_setting_is_text" and found.startswith(title), found
