"""Rows and exceptions whose meaning depends on the traceback: who called, who raised, which sizes.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read

SCRIPT = "/home/ada/train.py"
CELL = "/tmp/ipykernel_31/16552.py"
INSTALLED = "/opt/env/lib/python3.11/site-packages"


def traceback(error: str, *files: str, prefix: str = "", raised: bool = False) -> str:
    """A traceback through these files; a name without a leading slash is in an installed package.

    `raised`: the innermost line is a `raise`, not a call into compiled code.
    """
    paths = [one if one.startswith("/") else f"{INSTALLED}/{one if '/' in one else f'{one}/core.py'}" for one in files]
    lines = ["Traceback (most recent call last):"]
    for path in paths:
        lines += [
            f'  File "{path}", line 7, in run',
            "    raise problem" if path is paths[-1] and raised else "    call()",
        ]
    return "".join(f"{prefix}{line}\n" for line in (*lines, *error.split("\n")))


def explained(tmp_path: Path, text: str) -> tuple[str, str, str]:
    """The id and title of the first cause, and its reason and fixes as one text."""
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.outcome.problem is not None
    problem = first.outcome.problem
    words = [problem.cause, *(word for fix in problem.fixes for word in (fix.text, *fix.commands))]
    return first.id, problem.title, " | ".join(words)


@pytest.mark.parametrize(
    ("error", "files", "row", "title", "words"),
    [
        # A package refused what the script gave it: its message has the reason, in full.
        ("ValueError: The thing that you passed is not a thing that can be used here, because " + "it is too long " * 9
         + "and therefore you should pass `other=True`", (SCRIPT, "transformers"), "log_exception",
         "train.py:7 in run raised ValueError", "pass `other=True`"),
        ("ValueError: The thing that you passed cannot be used here.", (SCRIPT, "transformers"), "log_exception",
         "train.py:7 in run raised ValueError", "transformers checked what it was given"),
        ("ValueError: 'labels'", (SCRIPT, "transformers"), "log_exception", "raised ValueError", "call path"),
        ("ValueError: my own check of the sizes of things failed", (SCRIPT,), "log_exception", "raised ValueError",
         "call path"),
        # The message begins on the line after the type, or continues there.
        ("ValueError:\n    Some other modules are not where they belong", (SCRIPT, "transformers"), "log_exception",
         "raised ValueError: Some other modules are not where they belong", "Change what the message names"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", (SCRIPT, "transformers"), "log_exception",
         "raised AttributeError", "raised in transformers/"),
        # Without a message, the assertion itself says what was expected, and the package whose it is.
        ("AssertionError", (SCRIPT, "deepspeed"), "log_exception", "raised AssertionError", "raised in deepspeed/"),
        # A notebook's launcher, a DataLoader, or neither.
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.", ("torch", "accelerate", CELL, "torch"),
         "log_cuda_in_fork", "a notebook used CUDA before notebook_launcher", "is_initialized()"),
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
         (SCRIPT, "torch/utils/data/dataloader.py", "/home/ada/data.py", "torch"), "log_cuda_in_fork",
         "a DataLoader worker used CUDA", "on the CPU"),
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.", (SCRIPT, "torch"), "log_cuda_in_fork",
         "CUDA was used before the process forked", "set_start_method"),
        ("RuntimeError: CUDA error: initialization error", ("torch", "accelerate", CELL, "torch"),
         "log_cuda_start_failed", "a notebook used CUDA before notebook_launcher", "mgpu launch"),
        ("RuntimeError: CUDA error: initialization error", (SCRIPT, "torch"), "log_cuda_start_failed",
         "the CUDA driver does not start", "nvidia_uvm"),
        # Two sizes: a maximum length, a number of ranks, or neither.
        ("RuntimeError: The size of tensor a (600) must match the size of tensor b (512) at non-singleton dimension 1",
         (SCRIPT, "transformers", "torch"), "log_tensor_sizes_differ",
         "longer than the model allows: 600 instead of 512", "max_length=512"),
        ("RuntimeError: The size of tensor a (1016) must match the size of tensor b (4064) at dimension 0",
         (SCRIPT, "torch"), "log_tensor_sizes_differ", "different sizes: 1016 and 4064", "pad_to_multiple_of"),
        ("RuntimeError: The size of tensor a (31) must match the size of tensor b (37) at non-singleton dimension 1",
         (SCRIPT, "torch"), "log_tensor_sizes_differ", "two tensors have different sizes: 31 and 37", "padded or cut"),
        # Shapes of a weight that is packed or sharded.
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x4096 and 1x8388608)", (SCRIPT, "peft", "torch"),
         "log_layer_input_size", "a 4-bit weight was used as if it were a plain one", "bitsandbytes"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x4096 and 0x4096)", (SCRIPT, "torch"),
         "log_layer_input_size", "a weight is empty", "gather"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x1024 and 768x2)", (SCRIPT, "torch"),
         "log_layer_input_size", "a layer expects 768 input features, but got 1024", "nn.Linear(1024, 2)"),
        # Who called bitsandbytes.
        ("RuntimeError: CUDA error: an illegal memory access was encountered",
         (SCRIPT, "transformers", "accelerate", "torch", "bitsandbytes"), "log_illegal_memory_access",
         "an optimizer of bitsandbytes crashed", "adamw_torch"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered",
         (SCRIPT, "transformers", "torch", "bitsandbytes"), "log_illegal_memory_access", "a kernel crashed on a GPU",
         "CUDA_LAUNCH_BLOCKING"),
        # A name of accelerate that the script, or transformers, uses without importing it.
        ("NameError: name 'PartialState' is not defined", (SCRIPT,), "log_accelerate_not_imported",
         "the script uses PartialState of accelerate without importing it", "from accelerate import PartialState"),
        ("NameError: name 'PartialState' is not defined", (SCRIPT, "transformers"), "log_accelerate_not_imported",
         "transformers could not import accelerate", "pip install"),
        # A script's own checks are not another package's requirement.
        ("ValueError: this loss requires x > 0 everywhere", (SCRIPT,), "log_exception", "raised ValueError",
         "call path"),
        ("ImportError: frobnicate requires transformers>=4.45 to run", (SCRIPT, "frobnicate"),
         "log_requirement_not_met", "is not met: frobnicate requires", "pip check"),
    ],
)  # fmt: skip
def test_the_traceback_decides(
    tmp_path: Path, error: str, files: tuple[str, ...], row: str, title: str, words: str
) -> None:
    found, said, why = explained(
        tmp_path, traceback(error, *files, raised=" checked " in words or "message names" in words)
    )
    assert found == row and title in said and words in why, (found, said, why)


def test_an_assertion_without_a_message_is_quoted(tmp_path: Path) -> None:
    text = traceback("AssertionError", SCRIPT, "deepspeed").replace(
        "call()\nAss", "assert buffer.grad is not None\nAss"
    )
    _, title, why = explained(tmp_path, text)
    assert title.startswith("probably a mistake in deepspeed: a check of deepspeed on its own state failed")
    assert title.endswith("assert buffer.grad is not None") and "Install another release of deepspeed" in why


def test_work_of_one_rank_is_in_the_headline_even_if_nothing_was_exchanged_before(tmp_path: Path) -> None:
    late = "".join(
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1, OpType=BARRIER, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800655 milliseconds "
        "before timing out.\n"
        for rank in (1, 2, 3)
    )
    bar = "Running tokenizer on dataset (num_proc=16):  30%|###       | 900/2969 [29:59<60:00, 5 examples/s]\n"
    found, title, _ = explained(tmp_path, bar + late)
    assert found == "log_rank_worked_alone" and '("Running tokenizer on dataset")' in title
    found, _, _ = explained(tmp_path, late)
    assert found == "log_exchange_never_worked"


def test_packages_that_do_not_fit_are_not_those_of_a_launcher(tmp_path: Path) -> None:
    error = "TypeError: run() missing 1 required positional argument: 'x'"
    text = traceback(error, SCRIPT, "diffusers") + "step\n" * 600  # caught: the run continued
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is None or first.id != "log_packages_do_not_fit"
    found, _, _ = explained(tmp_path, traceback(error, SCRIPT, "diffusers"))
    assert found == "log_packages_do_not_fit"


TRAINING = "***** Running training *****\n"


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ("{'loss': 344.2, 'grad_norm': nan, 'epoch': 0.0}\n{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.1}\n",
         "log_loss_is_nan"),
        ("{'loss': '0', 'grad_norm': 'nan', 'epoch': '0.1'}\n", "log_loss_is_nan"),
        # Mixed precision skips such a step in the beginning.
        ("{'loss': 2.1, 'grad_norm': nan, 'epoch': 0.0}\n{'loss': 1.9, 'grad_norm': 0.9, 'epoch': 0.1}\n", None),
        ("loss nan guard: on\nstep 3 loss: 1.5\n", None),
    ],
)  # fmt: skip
def test_a_loss_that_is_nan_is_a_cause_and_a_skipped_step_is_not(
    tmp_path: Path, steps: str, wanted: str | None
) -> None:
    path = tmp_path / "run.log"
    path.write_text(TRAINING + steps, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert (first.id if first else None) == wanted


def test_an_exception_is_the_cause_rather_than_a_loss_that_is_nan(tmp_path: Path) -> None:
    text = f"{TRAINING}{{'loss': nan, 'epoch': 0.1}}\n" + traceback("ValueError: bad", SCRIPT)
    assert explained(tmp_path, text)[0] == "log_exception"


def test_a_script_in_a_temporary_folder_fails_by_its_exception(tmp_path: Path) -> None:
    """Generated programs run there too, but torch's prefix shows that this exception ended a rank."""
    raised = traceback("ValueError: no sample with this name", "/tmp/u/train.py", prefix="[rank1]: ")
    stopped = (
        "W1123 17:37:34.113000 15883 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, "
        "shutting down workers\n"
    )
    ended = traceback("torch.distributed.elastic.multiprocessing.api.SignalException: got signal: 15", "torch")
    found, title, _ = explained(tmp_path, raised + stopped + ended)
    assert found == "log_exception" and "train.py:7 in run raised ValueError on rank 1" in title
