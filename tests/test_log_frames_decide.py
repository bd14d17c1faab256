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
        ([(NETS, "__init__", "self.defautlts.update(base.defaults)")],
         "AttributeError: 'SAM' object has no attribute 'defautlts'\n",
         "SAM has no attribute defautlts, which nets.py:7 in __init__ reads: probably defaults is meant"),
        ([(NETS, "sample", "decoded = self.vae.decode(z)")],
         "AttributeError: 'MyVAE' object has no attribute 'decode'\n", "MyVAE has no attribute decode, which nets"),
        ([("sglang/quant.py", "load", "from torchao.quantization import PerRow")],
         "ImportError: cannot import name 'PerRow' from 'torchao.quantization' (x.py)\n", "the installed sglang and"),
        ([(NETS, "__init__", "self.defaults.update(base.options)")],
         "AttributeError: 'SAM' object has no attribute 'defaults'\n",
         "SAM has no attribute defaults, which nets.py:7 in __init__ reads"),
        ([MAIN, ("hydra/core/global_hydra.py", "initialize", "raise ValueError(")],
         "ValueError: GlobalHydra is already initialized, call GlobalHydra.instance().clear() if you want to "
         "re-initialize\n", "hydra.initialize() is called a second time in one process"),
        ([("verl/models/patch.py", "apply", "from transformers.models.llama import LlamaFooCausalLM")],
         "ImportError: cannot import name 'LlamaFooCausalLM' from 'transformers.models.llama' (x.py)\n",
         "the installed verl and transformers do not fit"),
    ],
)  # fmt: skip
def test_whose_line_it_was(calls: list[tuple[str, str, str]], error: str, title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, f"{frames(*calls)}{error}")
    assert found.startswith(title), found


DEVICES = "RuntimeError: Expected all tensors to be on the same device, but "
FOUND = (
    f"{DEVICES}found at least two devices, {{}} and {{}}! (when checking argument for argument {{}} in method {{}})\n"
)
GOT = f"{DEVICES}got {{}} is on {{}}, different from other tensors on {{}} (when checking argument in method {{}})\n"
RNN = "RuntimeError: Input and {} tensors are not at the same device, found input tensor at {} and {} tensor at {}\n"
FC = [(SCRIPT, "main", "out = model(x)"), MODULE, (NETS, "forward", "h = self.fc(x)"), MODULE, LINEAR]
TABLE = [*FC[:-1], ("torch/nn/functional.py", "embedding", "return torch.embedding(weight, input)")]
LOSS = [(SCRIPT, "main", "loss = ce(out, y)"), ("torch/nn/functional.py", "cross_entropy", "return nll()")]
LSTM = [*FC[:2], (NETS, "forward", "h = self.lstm(x)"), ("torch/nn/modules/rnn.py", "forward", "result = _VF.lstm(")]


@pytest.mark.parametrize(
    ("calls", "error", "title"),
    [
        (FC, FOUND.format("cuda:0", "cpu", "mat1", "wrapper_CUDA_addmm"), "the input of self.fc is on the CPU"),
        (FC, FOUND.format("cpu", "cuda:0", "mat1", "wrapper_CUDA_addmm"), "the weights of self.fc are on the CPU"),
        (FC, GOT.format("mat1", "cpu", "cuda:0", "wrapper_CUDA_addmm"), "the input of self.fc is on the CPU"),
        (FC, GOT.format("mat2", "cpu", "cuda:0", "wrapper_CUDA_mm"), "the weights of self.fc are on the CPU"),
        (TABLE, FOUND.format("cuda:0", "cpu", "index", "wrapper_CUDA__index_select"), "the input of self.fc is on the"),
        (LOSS, FOUND.format("cuda:0", "cpu", "target", "wrapper_CUDA_nll_loss_forward"),
         "the labels are on the CPU, and the predictions on the GPU (train.py:7 in main)"),
        (LOSS, FOUND.format("cuda:0", "cpu", "weight", "wrapper_CUDA_nll_loss_forward"), "the class weights are on"),
        (LSTM, RNN.format("parameter", "cuda:0", "parameter", "cpu"), "the weights of self.lstm are on the CPU"),
        (LSTM, RNN.format("hidden", "cuda:0", "hidden", "cpu"), "the hidden state is on the CPU, and the input on the"),
        # No layer of torch: a product in the script itself. Two GPUs: the model was split or copied.
        ([(SCRIPT, "main", "y = a @ b")], FOUND.format("cuda:0", "cpu", "mat2", "wrapper_CUDA_mm"), "train.py:7"),
        (FC, FOUND.format("cuda:0", "cuda:1", "mat1", "wrapper_CUDA_addmm"), "the model and its"),
        (FC, f"{DEVICES}found at least two devices, cuda:0 and cpu!\n", "the model and its"),
    ],
)  # fmt: skip
def test_which_tensor_is_on_the_wrong_device(
    calls: list[tuple[str, str, str]], error: str, title: str, tmp_path: Path
) -> None:
    _, found, _ = explained(tmp_path, f"{frames(*calls)}{error}")
    assert found.startswith(title), found


