"""What do rows of runs on several ranks mean in a script of one process, in a notebook, on Windows or on a Mac?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

SCHEDULER = ("torch/optim/lr_scheduler.py", "get_lr", "raise ValueError(")
OF_ACCELERATE = ("accelerate/scheduler.py", "step", "self.scheduler.step()")
SCALER = ("torch/cuda/amp/grad_scaler.py", "unscale_", "raise RuntimeError(")
GRADS = ("torch/autograd/__init__.py", "_make_grads", "raise RuntimeError(")
TRAINER = ("transformers/trainer.py", "training_step", "loss.backward()")
ITER = ("torch/_tensor.py", "__iter__", "raise TypeError(text)")
SAMPLER = ("torch/utils/data/sampler.py", "__init__", "raise ValueError(")
PIL = ("PIL/Image.py", "open", "raise UnidentifiedImageError(msg)")
ADAM = ("torch/optim/adam.py", "_single_tensor_adam", "assert not step_t.is_cuda")
COLLATE = ("torch/utils/data/_utils/collate.py", "default_collate", "return torch.stack(batch, 0)")
STARTED = ("/usr/lib/python3.11/subprocess.py", "_execute_child", "raise child_exception_type(number)")
BEST = ("transformers/trainer.py", "_determine_best_metric", "value = metrics[name]")
ROWS = ("datasets/formatting/formatting.py", "_check_valid_index_key", "raise IndexError(text)")
COMPILED = ("torch/_inductor/async_compile.py", "wait", "kernel = result.result()")
IMPORTED = ("torch/__init__.py", "<module>", "from torch._C import *")
POOL = (
    "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the "
    "future was running or pending."
)
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: "
RAN_OUT = "ValueError: Tried to step 1002 times. The specified number of total steps is 1000"
TWICE = "RuntimeError: unscale_() has already been called on this optimizer since the last update()."
NOT_SCALAR = "RuntimeError: grad can be implicitly created only for scalar outputs"
EMPTY = "ValueError: num_samples should be a positive integer value, but got num_samples=0"
STACK = "RuntimeError: stack expects each tensor to be equal size, but got [3, 64, 64] at entry 0 and [3, 32, 32] at entry 4"  # noqa: E501


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words", "never"),
    [
        ("scheduler.step()", (SCHEDULER,), RAN_OUT, "stepped 1002 times", "steps_per_epoch=len(loader)", "prepare"),
        (
            "scheduler.step()",
            (OF_ACCELERATE, SCHEDULER),
            RAN_OUT,
            "stepped 1002 times",
            "once per rank",
            "steps_per_epoch",
        ),
        ("scaler.unscale_(opt)", (SCALER,), TWICE, "without the scaler's update()", "scaler.update()", "accelerat"),
        (
            "trainer.train()",
            (TRAINER, SCALER),
            TWICE,
            "unscaled or applied twice in one step",
            "accelerat",
            "With several optim",
        ),
        (
            "loss.backward()",
            (GRADS,),
            NOT_SCALAR,
            "not a single number (fit.py:7 in main)",
            "ones_like",
            "Start one process",
        ),
        (
            "trainer.train()",
            (TRAINER, GRADS),
            NOT_SCALAR,
            "a loss that is not a single number",
            "one process per GPU",
            "ones_like",
        ),
        (
            "for x in y.squeeze():",
            (ITER,),
            "TypeError: iteration over a 0-d tensor",
            "a loop goes over a tensor",
            "squeeze(-1)",
            "return statement",
        ),
        (
            "loss, out = run(x)",
            (ITER,),
            "TypeError: iteration over a 0-d tensor",
            "code unpacks or loops",
            "return statement",
            "squeeze",
        ),
        (
            "loader = DataLoader(data, shuffle=True)",
            (SAMPLER,),
            EMPTY,
            "the dataset is empty: there are no samples",
            "len(dataset)",
            "rank",
        ),
        (
            "n = len(stream)",
            (),
            "TypeError: object of type 'IterableDataset' has no len()",
            "asks for the length of a stream",
            "zip(range",
            "TrainingArguments",
        ),
        (
            "image = Image.open(io.BytesIO(answer))",
            (PIL,),
            "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f>",
            "bytes that should be an image",
            "content-type",
            "data file",
        ),
        (
            "image = Image.open(path)",
            (PIL,),
            "PIL.UnidentifiedImageError: cannot identify image file '/d/a.jpg'",
            "a file that should be an image",
            "Git LFS",
            "damaged: an",
        ),
        (
            "image.load()",
            (),
            "OSError: image file is truncated (23 bytes not processed)",
            "a data file is damaged",
            "cut short",
            "Git LFS",
        ),
        (
            "x = torch.stack(parts)",
            (),
            STACK,
            "tensors of different sizes are stacked: [3, 64, 64]",
            "torch.cat",
            "collate",
        ),
        ("for x in loader:", (COLLATE,), STACK, "cannot be stacked into a batch", "Resize", "torch.cat"),
        (
            "f = open(path)",
            (),
            "OSError: [Errno 24] Too many open files: 'a.txt'",
            "at a file that the script opens",
            "lsof",
            "share tensors",
        ),
        (
            "x = next(loader)",
            (),
            "RuntimeError: received 0 items of ancdata",
            "reached its limit on open files",
            "set_sharing_strategy",
            "lsof",
        ),
        (
            "opt.step()",
            (ADAM,),
            "AssertionError: If capturable=False, state_steps should not be CUDA tensors.",
            "bug of torch 1.12.0",
            "capturable",
            "FSDP",
        ),
        (
            "best = metrics['eval_acc']",
            (),
            "KeyError: 'eval_acc'",
            "a result of an evaluation that is not there",
            "keys()",
            "metric_for_best_model",
        ),
        (
            "trainer.train()",
            (BEST,),
            "KeyError: 'eval_acc'",
            "the metric that selects the best checkpoint",
            "compute_metrics",
            "keys()",
        ),
        (
            "first = dataset[0]",
            (ROWS,),
            "IndexError: Invalid key: 0 is out of bounds for size 0",
            "the dataset has no rows (fit.py:7 in main)",
            "print(dataset)",
            "Trainer",
        ),
        (
            "trainer.train()",
            (BEST, ROWS),
            "IndexError: Invalid key: 0 is out of bounds for size 0",
            "no column left",
            "Trainer removes",
            "print(dataset)",
        ),
        (
            "x = [one.result() for one in waiting]",
            (),
            POOL,
            "a pool that the script uses",
            "max_workers=2",
            "torch.compile",
        ),
        (
            "y = net(x)",
            (COMPILED,),
            POOL,
            "a worker process of a pool",
            "torch.compile",
            "max_workers=2",
        ),
        (
            "import cv2",
            (),
            "ImportError: DLL load failed while importing cv2: The specified module could not be found.",
            "the compiled module cv2, or a library",
            "--no-deps opencv-python",
            "Reinstall torch",
        ),
        (
            "import torch",
            (IMPORTED,),
            "ImportError: DLL load failed while importing _C: The specified module could not be found.",
            "a library of torch or of an extension",
            "Reinstall torch",
            "--no-deps",
        ),
        # Paths of one machine, a notebook's service, Windows and macOS.
        ("f = open(path)", (), MISSING + "'/data/a.bin'", "does not exist: /data/a.bin", "namei", "srun"),
        (
            "f = open(path)",
            (),
            MISSING + "'/content/drive/MyDrive/a.csv'",
            "a file of Google Drive",
            "drive.mount",
            "srun",
        ),
        ("f = open(path)", (), MISSING + "'../input/set/a.csv'", "a file of a Kaggle dataset", "Add Input", "srun"),
        ("f = open(path)", (), MISSING + r"'C:\\data\\a.txt'", "does not exist: C:", "raw string", "srun"),
        (
            "f = open(path)",
            (),
            "PermissionError: [Errno 13] Permission denied: 'D:/data'",
            "Windows refuses to open D:/data",
            "isdir",
            "ls -ld",
        ),
        (
            "f = open(path)",
            (),
            "PermissionError: [Errno 13] Permission denied: '/data/a'",
            "this user cannot open /data/a",
            "ls -ld",
            "Windows",
        ),
        (
            "run(['./go.sh'])",
            (STARTED,),
            "PermissionError: [Errno 13] Permission denied: './go.sh'",
            "the program ./go.sh may not be",
            "chmod +x",
            "container",
        ),
        (
            "os.makedirs('/data/out')",
            (),
            "OSError: [Errno 30] Read-only file system: '/data'",
            "at the top of the file system",
            "macOS",
            "findmnt",
        ),
        (
            "f = open('/kaggle/input/a', 'w')",
            (),
            "OSError: [Errno 30] Read-only file system: '/kaggle/input/a'",
            "/kaggle/input is read-only",
            "/kaggle/working",
            "findmnt",
        ),
        (
            "f = open('/data/out/a', 'w')",
            (),
            "OSError: [Errno 30] Read-only file system: '/data/out/a'",
            "mounted read-only",
            "findmnt",
            "macOS",
        ),
    ],
)
def test_one_process_gets_its_own_reason(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, never: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)
    assert never not in f"{found} {text}", (found, text)


@pytest.mark.parametrize(("error", "words"), [(EMPTY, "at least on one rank"), (MISSING + "'/data/a.bin'", "srun")])
def test_several_ranks_keep_theirs(error: str, words: str, tmp_path: Path) -> None:
    trace = frames((SCRIPT, "main", "x = read(path)"), prefix="[rank1]: ")
    _, found, text = explained(tmp_path, f"{trace}[rank1]: {error}\n")
    assert words in f"{found} {text}"
