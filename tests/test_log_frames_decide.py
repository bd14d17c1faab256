"""Messages of which the frames, the names in a line or the order of the lines decide what they mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_log_callers import MODULE, frames
from .test_log_meanings import explained
from .test_log_versions import SCRIPT

MAIN = (SCRIPT, "main", "runner.train()")
NETS = "/home/ada/nets.py"
CONV = ("torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(")
LINEAR = ("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")
NO_ARRAYS = "ValueError: need at least one array to concatenate\n"
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
LEAF = (
    'RuntimeError: !grad_accumulator_.expired() INTERNAL ASSERT FAILED at "saved_variable.cpp":216, please report a '
    "bug to PyTorch. No grad accumulator for a saved leaf\n"
)


@pytest.mark.parametrize(
    ("calls", "error", "title"),
    [
        ([MAIN, ("mmengine/dataset/base_dataset.py", "_serialize_data", "data_bytes = np.concatenate(data_list)"),
          ("<__array_function__ internals>", "concatenate", "")], NO_ARRAYS, "the dataset is empty: none of its annot"),
        ([(SCRIPT, "main", "x = np.concatenate(rows)")], NO_ARRAYS, "rows is empty"),
        ([MAIN, ("deepspeed/utils/tensor_fragment.py", "get_hp_fragment_mapping", "t = flat.narrow(0, start, numel)")],
         "RuntimeError: start (0) + length (80) exceeds dimension size (40).\n",
         "DeepSpeed's partitions do not fit the parameters: one of 80 elements is taken from a part of 40"),
        ([(SCRIPT, "main", "y = x.narrow(0, 0, 80)")],
         "RuntimeError: start (0) + length (80) exceeds dimension size (40).\n", "80 elements from 0 on are cut"),
        ([MAIN, ("mamba_ssm/ops/selective_scan.py", "backward", "x, = ctx.saved_tensors")], LEAF,
         "a parameter that a function of its own saved for the backward pass was replaced"),
        ([MAIN, ("mmcv/ops/nms.py", "forward", "inds = ext_module.nms(")], NO_KERNEL,
         "the compiled code of mmcv (nms) has no kernels for this GPU"),
        ([MAIN, ("bitsandbytes/functional.py", "quantize", "lib.cquantize(")], NO_KERNEL,
         "the compiled code of bitsandbytes has no kernels for this GPU"),
        ([(SCRIPT, "main", "y = x.cuda() + 1")], NO_KERNEL, "the installed torch, or an extension, has no kernels"),
        ([(SCRIPT, "main", "out = model(x)"), MODULE, (NETS, "forward", "h = self.stem(x)"), MODULE, CONV],
         "RuntimeError: Input type (double) and bias type (c10::BFloat16) should be the same\n",
         "self.stem has bf16 weights and gets an input in fp64 (nets.py:7 in forward)"),
        ([(SCRIPT, "main", "out = model(x)"), MODULE, (NETS, "forward", "h = self.proj(x)"), MODULE, LINEAR],
         "RuntimeError: mat1 and mat2 must have the same dtype, but got BFloat16 and Float\n",
         "self.proj has fp32 weights and gets an input in bf16 (nets.py:7 in forward)"),
        ([(SCRIPT, "main", "y = a @ b")],
         "RuntimeError: mat1 and mat2 must have the same dtype, but got BFloat16 and Float\n",
         "two factors of a product"),
        ([(SCRIPT, "main", "loader = make()"), ("datasets/x.py", "__getitem__", "t = apply_chat_template(m, tools)"),
          ("transformers/utils/chat_template_utils.py", "render", "raise ValueError(")],
         "ValueError: Tools should either be a JSON schema, or a callable function with type hints and a docstring "
         "suitable for auto-conversion to a schema.\n", "the tools of a sample are neither dicts nor functions"),
        ([("verl/models/patch.py", "apply", "from transformers.models.llama import LlamaFroCausalLM")],
         "ImportError: cannot import name 'LlamaFroCausalLM' from 'transformers.models.llama' (x.py)\n",
         "the name LlamaFroCausalLM is misspelled: probably LlamaForCausalLM is meant"),
        ([("verl/models/patch.py", "apply", "from transformers.models.llama import LlamaFooCausalLM")],
         "ImportError: cannot import name 'LlamaFooCausalLM' from 'transformers.models.llama' (x.py)\n",
         "the installed verl and transformers do not fit"),
    ],
)  # fmt: skip
def test_whose_line_it_was(calls: list[tuple[str, str, str]], error: str, title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, f"{frames(*calls)}{error}")
    assert found.startswith(title), found


OOM = "DESKTOP-356K2N7:1:2 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"
TIMEOUT = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1310, NumelOut=1310, Timeout(ms)=600000) ran for 600081 "
    "milliseconds before timing out.\n"
)
LOST_OPTION = "run.sh: line 45: --disable_tqdm: command not found\n"
BUSY = "Worker[rank=5]: model_to_cpu/move_{done} after {seconds}.03s ...\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (OOM, "NCCL could not allocate memory that two GPUs share: probably the limits of WSL2"),
        (OOM.replace("DESKTOP-356K2N7", "gpu7"), "NCCL could not allocate its buffers: a GPU's memory is full"),
        # What the shell says after the program had failed is about the next command.
        (TIMEOUT.format(rank=0) + TIMEOUT.format(rank=1) + LOST_OPTION, "the first exchange never worked"),
        (LOST_OPTION + "Traceback (most recent call last):\nOSError: no\n", "the shell runs a part of a command"),
        # What took longer than the others waited.
        (BUSY.format(done="done", seconds=5133) + TIMEOUT.format(rank=3), 'ranks waited in BROADCAST until the timeout '
         'of 600 s, while rank 5 was still busy ("Worker[rank=5]: model_to_cpu/move") for 5,133 s'),
        (BUSY.format(done="done", seconds=90) + TIMEOUT.format(rank=3), "a rank waited for the others in BROADCAST"),
        ("train.py: error: argument --fp8: ignored explicit argument 'false'\n",
         "--fp8 is a switch that takes no value, and it got one: 'false'"),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 7.12 GB, other allocations: 10.73 GB, max allowed: "
         "18.13 GB). Tried to allocate 594.00 MB on private pool.\n", "the memory of this Mac's GPU is full"),
    ],
)  # fmt: skip
def test_what_stands_beside_it(text: str, title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, text)
    assert found.startswith(title), found
