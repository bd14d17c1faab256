"""Does the remedy fit the value, the limit or the reason that a message names?

The logs are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read
from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

OLD = (
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version {}). Please update\n"
    "RuntimeError: The NVIDIA driver on your system is too old (found version {}). Please update your GPU driver by\n"
)
LSF = "step 40 loss 1.2\n{before}\n{reason}: job killed {by}.\nExited with exit code 130.\n"
HEADS = "RuntimeError: {}FlashAttention {} only supports head dimension {}\n"
ATTENTION = ("flash_attn/flash_attn_interface.py", "_flash_attn_forward", "out = flash_attn_gpu.fwd(")
INIT = ("torch/cuda/__init__.py", "_lazy_init", "raise RuntimeError(")
WORKER = ("torch/utils/data/_utils/worker.py", "_worker_loop", "data = fetcher.fetch(index)")
FORKED = "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
LOADED = "RuntimeError: Caught RuntimeError in DataLoader worker process 2.\nOriginal " + frames(
    WORKER, (SCRIPT, "__getitem__", "z = self.vae.encode(x.cuda())"), INIT
)


@pytest.mark.parametrize(
    ("log", "title", "words", "absent"),
    [
        # The number of torch's message is the newest CUDA that the driver supports.
        (OLD.format(11020, 11020), "it supports CUDA 11.2", "whl/cu118", "whl/cu126"),
        (OLD.format(12040, 12040), "it supports CUDA 12.4", "whl/cu126", "whl/cu118"),
        (OLD.format(10010, 10010), "it supports CUDA 10.1", "Install a newer driver", "whl/"),
        ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version\n",
         "that torch was built with", "whl/cu126", "it supports"),
        # A limit of the kernels is not the age of the GPU.
        (HEADS.format("", "forward", "at most 128"), "must be at most 128", "sdpa", "compute capability"),
        (HEADS.format("mha_bwd, /b/hopper/flash_api.cpp:90, ", "backward", "at most 256"), "must be at most 256",
         "property of the model", "compute capability"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n", "older than Ampere",
         "compute capability 8.0", "head_dim"),
        # PyPI has another project named apex.
        ("ImportError: /opt/env/lib/python3.12/site-packages/amp_C.cpython-312-x86_64-linux-gnu.so: undefined symbol: "
         "_ZN3c104cuda9SetDeviceEi\n", "apex: a compiled extension", "github.com/NVIDIA/apex", "--force-reinstall"),
        ("ImportError: /opt/env/lib/python3.12/site-packages/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: "
         "undefined symbol: _ZN3c104cuda9SetDeviceEi\n", "flash-attn: a compiled extension",
         "FLASH_ATTENTION_FORCE_BUILD=TRUE pip install --force-reinstall --no-deps", "github.com/NVIDIA/apex"),
        # raise alone
        (frames((SCRIPT, "<module>", "raise")) + "RuntimeError: No active exception to reraise\n",
         "a bare raise was reached outside of an except branch (fit.py:7", "remove it", "raise ValueError(x)"),
        # The frames show who used the GPU in a fork.
        (LOADED + FORKED + "the 'spawn' start method\n", "a DataLoader worker used CUDA (fit.py:7 in __getitem__)",
         "z = self.vae.encode(x.cuda())", "notebook"),
        (frames((SCRIPT, "run", "torch.cuda.set_device(0)"), INIT) + FORKED + "the 'spawn' start method\n",
         "CUDA was used before the process forked", "set_start_method('spawn')", "(fit.py:7"),
    ],
)  # fmt: skip
def test_the_remedy_fits_what_the_message_names(log: str, title: str, words: str, absent: str, tmp_path: Path) -> None:
    _, found, text = explained(tmp_path, log)
    assert title in found
    assert words in text
    assert absent not in f"{found} {text}"


@pytest.mark.parametrize("before", ["loss 0.9", frames((SCRIPT, "main", "step(batch)")) + "KeyboardInterrupt"])
@pytest.mark.parametrize(
    ("reason", "by", "title"),
    [
        ("TERM_ADMIN", "by root or LSF administrator", "root or an administrator of the cluster killed the job"),
        ("TERM_OWNER", "by owner", "the batch system cancelled the job on request"),
    ],
)
def test_the_batch_system_interrupted_it(before: str, reason: str, by: str, title: str, tmp_path: Path) -> None:
    """LSF sends SIGINT first, of which Python makes a KeyboardInterrupt."""
    name, found, _ = explained(tmp_path, LSF.format(before=before, reason=reason, by=by))
    assert name == "log_batch_job_cancelled"
    assert title in found


def test_a_job_that_failed_before_it_was_killed(tmp_path: Path) -> None:
    failed = frames((SCRIPT, "main", "step(batch)")) + "RuntimeError: CUDA error: out of memory"
    name, _, _ = explained(tmp_path, LSF.format(before=failed, reason="TERM_OWNER", by="by owner"))
    assert name == "log_gpu_memory_full"


LIMIT = ("unittest/case.py", "assertLessEqual", "raise self.failureException(msg)")


OF_WINDOWS = """\
---------------------------------------------------------------------------
{error}                                 Traceback (most recent call last)
{cell} in <cell line: 3>()
      2 for batch in loader:
