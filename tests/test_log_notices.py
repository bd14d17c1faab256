"""Messages of a log that stopped nothing: of a job's setup, of packages that find no GPU, of a script's headings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_went_on import cause, read_text

LMOD = """Lmod has detected the following error: The following module(s) are unknown:
"cuda/12.4"

Please check the spelling or version number. Also try "module spider ..."
It is also possible your cache file is out-of-date; it may help to try:
  $ module --ignore-cache load "cuda/12.4"

Also make sure that all modulefiles written in TCL start with the string
#%Module



"""
CONDA = "/var/spool/slurm/d/job7/slurm_script: line 9: activate: No such file or directory\n"
TOO_OLD = (
    "/x/site-packages/torch/cuda/__init__.py:118: UserWarning: CUDA initialization: The NVIDIA driver on your system "
    "is too old (found version 11040). Please update your GPU driver.\n  return torch._C._cuda_getDeviceCount() > 0\n"
)
NO_NVML = (
    "/x/torch/cuda/__init__.py:654: UserWarning: Can't initialize NVML\n  warnings.warn(\"Can't initialize NVML\")\n"
)
WITHOUT = "The installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers are unavailable.\n"
OUTPUT = "".join(f"sentence {n}: the cat sat\n" for n in range(30))
BY_SIGNAL = "[2026-11-21T10:12:01.229] error: *** JOB 77 ON g5 CANCELLED AT 2026-11-21T10:12:01 DUE to SIGNAL {} ***\n"
NO_GPU = "RuntimeError: No CUDA GPUs are available\n"


@pytest.mark.parametrize("text", [LMOD + LMOD, CONDA + OUTPUT, TOO_OLD + WITHOUT + OUTPUT, NO_NVML + OUTPUT])
def test_a_notice_after_which_more_was_printed_is_no_cause(text: str, tmp_path: Path) -> None:
    assert cause(text, tmp_path) is None
    assert cause(text + "srun: error: n1: task 0: Exited with exit code 1\n", tmp_path) is not None


@pytest.mark.parametrize(
    "line",
    [
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to [kubernetes.docker.internal]:29500 "
        "(system error: 10049 - The requested address is not valid in its context.).",
        "[W socket.cpp:764] [c10d] The IPv6 network addresses of (node1, 29566) cannot be retrieved (gai error: -2).",
        "[rank0]:[W socket.cpp:601] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 111 - "
        "Connection refused).",
        "[2026-11-21 10:12:01] [WARNING] Unable to find latest file at out/latest, if trying to load latest checkpoint "
        "please ensure this file exists or pass an explicit checkpoint tag when loading a checkpoint.",
        "node1:1:2 [0] NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)",
        "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so'",
        "Warning: Lock file exists in build directory: '/home/u/.cache/torch_extensions/x/lock'",
        "/usr/bin/ld: cannot find -laio: No such file or directory",
        "Skipping sample 12: RuntimeError: stack expects each tensor to be equal size",
        "CUDA out of memory, reduce batch size to 4 and retry",
        "ImportError: cannot import name 'attention', falling back to the slow version",
        "job.sh: line 4: nvidia-smi: command not found",
        "job.sh: line 9: /opt/conda/etc/profile.d/conda.sh: No such file or directory",
        "srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)",
    ],
)
def test_a_warning_is_the_cause_only_at_the_end_or_of_a_failure(line: str, tmp_path: Path) -> None:
    start = "".join(f"preparing part {n} of it\n" for n in range(5))
    assert cause(f"{start}{line}\n{OUTPUT}", tmp_path) is None
    assert cause(f"{start}{line}\n", tmp_path) is not None
    failed = cause(f"{start}{line}\n{OUTPUT}RuntimeError: no such split\n", tmp_path)
    assert failed is not None


def test_a_notice_at_the_end_is_the_cause(tmp_path: Path) -> None:
    assert cause(LMOD, tmp_path) == "log_module_not_loaded"
    assert cause(TOO_OLD, tmp_path) == "log_driver_too_old"


def test_a_notice_explains_the_failure_that_follows_it(tmp_path: Path) -> None:
    assert cause(TOO_OLD + OUTPUT + NO_GPU, tmp_path) == "log_driver_too_old"


@pytest.mark.parametrize("name", ["Terminated", "Killed", "User defined signal 1"])
def test_a_job_that_was_cancelled_did_not_fail_by_its_setup(name: str, tmp_path: Path) -> None:
    assert cause(LMOD + CONDA + BY_SIGNAL.format(name), tmp_path) == "log_slurm_cancelled"


@pytest.mark.parametrize(
    "text",
    [
        "[2026-11-21 10:12:01] [Step 3/3] Launching training...\ninitializing the model...\n#0 loaded\n",
        "Step 2/2: training model\nloading dataset\n",
        "Epoch: 20/20 Train accuracy: 6.9e-01 Loss 1.0e-02\nTotal time 0:07\nDone\n\n\nworking on file ep400.pt ...\n",
    ],
)
def test_a_heading_of_what_comes_next_is_not_the_end(text: str, tmp_path: Path) -> None:
    assert read_text("start\n" + text, tmp_path).finished is None


@pytest.mark.parametrize(
    "text", ["Step 300/300 loss 0.31\n", "Epoch: 20/20 accuracy: 6.9e-01\n", "Epoch 20/20 loss: 0.1\nSaving model...\n"]
)
def test_a_last_step_is_the_end(text: str, tmp_path: Path) -> None:
    assert read_text("start\n" + text, tmp_path).finished is not None


@pytest.mark.parametrize(
    "line", ["TERM_OWNER: job killed by owner.", "TERM_ADMIN: job killed by root or LSF administrator."]
)
def test_a_job_that_lsf_was_asked_to_stop(line: str, tmp_path: Path) -> None:
    assert cause(f"step 5 loss 0.3\n{line}\nExited with exit code 130.\n", tmp_path) == "log_batch_job_cancelled"
