"""What frameworks refuse: a config, a mesh, hooks, a kernel, a value next to its limit; and what is not that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

REGISTRY = (("mmengine/registry/build_functions.py", "build_from_cfg", "raise KeyError("),)
MESH = (("torch/distributed/device_mesh.py", "_init_process_groups", "x = self.mesh.swapdims(-1, dim).reshape("),)
DDP = (("megatron/core/distributed/distributed_data_parallel.py", "disable_forward_pre_hook",
        "assert len(self.remove_forward_pre_hook_handles) == 0, 'x'"),)  # fmt: skip
STACK = (("mmengine/model/utils.py", "stack_batch", "F.pad(tensor, tuple(pad[i].tolist())))"),)
TRITON = (("triton/compiler/compiler.py", "ast_to_ttir", "raise CompilationError(fn.src, node) from e"),)
ZERO = (("deepspeed/runtime/zero/partition_parameters.py", "__exit__", "self.params[0].partition(self.params)"),)
FORWARD = (("deepspeed/runtime/zero/partitioned_param_coordinator.py", "fetch_sub_module", "assert x"),)
LAZY = (("trl/import_utils.py", "_get_module", "raise RuntimeError("),)
NUMPY = ("IndexError: only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean "
         "arrays are valid indices")  # fmt: skip
TORCH = ("IndexError: only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
         "(got {})")  # fmt: skip
NO_TYPE = "KeyError: '`cfg` or `default_args` must contain the key \"type\", but got {}\\nNone'"
IN_USE = "AssertionError: {'id': 3, 'status': 'AVAILABLE', 'ds_numel': 64, 'active_sub_modules': "
HANDLES = "AssertionError: remove_forward_pre_hook_handles is not empty, it is: {CudaGraphManager(): <x at 0x1>}"
PUT = "RuntimeError: Index put requires the source and destination dtypes match"
EMPTY = "RuntimeError: cannot reshape tensor of 0 elements into shape [-1, 0] because the unspecified"
PROCESS = "RuntimeError: create:build/x.ts:89 HCCL function error: "
LINK = "RuntimeError: InnerRunOpApi:csrc/OpParamMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6\n"
OLMO = ("ValueError: The checkpoint you are trying to load has model type `{}` but Transformers does not recognize "
        "this architecture.")  # fmt: skip
PARTS = "RuntimeError: Failed to import {}.trainer.x because of the following error (look up to see its traceback):\n"


def words(code: str, below: tuple[tuple[str, str, str], ...], error: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{frames((SCRIPT, 'main', code), *below)}{error}\n"))


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "fix"),
    [
        ("self.neck = MODELS.build(neck_cfg)", REGISTRY, NO_TYPE.format("{\\'num_levels\\': 4}"),
         "the config dict neck_cfg has no `type`", "original config"),
        ("build()", REGISTRY, NO_TYPE.format("{\\'num_levels\\': 4}"),
         "a dict of the config, which begins with num_levels, has no `type`", "original config"),
        ("epoch = step // self.steps_per_epoch", (), "ZeroDivisionError: integer division or modulo by zero",
         "self.steps_per_epoch is 0: the data has fewer samples", "batch size"),
        ("self.sp_mesh = init_device_mesh(", MESH, EMPTY, "a dimension of the device mesh sp_mesh has the size 0",
         "divisor of the number of GPUs"),
        ("model.disable_forward_pre_hook()", DDP, HANDLES, "hooks on modules that are no longer part of the model: "
         "CudaGraphManager", "overlap_param_gather"),
        ("kernel[grid](x)", TRITON, "triton.compiler.errors.CompilationError: at 9:12:\ndef scale_rows(X, Y):\n    x = "
         "tl.sum(X)\n        ^\nsum() missing 1 required positional argument: 'axis'",
         "Triton could not compile the kernel scale_rows: sum() missing 1", "a release of the package that fits"),
        ("assert boxes.min() >= 0, msg", (), "AssertionError: boxes invalid: max 0.99, min value -2.9999e-08",
         "outside of its range by very little, probably by rounding: -2.9999e-08", "clip"),
        ("check(p)", (), "ValueError: p must be between 0 and 1, got 1.0000001192092896",
         "by rounding: 1.0000001192092896", "clip"),
        ("rows = [x['id'] for x in out if x['kind'] == 1]", (), NUMPY, "a text is used as the index of an array",
         "print(type(x), x)"),
        ("a = batch['x']", (), TORCH.format("str"), "a text is used as the index of a", "dicts"),
        ("i = torch.multinomial(p, n)", (), "RuntimeError: cannot sample n_sample <= 0 samples",
         "multinomial() is asked for no samples", "what was removed"),
        ("batch = stack_batch(x)", STACK, "IndexError: Dimension out of range (expected to be in range of [-3, 2], but "
         "got 3)", "F.pad() works on dimension 3 of a tensor that has 3 dimensions", "padding[: 2 * x.dim()]"),
        ("t[b, i] = score", (), f"{PUT}, got Half for the destination and Float for the source.",
         "values of the type Float are written by an index into a tensor of the type Half", "values.to(x.dtype)"),
        ("model.train(device='auto')", (), "ValueError: Invalid CUDA 'device=auto' requested. Use 'device=cpu'",
         "does not accept device=auto", "'cpu'"),
        ("with gathered(model):", ZERO, f"{IN_USE}{{7}}}}", "GatheredParameters ends while", "hooks off"),
        ("dist.broadcast(x, 0)", (), f"{PROCESS}HcclCommInitRootInfo(numRanks, &rootInfo, rank, &(comm->hcclComm_)), "
         "error code is 2", "could not make its communicator: a pointer is empty", "plog"),
        ("dist.all_reduce(x)", (), f"{LINK}EI0006: [PID: 41] 2025-04-08-18:07:20.444.436 Getting socket times out.",
         "waited for another rank without success", "dst_rank"),
        ("dist.all_reduce(x)", (), "RuntimeError: f:x.cpp:2 OPS function error: HcclBroadcast, error code is 9",
         "waited for another rank without success", "dst_rank"),
        ("m = load()", (), OLMO.format("hf_olmo"), "the package ai2-olmo adds them when it is imported",
         "above the line that loads"),
        ("from trl import GRPOTrainer", LAZY, PARTS.format("trl") + "No module named 'vllm_ascend.distributed.links'",
         "trl cannot be imported: the installed vllm-ascend has no module vllm_ascend.distributed.links",
         "released for each other"),
    ],
)
def test_it_says_what_the_message_means(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, fix: str, tmp_path: Path
) -> None:
    found = words(code, below, error, tmp_path)
    assert title in found
    assert fix in found


@pytest.mark.parametrize(
    ("code", "below", "error", "absent"),
    [
        ("x = MODELS.build(cfg)", REGISTRY, "KeyError: 'Head is not in the model registry'", "has no `type`"),
        ("rate = done / self.seconds", (), "ZeroDivisionError: division by zero", "fewer samples"),
        ("x = x.reshape(-1, 0)", (), EMPTY, "device mesh"),
        ("check()", DDP, "AssertionError: remove_forward_pre_hook_handles is not set", "hooks on modules"),
        ("kernel(x)", (), "pkg.CompilationError: at 9:12:\ndef scale_rows(X):\n    x\nno compiler", "Triton could not"),
        ("kernel(x)", TRITON, "triton.compiler.CompilationError: at 9:12:\ndef scale_rows(X):\n    x", "scale_rows:"),
        ("check(p)", (), "AssertionError: p must be between 0 and 1, got -0.25", "by rounding"),
        ("check(p)", (), "AssertionError: not close within the tolerance: -2.9999e-08", "by rounding"),
        ("check(p)", (), "AssertionError: the step must be within 1 and 10, got 1e-05", "by rounding"),
        ("x = self.rows['a'][i / 2]", (), NUMPY, "a text is used"),
        ("x = a[i / 2]", (), TORCH.format("float"), "a text is used"),
        ("x = a[i / 2]", (), NUMPY, "is None"),
        ("i = torch.multinomial(p, 9)", (), "RuntimeError: cannot sample n_sample > prob_dist.size(-1) samples without "
         "replacement", "no samples"),
        ("x = x.sum(3)", (), "IndexError: Dimension out of range (expected to be in range of [-3, 2], but got 3)",
         "F.pad()"),
        ("x = F.pad(x.transpose(1, 3), p)", (), "IndexError: Dimension out of range (expected to be in range of [-3, "
         "2], but got 3)", "F.pad()"),
        ("y = a @ b", (), "RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float",
         "by an index"),
        ("model.train(device='7')", (), "ValueError: Invalid CUDA 'device=7' requested. Use 'device=cpu'",
         "does not accept"),
        ("loss.backward()", FORWARD, f"{IN_USE}{{7}}}}", "GatheredParameters ends"),
        ("with gathered(model):", ZERO, f"{IN_USE}set()}}", "GatheredParameters ends"),
        ("f(x)", (), "RuntimeError: x.ts:1 NPU function error: call aclnnAdd failed, error code is 2", "communicator"),
        ("f(x)", (), "RuntimeError: f:x.cpp:2 OPS function error: aclnnAdd, error code is 9", "waited for another"),
        ("m = load()", (), OLMO.format("new_model"), "when it is imported"),
        ("import transformers", LAZY, PARTS.format("transformers") + "No module named 'transformers.parts'",
         "transformers cannot be imported: the installed transformers"),
        ("import trl", LAZY, PARTS.format("trl") + "No module named 'torch.parts'", "upgrade trl torch"),
    ],
)
def test_a_similar_message_means_something_else(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, absent: str, tmp_path: Path
) -> None:
    assert absent not in words(code, below, error, tmp_path)
# fmt: on


def test_the_reason_of_a_kernel_is_the_exception_that_it_was_raised_from(tmp_path: Path) -> None:
    inner = frames((SCRIPT, "lookup", "return cache[key]")) + "KeyError: 'scale_rows'\n"
    handled = "\nDuring handling of the above exception, another exception occurred:\n\n"
    visited = frames((SCRIPT, "visit", "return fn(*args)")) + "TypeError: sum() missing 1 required argument: 'axis'\n"
    direct = "\nThe above exception was the direct cause of the following exception:\n\n"
    error = "triton.compiler.CompilationError: at 9:12:\ndef scale_rows(X):\n    x = tl.sum(X)\n"
    text = inner + handled + visited + direct + frames((SCRIPT, "main", "f(x)"), *TRITON) + error
    title = explained(tmp_path, text)[1]
    assert title.startswith("Triton could not compile the kernel scale_rows: TypeError: sum() missing 1 required")


@pytest.mark.parametrize(("call", "found"), [("torch/_ops.py", True), ("torch/storage.py", False)])
def test_an_abort_while_an_extension_is_loaded(call: str, found: bool, tmp_path: Path) -> None:
    text = (
        "[rank0]:Fatal Python error: Aborted\n[rank0]:\n[rank0]:Current thread 0x7f01 (most recent call first):\n"
        f'[rank0]:  File "/opt/env/site-packages/{call}", line 14 in load_library\n'
        '[rank0]:  File "/opt/env/site-packages/fastops/__init__.py", line 3 in <module>\n'
    )
    assert ("compiled extension" in explained(tmp_path, text)[1]) == found