----> 3     out = net(batch)

File c:\\Users\\Ada Lovelace\\miniconda3\\envs\\one\\lib\\site-packages\\torch\\nn\\modules\\module.py:1501, in \
Module._call_impl(self, *args)
   1500 # comment
-> 1501     return forward_call(*args)

File e:\\work\\nets.py:40, in Net.forward(self, x)
     39 x = self.first(x)
---> 40 return self.last(x)

{error}: {message}
"""


@pytest.mark.parametrize("cell", ["d:\\work\\Net.ipynb Cell 4", "d:\\work\\Net.ipynb 单元格 4", "Cell In[7]"])
def test_frames_of_a_notebook_on_windows(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(OF_WINDOWS.format(cell=cell, error="ValueError", message="no rows"), "utf-8")
    (one,) = read.read_logs([path]).raised
    assert (one.place, one.own_code) == ("nets.py:40 in forward", "return self.last(x)")
    assert one.packages == ("", "torch", "")


GRAPHS = (SCRIPT, "forward", "h = self.conv(h, edges)")
OF_DGL = ("dgl/heterograph.py", "update_all", "core.message_passing(g, mfunc, rfunc, afunc)")
OF_PYG = ("torch_geometric/nn/conv/message_passing.py", "propagate", "out = self.message(**kwargs)")
LOADS = ("torch_geometric/loader/dataloader.py", "__call__", "return self.collate(batch)")
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.00 GiB.\n"
DGL_FULL = (
    "dgl._ffi.base.DGLError: [10:00:00] /opt/dgl/src/runtime/cuda/cuda_device_api.cc:97: Check failed: "
    "e == cudaSuccess: CUDA: out of memory\n"
)


@pytest.mark.parametrize(
    ("calls", "error", "of_graph"),
    [
        ((GRAPHS, OF_DGL), DGL_FULL, True),
        ((GRAPHS, OF_PYG), FULL, True),
        ((GRAPHS, LOADS), FULL, False),
        ((GRAPHS,), DGL_FULL, False),
    ],
)
def test_messages_of_a_whole_graph(
    calls: list[tuple[str, str, str]], error: str, of_graph: bool, tmp_path: Path
) -> None:
    name, title, text = explained(tmp_path, frames(*calls) + error)
    assert name == "log_gpu_memory_full"
    assert ("edges of the graph" in title) == of_graph
    assert ("NeighborSampler" in text) == of_graph


@pytest.mark.parametrize(
    ("code", "error", "title", "words"),
    [
        ("assert keep.dtype == torch.bool", "AssertionError", "keep does not have the type bool",
         "keep = keep.to(torch.bool)"),
        ("assert x.dtype == np.float32 and y.dtype == torch.int64", "AssertionError",
         "one of these does not have the type that the code requires: x (float32), y (int64)",
         "y = y.to(torch.int64)"),
        ("assert keep.dtype == torch.bool and len(keep)", "AssertionError", "a check in the script's own code failed",
         "Print the values"),
        ("assert keep.dtype == other.dtype", "AssertionError", "a check in the script's own code failed",
         "Print the values"),
        ('raise ValueError(f"need {n} GPUs")', "ValueError: need 4 GPUs but only 2 are visible",
         "the script's settings request 4 GPUs, and this process sees 2", "--gres=gpu:4"),
        ('raise RuntimeError(f"only {m}")', "RuntimeError: Only 1 device available, 8 requested",
         "the script's own code stopped the run", "Change what the message names"),
        ('raise RuntimeError(f"only {m}")', "RuntimeError: only found 1 GPU, but this recipe requires 8",
         "the script's settings request 8 GPUs, and this process sees 1", "--gres=gpu:8"),
        ('raise ValueError("only")', "ValueError: requires 1 GPU, but only 1 can be trusted",
         "the script's own code stopped the run", "Change what the message names"),
    ],
)  # fmt: skip
def test_what_the_script_itself_requires(code: str, error: str, title: str, words: str, tmp_path: Path) -> None:
    _, found, text = explained(tmp_path, frames((SCRIPT, "main", code)) + f"{error}\n")
    assert title in found
    assert words in text


@pytest.mark.parametrize(
    ("before", "reported"),
    [
        ("10:00 - INFO - No GPU found, using cpu", True),
        ("WARNING: CUDA is not available", True),
        ("INFO - CUDA available: True", False),
        ("INFO - the GPU is idle", False),
    ],
)
def test_a_run_on_the_cpu_that_a_user_stopped(before: str, reported: bool, tmp_path: Path) -> None:
    name, title, text = explained(tmp_path, f"{before}\nINFO - Loading the model\nTraining interrupted by user\n")
    assert name == "log_interrupted"
    assert ("no GPU is available" in title) == reported
    assert ("torch.cuda.is_available()" in text) == reported


INSTANTIATED = (
    "{prefix}hydra.errors.InstantiationException: Error in call to target 'nets.{owner}':\n"
    '{prefix}TypeError("{owner}.__init__() {what}")\n'
    "{prefix}full_key: {key}\n"
)


@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=77) "])
def test_a_key_of_hydras_config(prefix: str, tmp_path: Path) -> None:
    log = INSTANTIATED.format(
        prefix=prefix, owner="Encoder", what="got an unexpected keyword argument 'width'", key="model.encoder"
    )
    name, title, text = explained(tmp_path, log)
    assert name == "log_config_key_not_accepted"
    assert "model.encoder.width, which Encoder does not accept" in title
    assert "~model.encoder.width" in text


def test_another_failure_of_hydras_object(tmp_path: Path) -> None:
    log = INSTANTIATED.format(prefix="", owner="Encoder", what="missing 1 required argument: 'width'", key="model")
    name, _, _ = explained(tmp_path, log)
    assert name != "log_config_key_not_accepted"


STEP = "{{'loss': {loss}, 'grad_norm': {norm}, 'completion_length': 128.0, 'reward': {mean}, 'reward_std': {std}}}\n"
ENDED = "{'train_runtime': 90.5, 'train_steps_per_second': 0.2, 'train_loss': 0.0, 'epoch': 1.0}\n"


@pytest.mark.parametrize(
    ("steps", "same"),
    [
        (STEP.format(loss=0.0, norm=0.0, mean=0.0, std=0.0) * 12, True),
        (STEP.format(loss="'0'", norm="'0'", mean="'1'", std="'0'") * 20, True),
        (STEP.format(loss=0.0, norm=0.0, mean=0.0, std=0.0) * 3, False),
        (STEP.format(loss=0.0, norm=0.0, mean=0.0, std=0.0) * 12
         + STEP.format(loss=0.1, norm=0.4, mean=0.2, std=0.3), False),
        (STEP.format(loss=0.0, norm=0.05, mean=0.0, std=0.0) * 12, False),  # the KL term still trains
    ],
)  # fmt: skip
def test_rewards_that_never_differ(steps: str, same: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(steps + ENDED, "utf-8")
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert (first is not None and first.id == "log_rewards_never_differ") == same


@pytest.mark.parametrize(
    ("code", "error", "title", "words"),
    [
        ("self.assertLessEqual(", "AssertionError: 31.5 not less than or equal to 20", "it measured 31.5, which is not "
         "less than or equal to 20 (fit.py:7", "Nothing crashed"),
        ("self.assertGreater(score, 0.4, 'GSM8K')", "AssertionError: 0.31 not greater than 0.4 : GSM8K",
         "it measured 0.31, which is not greater than 0.4", "change the limit"),
        ("check(age)", "AssertionError: 31.5 not less than 20", "31.5 not less than 20", "The traceback"),
    ],
)  # fmt: skip
def test_a_limit_that_a_test_has(code: str, error: str, title: str, words: str, tmp_path: Path) -> None:
    calls = ((SCRIPT, "test_speed", code), LIMIT)
    _, found, text = explained(tmp_path, frames(*calls) + f"{error}\n")
    assert title in found
    assert words in text


STUCK = (
    "[rank{rank}]:[E626 10:00:0{rank}.039567920 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={seq}, OpType=_ALLGATHER_BASE, NumelIn=64, NumelOut=128, Timeout(ms)=600000) "
    "ran for 600021 milliseconds before timing out.\n"
)
ELASTIC = """\
============================================================
fit.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-06-26_10:00:09
  host      : n7
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 71)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 71
============================================================
"""


@pytest.mark.parametrize("positions", [(404, 405), (90, 88)])
def test_two_ranks_out_of_step_whichever_exits_first(positions: tuple[int, int], tmp_path: Path) -> None:
    stuck = "".join(STUCK.format(rank=rank, seq=seq) for rank, seq in enumerate(positions))
    name, title, _ = explained(tmp_path, f"step 1 loss 2.0\n{stuck}terminate called\n{ELASTIC}")
    assert name == "log_ranks_out_of_step"
    assert "out of step" in title