OOM = "DESKTOP-356K2N7:1:2 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"
TIMEOUT = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1310, NumelOut=1310, Timeout(ms)=600000) ran for 600081 "
    "milliseconds before timing out.\n"
)
IN_PLACE = (
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
)
DDP = "INFO: Reducer buckets have been rebuilt in this iteration.\n"
LOST_OPTION = "run.sh: line 45: --disable_tqdm: command not found\n"
BUSY = "Worker[rank=5]: model_to_cpu/move_{done} after {seconds}.03s ...\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (OOM, "NCCL could not allocate memory that two GPUs share: probably the limits of WSL2"),
        (f"{IN_PLACE}[torch.LongTensor [1, 20]] is at version 4; expected version 3 instead.\n",
         "a tensor that the backward pass needs was modified"),
        (OOM.replace("DESKTOP-356K2N7", "gpu7"), "NCCL could not allocate its buffers: a GPU's memory is full"),
        # What the shell says after the program had failed is about the next command.
        (TIMEOUT.format(rank=0) + TIMEOUT.format(rank=1) + LOST_OPTION, "the first exchange never worked"),
        (LOST_OPTION + "Traceback (most recent call last):\nOSError: no\n", "the shell runs a part of a command"),
        # What took longer than the others waited.
        (BUSY.format(done="done", seconds=5133) + TIMEOUT.format(rank=3), 'ranks waited in BROADCAST until the timeout '
         'of 600 s, while rank 5 was still busy ("Worker[rank=5]: model_to_cpu/move") for 5,133 s'),
        (BUSY.format(done="done", seconds=90) + TIMEOUT.format(rank=3), "a rank waited for the others in BROADCAST"),
        ("Tesla P100-PCIE-16GB with CUDA capability sm_60 is not compatible with the current PyTorch installation.\n"
         + NO_KERNEL, "the installed torch has no kernels for this GPU: Tesla P100-PCIE-16GB (sm_60)"),
        (f"{IN_PLACE}[torch.cuda.FloatTensor [1, 7, 20]], which is output 0 of torch::autograd::CopySlices, is at "
         "version 7; expected version 0 instead.\n", "a tensor was written piece by piece (x[:, i] = ...)"),
        (f"{DDP}{IN_PLACE}[torch.cuda.LongTensor [1, 512]] is at version 4; expected version 3 instead.\n",
         "the model was probably called twice before backward"),
        ("train.py: error: argument --fp8: ignored explicit argument 'false'\n",
         "--fp8 is a switch that takes no value, and it got one: 'false'"),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 7.12 GB, other allocations: 10.73 GB, max allowed: "
         "18.13 GB). Tried to allocate 594.00 MB on private pool.\n", "the memory of this Mac's GPU is full"),
    ],
)  # fmt: skip
def test_what_stands_beside_it(text: str, title: str, tmp_path: Path) -> None:
    _, found, _ = explained(tmp_path, text)
    assert found.startswith(title), found
