"""A driver that refused memory, images that OpenCV could not open, checkpoints of no step, a loss too large at once.

Each kind has a near message in which it must not apply.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import read

from .test_log_callers import frames
from .test_log_meanings import explained

SCRIPT = "/home/ada/fit.py"
TRAINS = (SCRIPT, "main", "out = model(x)")
PARALLEL = ("torch/nn/parallel/data_parallel.py", "forward", "inputs = self.scatter(inputs, kwargs, self.device_ids)")
SCATTERS = ("torch/nn/parallel/comm.py", "scatter", "return tuple(torch._C._scatter(tensor, devices))")
COPIES = ("torch/nn/parallel/replicate.py", "replicate", "copies = _broadcast_coalesced_reshape(params, devices)")
GATHERS = ("torch/nn/parallel/scatter_gather.py", "gather", "res = gather_map(outputs)")
ALONE = ("torch/nn/parallel/data_parallel.py", "forward", "return self.module(*inputs[0], **kwargs[0])")
DRIVER = "RuntimeError: CUDA error: out of memory\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
ALLOCATOR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 1 has a total capacity of 79.15 GiB "
    "of which 0.50 GiB is free.\n"
)
START = "  0%|          | 0/90 [00:00<?, ?it/s]\n"
STEPS = "".join(f"step {at}/90 loss: 1.{at}\n" for at in range(11, 15))
TAKEN = "before DataParallel computed anything"


@pytest.mark.parametrize(
    ("before", "calls", "error", "title"),
    [
        (START, (TRAINS, PARALLEL, SCATTERS), DRIVER, TAKEN),
        ("", (TRAINS, PARALLEL, COPIES), DRIVER, TAKEN),
        # Torch's own allocator had room to open the GPU, and steps that worked used all of them.
        (START, (TRAINS, PARALLEL, SCATTERS), ALLOCATOR, "while DataParallel copies the model and the batch"),
        (STEPS, (TRAINS, PARALLEL, SCATTERS), DRIVER, "while DataParallel copies the model and the batch"),
        ("loss: 0.41\n", (TRAINS, PARALLEL, SCATTERS), DRIVER, "while DataParallel copies the model and the batch"),
        ("", (TRAINS, PARALLEL, GATHERS), ALLOCATOR, "under DataParallel, which gathers all outputs on GPU 0"),
        ("", (TRAINS, ALONE, ("/home/ada/net.py", "forward", "y = self.a(x)")), ALLOCATOR, "in the forward pass"),
    ],
)  # fmt: skip
def test_full_under_data_parallel(
    tmp_path: Path, before: str, calls: tuple[tuple[str, str, str], ...], error: str, title: str
) -> None:
    row, found, _ = explained(tmp_path, before + frames(*calls) + error)
    assert row == "log_gpu_memory_full"
    assert title in found


FORWARD = ((SCRIPT, "main", "loss = net(x)"), ("/home/ada/net.py", "forward", "return x * torch.sigmoid(x)"))
TO_HOST = (
    (SCRIPT, "<module>", "main()"),
    ("torch/nn/modules/module.py", "cpu", "return self._apply(lambda t: t.cpu())"),
    ("torch/nn/modules/module.py", "_apply", "module._apply(fn)"),
)
TO_GPU = (
    (SCRIPT, "<module>", "net.to(device)"),
    ("torch/nn/modules/module.py", "to", "return self._apply(convert)"),
    ("torch/nn/modules/module.py", "_apply", "module._apply(fn)"),
)
HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"
WSL = "Linux 5.15.167.4-microsoft-standard-WSL2\n"
MOVED = "before the model was moved to it"


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        # The clean-up met the same error: where it came up first decides.
        (frames(*FORWARD) + DRIVER + HANDLED + frames(*TO_HOST) + DRIVER, "in the forward pass", MOVED),
        (
            WSL + frames(*FORWARD) + DRIVER + HANDLED + frames(*TO_HOST) + DRIVER,
            "in the forward pass on Windows or in WSL",
            MOVED,
        ),
        (WSL + frames(*FORWARD) + DRIVER, "in the forward pass on Windows or in WSL", MOVED),
        (frames(*TO_HOST) + DRIVER, "a GPU's memory is full", MOVED),
        (WSL + frames(*FORWARD) + ALLOCATOR, "in the forward pass", "WSL"),
        (WSL + frames(*TO_GPU) + DRIVER, MOVED, "WSL"),
        (WSL + frames((SCRIPT, "forward", "x = x.to(device)")) + DRIVER, "a GPU's memory is full", "WSL"),
        # Another error while the first was handled has its own place.
        (frames(*FORWARD) + ALLOCATOR + HANDLED + frames(*TO_GPU) + DRIVER, MOVED, "forward"),
    ],
)
def test_refused_by_the_driver(tmp_path: Path, text: str, has: str, lacks: str) -> None:
    row, found, _ = explained(tmp_path, text)
    assert row == "log_gpu_memory_full"
    assert has in found
    assert lacks not in found


def test_first_traceback_of_a_repeated_error_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(frames(*FORWARD) + DRIVER + HANDLED + frames(*TO_HOST) + DRIVER, "utf-8")
    (one,) = read.read_logs([path]).raised
    assert one.place == "net.py:7 in forward"
    assert one.line == 18


EMPTY = (
    "cv2.error: OpenCV(4.9.0) /io/color.cpp:196: error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'\n"
)
READS = frames((SCRIPT, "main", "x = data[3]"), ("/home/ada/photos.py", "__getitem__", "x = cv2.cvtColor(x, MODE)"))


def unopened(*paths: str) -> str:
    return "".join(
        f"[ WARN:0@{at}.1] global loadsave.cpp:241 findDecoder imread_('{path}'): can't open/read file: check file "
        "path/integrity\n"
        for at, path in enumerate(paths)
    )


@pytest.mark.parametrize(
    ("before", "title", "has", "lacks"),
    [
        (unopened(*(f"/d/val/{at}.jpg" for at in range(12))), "files of the dataset, in /d/val, and warned of it 12",
         "of one folder", "skip it"),
        (STEPS + unopened(*(f"/d/val/{at}.jpg" for at in range(12))), "files of the dataset, in /d/val",
         "such as the validation", "skip it"),
        (unopened(*(f"/d/{at}/a.jpg" for at in range(12))), "could not open files of the dataset, the first is "
                                                            "/d/0/a.jpg", "a path or a copy is wrong", "of one folder"),
        (unopened("/d/val/7.jpg"), "could not open a file of the dataset: /d/val/7.jpg", "It is missing here",
         "of one folder"),
        # Several ranks or loaders can miss the same file.
        (unopened(*["/d/val/7.jpg"] * 12), "could not open a file of the dataset: /d/val/7.jpg", "It is missing here",
         "of one folder"),
        (unopened("/d/val/7.jpg", "/d/val/8.jpg"), "could not open files of the dataset, the first is /d/val/7.jpg",
         "It is missing here", "of one folder"),
        # Without a warning the file was opened, and is damaged, or its name is not in the log.
        ("", "could not read a file of the dataset (error), whose name the message does not have", "damaged",
         "imread() raises nothing"),
    ],
)  # fmt: skip
def test_images_that_could_not_be_opened(tmp_path: Path, before: str, title: str, has: str, lacks: str) -> None:
    row, found, words = explained(tmp_path, before + READS + EMPTY)
    assert row == "log_sample_not_readable"
    assert title in found
    assert has in words
    assert lacks not in words


LOADS = frames(
    (SCRIPT, "main", "load_checkpoint(step)"), ("/home/ada/saving.py", "load_checkpoint", "open(path, 'rb')")
)
AGENT = "2026-03-19 09:32:46,050 - wandb.wandb_agent - INFO - Running runs: ['2l8thknc']\n"


@pytest.mark.parametrize(
    ("before", "path", "title"),
    [
        ("", "/runs/d8/model_-00002.pt", "resumes from a step that no checkpoint can have: /runs/d8/model_-00002.pt"),
        ("", "out/checkpoint--1/model.safetensors", "resumes from a step that no checkpoint can have"),
        ("", "out/step=-1.ckpt", "resumes from a step that no checkpoint can have"),
        ("", "out/step_None.pt", "resumes from a step that no checkpoint can have"),
        (AGENT, "/runs/d8/model_-00002.pt", "a run of a sweep resumes from a step that no checkpoint"),
        # Here the sign separates, or the word is a part of another one.
        ("", "/runs/d8/model-00002.pt", "a file that the script reads does not exist"),
        ("", "/runs/d8/model_00002.pt", "a file that the script reads does not exist"),
        ("", "/runs/d8/model_none.pt", "a file that the script reads does not exist"),
        (AGENT, "/runs/d8/model_00002.pt", "a file that the script reads does not exist"),
    ],
)
def test_checkpoint_of_no_step(tmp_path: Path, before: str, path: str, title: str) -> None:
    missing = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'\n"
    row, found, _ = explained(tmp_path, before + LOADS + missing)
    assert row == "log_file_missing"
    assert title in found


PPL = frames((SCRIPT, "main", '"ppl": math.exp(loss.item()),')) + "OverflowError: math range error\n"


@pytest.mark.parametrize(
    ("text", "title", "has", "lacks"),
    [
        (PPL, "and the log shows no step before it", "initial weights", "probably diverged"),
        # Steps before it had a loss; or what is too large is no loss.
        (STEPS + PPL, "too large for a floating point number", "probably diverged", "initial weights"),
        ("train loss: 6.1, lr: 0.1\n" + PPL, "too large for a floating point number", "probably diverged",
         "initial weights"),
        (PPL.replace("loss.item()", "eval_loss"), "too large for a floating point number", "probably diverged",
         "initial weights"),
        (frames((SCRIPT, "main", "y = math.exp(x)")) + "OverflowError: math range error\n", "a value is too large",
         "exp() fails", "initial weights"),
    ],
)  # fmt: skip
def test_loss_too_large_at_once(tmp_path: Path, text: str, title: str, has: str, lacks: str) -> None:
    row, found, words = explained(tmp_path, text)
    assert row == "log_exception"
    assert title in found
    assert has in words
    assert lacks not in words
