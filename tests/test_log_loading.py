"""What loading, saving and devices mean in a log, by the traceback and by what else the log shows of the run.

The tracebacks are written here. Each case also has a sample of its own (tests/checks/test_log.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read, row_matching

ROWS = row_matching.signature_rows()
PACKAGES = "/opt/env/lib/python3.11/site-packages"
HEAD = "Traceback (most recent call last):\n"


def frame(file: str, function: str, code: str = "call()") -> str:
    """A frame in an installed package, or in /w."""
    path = file if file.startswith("/") else f"{PACKAGES}/{file}"
    return f'  File "{path}", line 9, in {function}\n    {code}\n'


def told(tmp_path: Path, text: str) -> tuple[str, str, str]:
    """The id and title of the first cause, and its evidence and fixes as one text."""
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert first is not None and first.outcome.problem is not None
    problem = first.outcome.problem
    words = [word for fix in problem.fixes for word in (fix.text, *fix.commands)]
    return first.id, problem.title, " | ".join([str(problem.evidence.get("line", "")), *words])


def test_the_message_counts_and_not_the_line_of_code_that_made_it(tmp_path: Path) -> None:
    code = frame("transformers/trainer.py", "train", 'raise ValueError(f"Can\'t find a valid checkpoint at {folder}")')
    found, title, rest = told(tmp_path, f"{HEAD}{code}ValueError: Can't find a valid checkpoint at out/c-5\n")
    assert (found, title) == (
        "log_checkpoint_to_resume_missing",
        "there is no complete checkpoint to resume from in out/c-5",
    )
    assert "{folder}" not in rest and "ls -la out/c-5" in rest


MISSING = "RuntimeError: Missing key in checkpoint state_dict: {}.\n"
NO_BACKEND = "RuntimeError: No backend type associated with device type cpu\n"
EMPTY = "RuntimeError: 'weight' must be 2-D\n"
TWO = (
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!\n"
)


@pytest.mark.parametrize(
    ("text", "found", "title", "fix"),
    [
        # Without any circumstance a row keeps its own meaning.
        (HEAD + frame("/w/train.py", "main") + MISSING.format("model.layers.0.attention.wq.weight"),
         "log_checkpoint_key_missing", "no entry model.layers.0.attention.wq.weight", "allow_partial_load"),
        (HEAD + frame("/w/train.py", "main") + NO_BACKEND, "log_backend_missing",
         "a collective got tensors that the group's backend does not support", "cpu:gloo,cuda:nccl"),
        (HEAD + frame("/w/train.py", "main") + EMPTY, "log_weights_lost_to_zero3", "weights are empty: ZeRO-3 or FSDP",
         "GatheredParameters"),
        (HEAD + frame("/w/train.py", "main") + TWO, "log_tensors_on_several_devices",
         "the model and its input are on different devices", "accelerator.device"),
        # The report of all ranks is not the cause; its frames still say who loads what.
        (HEAD + frame("/w/manager.py", "load") + "torch.distributed.checkpoint.api.CheckpointException: "
         "CheckpointException ranks:dict_keys([7])\nTraceback (most recent call last): (RANK 7)\n"
         + frame("torch/distributed/checkpoint/default_planner.py", "create_local_plan")
         + MISSING.format("mlp.experts.9.w1"), "log_checkpoint_key_missing", "probably it was saved incompletely",
         "Count the experts"),
        (HEAD + frame("/w/state_dict_adapter.py", "from_hf") + MISSING.format("mlp.experts.9.w1"),
         "log_checkpoint_key_missing", "the framework names experts otherwise", "Upgrade the framework"),
        (HEAD + frame("/w/train.py", "main") + "FileNotFoundError: [Errno 2] No such file or directory: "
         "'out/c-5/pytorch_model_fsdp_0/.metadata'\n", "log_checkpoint_metadata_missing", "its .metadata is missing",
         "the checkpoint before it"),
        # An optimizer's state of other ranks: one size is a multiple of the other, but for padding.
        (HEAD + frame("torch/optim/adamw.py", "step")
         + "RuntimeError: The size of tensor a (56124554) must match the size of tensor b (14031139) at dimension 0\n",
         "log_tensor_sizes_differ", "sharded for another number of ranks: 14031139 elements and 56124554, 4 times",
         "number of ranks that wrote"),
        (HEAD + frame("/w/train.py", "embed")
         + "RuntimeError: The size of tensor a (56124554) must match the size of tensor b (14031139) at dimension 0\n",
         "log_tensor_sizes_differ", "two tensors have different sizes", "padded or cut"),
        (HEAD + frame("torch/utils/checkpoint.py", "recompute_fn") + frame("/w/model.py", "forward")
         + "RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor\n",
         "log_tensor_kinds_mixed", "activation checkpointing ran a layer again", "reshard_after_forward"),
        (HEAD + frame("transformer_engine/pytorch/optimizers/fused_adam.py", "set_scaled_state",
                      "assert unscaled_state.dtype == torch.int16") + "AssertionError\n", "log_framework_failed",
         "a check of transformer-engine on its own state failed", "another release"),
        # The exchange that padded batches break is named by accelerate, after torch's own words.
        (HEAD + frame("accelerate/utils/operations.py", "concatenate")
         + "RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 211 but got size 187\n\n"
         + "During handling of the above exception, another exception occurred:\n\n" + HEAD
         + frame("accelerate/data_loader.py", "_fetch_batches")
         + "RuntimeError: You can't use batches of different size with `dispatch_batches=True` or when using an "
         "`IterableDataset`.\n", "log_batches_of_different_size", "rank 0 reads the data for all ranks",
         "dispatch_batches=False"),
    ],
)  # fmt: skip
def test_the_same_message_means_another_cause_elsewhere(
    tmp_path: Path, text: str, found: str, title: str, fix: str
) -> None:
    first, said, rest = told(tmp_path, text)
    assert first == found
    assert title in said
    if fix == "padded or cut":
        assert "times" not in said
    else:
        assert fix in rest


def test_a_warning_about_fp32_is_not_the_error_of_flash_attention() -> None:
    reader = row_matching.Signatures(ROWS)
    warning = "Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current dype in Q is"
    assert reader.match_text(warning) == ("log_attention_dtype_warning",)  # noise
    assert reader.match_text("RuntimeError: FlashAttention only support fp16 and bf16 data type") == (
        "log_types_differ",
    )
