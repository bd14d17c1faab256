"""What a log says of full memory: the numbers of torch's message, whose memory it is, and what the run did last."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import Log

gpu: Any = importlib.import_module("mgpu.checks.log._gpu_memory")

pytestmark = pytest.mark.quick

_FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 79.15 GiB of "
_FREE = "which 0.50 GiB is free. "
_OWN = (
    "Including non-PyTorch memory, this process has 60.00 GiB memory in use. Of the allocated memory 58.00 GiB is "
    "allocated by PyTorch, and 0.90 GiB is reserved by PyTorch but unallocated."
)


def message(tried: str = "1.16 GiB", processes: str = "", own: str = _OWN) -> str:
    return f"{_FULL.format(tried)}{_FREE}{processes}{own}"


def read_log(folder: Path, text: str) -> Log:
    path = folder / "run.log"
    path.write_text(text + "\n", "utf-8")
    return read.read_logs([path])


def title_of(folder: Path, text: str) -> str:
    first = root_cause.find_cause(read_log(folder, text), None).first
    assert first is not None and first.outcome.problem is not None
    return first.outcome.problem.title


def test_numbers_are_read_from_both_forms_of_the_message() -> None:
    new = gpu.read_numbers(message(processes="Process 7 has 414.00 MiB memory in use. "))
    assert (new.tried, new.total, new.free, new.own, new.allocated, new.unallocated) == (1.16, 79.15, 0.5, 60, 58, 0.9)
    assert [(one.pid, one.held) for one in new.processes] == [("7", 414 / 1024)]
    old = gpu.read_numbers(
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 24.00 GiB total capacity; 20.00 GiB already "
        "allocated; 11.00 MiB free; 22.50 GiB reserved in total by PyTorch)"
    )
    assert (old.total, old.free, old.allocated, old.unallocated) == (24, 11 / 1024, 20, 2.5)
    nothing = gpu.read_numbers("RuntimeError: CUDA error: out of memory")
    assert set(nothing) == {None, ()}
    graphs = gpu.read_numbers("20.00 GiB allowed; Of the allocated memory 9 GiB is allocated by PyTorch, with 3.50 GiB "
                          "allocated in private pools (e.g., CUDA Graphs)")  # fmt: skip
    assert (graphs.allowed, graphs.pools, graphs.allocated) == (20, 3.5, 9)
    assert gpu.read_numbers("Tried to allocate 1.2.3 GiB").tried is None


OLD = (
    "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 40.00 GiB total capacity; {}; 50.00 MiB free; {} reserved "
    "in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("allocated", "reserved", "title"),
    [
        ("2.00 GiB already allocated", "2.10 GiB", "probably other processes hold 37.9 of its 40.00 GiB"),
        ("38.00 GiB already allocated", "38.50 GiB", "a GPU's memory is full"),
        ("25.00 GiB already allocated", "26.00 GiB", "a GPU's memory is full"),
    ],
)
def test_old_messages_show_what_others_hold(allocated: str, reserved: str, title: str, tmp_path: Path) -> None:
    found = title_of(tmp_path, f"RuntimeError: {OLD.format(allocated, reserved)}")
    assert title in found and ("other processes" in found) == ("other processes" in title)


_HIDDEN = (
    "CUDA out of memory. Tried to allocate {tried}. GPU 5 has a total capacity of 44.42 GiB of which 12.88 MiB is "
    "free. {owner} has {own} memory in use. Of the allocated memory {allocated} is allocated by PyTorch, and 10.00 "
    "MiB is reserved by PyTorch but unallocated."
)
_THIS = "Including non-PyTorch memory, this process"


@pytest.mark.parametrize(
    ("tried", "owner", "own", "allocated", "hidden"),
    [
        ("32.00 MiB", _THIS, "21.30 GiB", "20.70 GiB", "23.1 of its 44.42 GiB are not this process's"),
        ("96.00 MiB", "Process 3120", "30.10 GiB", "29.50 GiB", "14.3 of its 44.42 GiB are not this process's"),
        ("32.00 MiB", _THIS, "40.90 GiB", "40.10 GiB", ""),  # 3.5 GiB: the driver, or little
        ("30.00 GiB", _THIS, "21.30 GiB", "20.70 GiB", ""),  # would not fit on the whole GPU either
        ("32.00 MiB", "Process 3120", "30.10 GiB", "9.50 GiB", ""),  # not this process by its size
        ("32.00 MiB", _THIS, "2.30 GiB", "20.70 GiB", ""),  # not all of it is counted
    ],
)
def test_memory_of_processes_that_are_not_listed_is_reported(
    tried: str, owner: str, own: str, allocated: str, hidden: str, tmp_path: Path
) -> None:
    text = _HIDDEN.format(tried=tried, owner=owner, own=own, allocated=allocated)
    frames = 'Traceback (most recent call last):\n  File "fit.py", line 7, in load\n    model.to(device)\n'
    for log in (f"torch.OutOfMemoryError: {text}", f"{frames}torch.cuda.OutOfMemoryError: {text}"):
        found = title_of(tmp_path, log)
        assert hidden in found and ("not this process's" in found) == bool(hidden)


def test_a_limit_is_not_blamed_on_processes_that_are_not_listed(tmp_path: Path) -> None:
    text = _HIDDEN.format(tried="32.00 MiB", owner=_THIS, own="21.30 GiB", allocated="20.70 GiB")
    limited = text.replace("Of the allocated", "21.00 GiB allowed; Of the allocated")
    assert "limit that it set for itself" in title_of(tmp_path, f"torch.OutOfMemoryError: {limited}")


def test_a_size_that_is_not_a_number_is_not_read() -> None:
    read = gpu.read_numbers("Tried to allocate ... GiB. Process 12 has 1.2.3 GiB memory in use. 4.5.6 GiB is reserved")
    assert read.tried is None and read.processes == ()


@pytest.mark.parametrize(
    ("processes", "own", "found"),
    [
        ("Process 441650 has 70.51 GiB memory in use. Process 449657 has 1022.00 MiB memory in use. ",
         "Of the allocated memory 594.01 MiB is allocated by PyTorch, and 5.99 MiB is reserved by PyTorch but "
         "unallocated.", "another process (pid 441650) uses 70.51 GiB of its 79.15 GiB, this one 1022.00 MiB"),
        ("Process 9 has 1022.00 MiB memory in use. Process 8 has 70.51 GiB memory in use. ",
         "Of the allocated memory 69.00 GiB is allocated by PyTorch, and 0.60 GiB is reserved by PyTorch but "
         "unallocated.", "almost only with this process's own data"),
        ("Process 12 has 18.00 GiB memory in use. ", _OWN, "another process (pid 12) uses 18.00 GiB"),
        ("".join(f"Process {pid} has 1.19 GiB memory in use. " for pid in range(15)), _OWN,
         "15 other processes, probably the other ranks, hold 17.8 GiB"),
    ],
    ids=("a server under the host's pid", "this process under the host's pid", "another run", "all ranks on one GPU"),
)  # fmt: skip
def test_the_process_that_fills_the_gpu_is_named(tmp_path: Path, processes: str, own: str, found: str) -> None:
    assert found in title_of(tmp_path, message("148.00 MiB", processes, own))


def test_torch_2_1_misspells_capacity(tmp_path: Path) -> None:
    small = "".join(f"Process {pid} has 398.00 MiB memory in use. " for pid in (62201, 62203, 62204))
    text = message("136.00 MiB", f"{small}Process 62200 has 71.98 GiB memory in use. Process 62202 has 398.00 MiB "
                   "memory in use. ", "Of the allocated memory 71.51 GiB is allocated by PyTorch, and 2.30 MiB is "
                   "reserved by PyTorch but unallocated.")  # fmt: skip
    for spelled in (text, text.replace("capacity", "capacty")):
        found = title_of(tmp_path, spelled)
        assert "this process holds 71.98 GiB of its 79.15 GiB" in found and "4 other processes" in found


@pytest.mark.parametrize(
    ("frames", "tried", "found"),
    [
        (("train.py in main", "torch/nn/functional.py in cross_entropy"), "9.00 GiB", "the full logits"),
        (("train.py in main", "torch/nn/functional.py in cross_entropy"), "20.00 MiB", "a GPU's memory is full"),
        (("transformers/models/llama/modeling_llama.py in forward", "torch/nn/modules/linear.py in forward"),
         "3.91 GiB", "the full logits"),
        (("transformers/models/llama/modeling_llama.py in forward",
          "transformers/models/llama/modeling_llama.py in forward", "torch/nn/modules/linear.py in forward"),
         "1.00 GiB", "in the forward pass"),
        (("transformers/models/llama/modeling_llama.py in eager_attention_forward",), "2.00 GiB", "in attention"),
        (("transformers/models/llama/modeling_llama.py in forward",
          "transformers/models/llama/modeling_llama.py in eager_attention_forward"), "20.00 MiB",
         "in the forward pass"),
        (("transformers/trainer.py in training_step", "accelerate/utils/deepspeed.py in backward",
          "deepspeed/runtime/engine.py in _take_model_step", "torch/optim/adamw.py in _init_group"), "1.00 GiB",
         "in the optimizer's step"),
        (("lightning/pytorch/core/module.py in optimizer_step", "torch/optim/adamw.py in step",
          "lightning/pytorch/plugins/precision/precision.py in _wrap_closure", "model.py in forward"), "1.00 GiB",
         "in the forward pass"),
        (("train.py in main", "transformers/modeling_utils.py in from_pretrained",
          "transformers/modeling_utils.py in load_state_dict"), "1.00 GiB", "while the model is loaded"),
        (("train.py in main", "train.py in load_state_dict"), "1.00 GiB", "while a checkpoint is loaded"),
        (("train.py in main", "model.py in forward", "torch/autograd/function.py in save_for_backward"), "1.00 GiB",
         "in the forward pass"),
    ],
)  # fmt: skip
def test_the_place_names_what_filled_the_gpu(tmp_path: Path, frames: tuple[str, ...], tried: str, found: str) -> None:
    assert found in title_of(tmp_path, gpu.trace(*frames, message=message(tried)))


_KILLED = "E0101 10:00:00.000 1 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 12) of binary: /usr/bin/python"


@pytest.mark.parametrize(
    ("last", "work"),
    [
        ("Loading checkpoint shards:  50%|#####     | 1/2 [00:10<00:10, 10.36s/it]", "load"),
        ("Loading checkpoint shards: 100%|##########| 2/2 [00:20<00:00, 10.36s/it]\nsome warning", "load"),
        ("Running tokenizer on dataset (num_proc=64):  12%|#  | 812/6000 [01:36<00:01, 843.85 examples/s]", "data"),
        ("Running tokenizer on dataset (num_proc=64): 100%|####| 6000/6000 [01:36<00:01, 843.85 examples/s]", None),
        ("Saving model checkpoint to /data/out/checkpoint-500", "save"),
        ("[INFO] [utils.py:781:see_memory_usage] Before creating fp32 partitions", "offload"),
        ("  1%|1         | 116/1155 [7:54:43<67:30:48, 233.93s/it]", "train"),
        ("  0%|          | 1/1155 [7:54:43<67:30:48, 233.93s/it]", None),
        ("***** Running Evaluation *****", "evaluate"),
        ("hello", None),
    ],
)
def test_what_the_run_did_before_it_was_killed(tmp_path: Path, last: str, work: str | None) -> None:
    assert read_log(tmp_path, f"start\n{last}\n{_KILLED}").last_work == work
    assert read_log(tmp_path, f"start\n{last}\nbye").last_work is None


def test_the_work_is_found_on_the_line_of_the_launcher_too(tmp_path: Path) -> None:
    line = "Loading checkpoint shards:  50%|#####| 1/2 [00:10<00:10, 10.36s/it][2023-08-22 11:46:22,908] [INFO] "
    assert read_log(tmp_path, f"{line}[launch.py:315:sigkill_handler] Killing subprocess 3210").last_work == "load"


def test_a_single_process_that_was_killed_after_saving_gathered_nothing(tmp_path: Path) -> None:
    killed = "run.sh: line 10: 4711 Killed                  python main.py --net resnet34"
    title = title_of(tmp_path, f"best acc 70.1\nSaving model checkpoint to out/best\n{killed}")
    assert "full state dict" not in title and "SIGKILL" in title


CALLED = "Traceback (most recent call last):\n"
OWN_FORWARD = f'{CALLED}  File "/home/ada/net.py", line 7, in forward\n    y = self.conv(x)\n'
PACKAGE = '  File "/opt/env/lib/python3.11/site-packages/{}", line 7, in forward\n    call()\n'
LATER = "".join(f"Epoch: [3] [{step}/200] loss: 0.4\n" for step in (41, 42))
YOLO = "Ultralytics YOLOv8.0.137 Python-3.9.17 torch-2.0.1 CUDA:0 (Tesla V100-PCIE-32GB, 32633MiB)\n"
MMDET = "03/28 15:56:25 - mmengine - INFO - Epoch(train) [36][1750/2901]  lr: 2.8728e-03\n"


@pytest.mark.parametrize(
    ("text", "title", "command"),
    [
        (OWN_FORWARD + PACKAGE.format("torch/nn/modules/conv.py"), "the activations of a batch", "loss / 4"),
        (LATER + OWN_FORWARD, "a later step: this batch needs more", "loss.item()"),
        (YOLO + OWN_FORWARD, "a run of Ultralytics", "yolo train data="),
        (MMDET + OWN_FORWARD, "an OpenMMLab package", "--cfg-options train_dataloader.batch_size=1"),
        (OWN_FORWARD + PACKAGE.format("transformers/models/llama/modeling_llama.py"), "the activations of a batch",
         "TrainingArguments"),
    ],
)  # fmt: skip
def test_a_full_gpu_is_explained_in_the_words_of_its_trainer(
    text: str, title: str, command: str, tmp_path: Path
) -> None:
    first = root_cause.find_cause(read_log(tmp_path, text + message("0.10 GiB")), None).first
    problem = first.outcome.problem if first else None
    assert problem is not None
    commands = " | ".join(command for fix in problem.fixes for command in fix.commands)
    assert title in problem.title and command in commands
    assert ("TrainingArguments" in commands) is (command == "TrainingArguments")


CHANGED = (
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.cuda.FloatTensor [64, 1]]{} is at version 2; expected version 1 instead."
)


@pytest.mark.parametrize(
    ("before", "made", "title"),
    [
        ("", ", which is output 0 of TBackward0,", "an optimizer probably changed weights before"),
        ("", ", which is output 0 of PermuteBackward0,", "the output of an operation was changed in place"),
        ("", ", which is output 0 of ReluBackward1,", "the output of an operation was changed in place"),
        ("", "", "a tensor that the backward pass needs was modified before it ran"),
        ("INFO: Reducer buckets have been rebuilt in this iteration.\n", "", "a tensor that the backward pass needs"),
    ],
)
def test_what_was_changed_in_place(before: str, made: str, title: str, tmp_path: Path) -> None:
    first = root_cause.find_cause(read_log(tmp_path, before + CALLED + CHANGED.format(made)), None).first
    problem = first.outcome.problem if first else None
    assert problem is not None
    assert title in problem.title and ("broadcast_buffers" in str(problem.fixes)) is bool(before)


_FILLED = (
    'Traceback (most recent call last):\n  File "/w/fit.py", line 9, in main\n    loss = blend(x, y)\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 23.64 GiB of "
    "which 8.50 MiB is free. Including non-PyTorch memory, this process has 23.55 GiB memory in use. Of the allocated "
    "memory {} is allocated by PyTorch, and 40.00 MiB is reserved by PyTorch but unallocated.\n"
)


@pytest.mark.parametrize(
    ("before", "tried", "allocated", "grew"),
    [
        ("step 7400/20000 loss 0.21\n", "20.00 MiB", "23.10 GiB", True),
        (
            "Training:  40%|####      | 8000/20000 [1:00:00<1:30:00,  2.21it/s, Loss=0.1]\n",
            "2.00 MiB",
            "22.90 GiB",
            True,
        ),
        ("step 3/20000 loss 0.21\n", "20.00 MiB", "23.10 GiB", False),  # early
        ("", "20.00 MiB", "23.10 GiB", False),
        ("step 7400/20000 loss 0.21\n", "1.20 GiB", "22.40 GiB", False),  # a large tensor
        ("step 7400/20000 loss 0.21\n", "20.00 MiB", "14.10 GiB", False),  # of others, or fragmented
        (
            "loading meta-llama/Llama-3.1-8B, vocab_size=128256\nstep 7400/20000 loss 0.21\n",
            "20.00 MiB",
            "23.10 GiB",
            False,
        ),  # longer samples
    ],
)
def test_memory_that_grew_with_the_steps(before: str, tried: str, allocated: str, grew: bool, tmp_path: Path) -> None:
    title = title_of(tmp_path, before + _FILLED.format(tried, allocated))
    assert ("probably it grew in the run" in title) == grew
