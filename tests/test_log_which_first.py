"""Several findings in one log, or one with several meanings: the first cause is the one that the others follow from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import SCRIPT, explained, traceback
from tests.test_log_went_on import cause

LIMIT = "slurmstepd: error: *** JOB 77 ON g5 CANCELLED AT 2026-11-21T11:30:22 DUE TO TIME LIMIT ***\n"
STEPS = "".join(f"epoch {n} step {n}: loss 0.{n}1\n" for n in range(1, 9))
NO_FLAG = traceback("AttributeError: ckpt_dir", SCRIPT)
SIZES = "RuntimeError: The size of tensor a (3) must match the size of tensor b (288) at non-singleton dimension 1"


def test_a_program_that_failed_before_the_time_limit_had_not_too_little_time(tmp_path: Path) -> None:
    assert cause(NO_FLAG + LIMIT, tmp_path) == "log_exception"
    assert cause(STEPS + LIMIT, tmp_path) == "log_slurm_time_up"


def test_an_exception_after_or_long_before_the_time_limit_is_not_its_reason(tmp_path: Path) -> None:
    assert cause(STEPS + LIMIT + traceback("RuntimeError: store closed", "torch"), tmp_path) == "log_slurm_time_up"
    assert cause(NO_FLAG + STEPS + LIMIT, tmp_path) == "log_slurm_time_up"


def test_a_missing_deepspeed_config_is_not_damaged_base64(tmp_path: Path) -> None:
    inner = traceback("binascii.Error: Incorrect padding", "accelerate")
    outer = traceback(
        "ValueError: Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded "
        "string. Received: ../zero2.json",
        SCRIPT,
        "accelerate",
    )
    found, title, _ = explained(
        tmp_path, f"{inner}\nDuring handling of the above exception, another exception occurred:\n\n{outer}"
    )
    assert found == "log_deepspeed_config_not_read" and "../zero2.json" in title


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/x/aten/src/ATen/native/hip/Indexing.hip:1292: indexSelectLargeIndex: Device-side assertion `srcIndex < "
         "srcSelectDimSize' failed.", "log_index_out_of_range"),
        ("/x/aten/src/ATen/native/cuda/Indexing.cu:1284: indexSelectLargeIndex: block: [2,0,0], thread: [6,0,0] "
         "Assertion `srcIndex < srcSelectDimSize` failed.", "log_index_out_of_range"),
    ],
)  # fmt: skip
def test_assertions_of_both_kinds_of_gpus(line: str, found: str, tmp_path: Path) -> None:
    assert explained(tmp_path, f"{line}\n" * 3)[0] == found


def test_the_state_of_an_optimizer_is_not_the_batch(tmp_path: Path) -> None:
    _, title, words = explained(
        tmp_path, traceback(SIZES, SCRIPT, "torch/optim/adamw.py", "torch/optim/_functional.py")
    )
    assert "optimizer's state" in title and "samples" not in words and "pad(" not in words
    title = explained(tmp_path, traceback(SIZES, SCRIPT))[1]
    assert "optimizer" not in title


def test_the_items_of_a_loop_are_not_what_it_runs_over(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/srv/a/utils.py", line 345, in evaluate\n'
        "    for text, _, _ in values:   ###\nValueError: not enough values to unpack (expected 3, got 2)\n"
    )
    _, title, words = explained(tmp_path, text)
    assert "an item of values has 2 parts" in title and "expects 3 (text, _, _)" in title
    assert "print(next(iter(values)))" in words and "print({len(x) for x in values})" in words


def test_who_cancelled_a_step_is_not_guessed(tmp_path: Path) -> None:
    text = STEPS + "slurmstepd: error: *** STEP 53.0 ON n1 CANCELLED AT 2026-11-21T12:18:08 ***\n"
    found, title, words = explained(tmp_path, text)
    assert found == "log_slurm_stopped_siblings" and "probably" not in title and "--kill-on-bad-exit" in words


def test_a_file_with_tensors_of_a_gpu_is_not_another_build_of_torch(tmp_path: Path) -> None:
    error = (
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If "
        "you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu')"
    )
    _, title, words = explained(tmp_path, traceback(error, SCRIPT, "torch/serialization.py"))
    assert "saved with tensors on a GPU" in title and "map_location='cpu'" in words and "force-reinstall" not in words
    title = explained(tmp_path, traceback("AssertionError: Torch not compiled with CUDA enabled", SCRIPT, "torch"))[1]
    assert "this torch build has no CUDA" in title


def test_an_empty_batch_is_named(tmp_path: Path) -> None:
    found, title, _ = explained(tmp_path, traceback("RuntimeError: received an empty list of sequences", SCRIPT))
    assert found == "log_no_tensors_to_join" and "is empty" in title


def test_the_exception_of_a_ray_worker_is_the_reason_for_its_death(tmp_path: Path) -> None:
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
    worker = traceback("RuntimeError: CUDA error: invalid argument", SCRIPT, "sglang", prefix="(WorkerDict pid=77) ")
    assert cause(worker + died, tmp_path) == "log_cuda_call_failed"
    assert cause(died, tmp_path) == "log_ray_worker_died"


def test_what_mgpu_says_itself_is_no_part_of_a_message(tmp_path: Path) -> None:
    text = traceback("ValueError: no such label: 7", SCRIPT) + "mgpu: the connection ended: Connection to n2 closed.\n"
    assert "closed" not in explained(tmp_path, text)[1]


def test_a_script_that_does_not_exist_is_first(tmp_path: Path) -> None:
    taken = (
        "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 6000, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
    )
    missing = "/opt/conda/bin/python: can't open file '/srv/pretrain_gpt.py': [Errno 2] No such file or directory\n"
    assert cause(taken + missing, tmp_path) == "log_script_not_found"
    assert cause(taken, tmp_path) == "log_port_taken"


def test_a_download_by_url_is_not_about_the_name_of_a_node(tmp_path: Path) -> None:
    name = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
    url = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
    assert cause(traceback(name, "urllib") + traceback(url, SCRIPT, "urllib"), tmp_path) == "log_network_failed"
    assert cause(traceback(name, SCRIPT, "torch"), tmp_path) == "log_name_not_resolved"


def test_a_stream_of_an_npu_that_waits_in_a_barrier_waits_for_another_rank(tmp_path: Path) -> None:
    error = "RuntimeError: ACL stream synchronize failed, error code:507046"
    text = traceback(error, SCRIPT, "torch/distributed/distributed_c10d.py")
    assert "a stream was not finished" in explained(tmp_path, text)[1]
    assert "507046, ACL stream synchronize)" in explained(tmp_path, text)[1]
    _, title, words = explained(tmp_path, text.replace(", in run", ", in barrier"))
    assert "waited in a barrier" in title and "rank 0 prepares" in words and "ACL_STREAM_TIMEOUT=7200000" in words


def test_a_batch_that_a_package_takes_apart_is_about_the_data(tmp_path: Path) -> None:
    text = traceback("ValueError: not enough values to unpack (expected 5, got 4)", SCRIPT, "lightning", "nemo")
    assert "probably do not fit" in explained(tmp_path, text)[1]
    line = "    signal, length, text, text_length, prompt = batch\n"
    _, title, words = explained(tmp_path, line.join(text.rsplit("    call()\n", 1)))
    assert "batch gives 4 values" in title and "nemo" in title and "upgrade" not in words


VANISHED = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: a5c5 Node "
    "ID: 77e9 Worker IP address: 10.1.0.7 Worker port: 38117 Worker PID: 5120 Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: {}\n"
)


def test_a_ray_worker_that_vanished_is_named(tmp_path: Path) -> None:
    raised = (
        "ray.exceptions.ActorUnavailableError: The actor d5a1 is unavailable: RpcError: Socket closed rpc_code: 14.\n"
    )
    closed = VANISHED.format("Worker unexpectedly exits with a connection error code 2. End of file.")
    found, title, words = explained(tmp_path, raised + closed)
    assert found == "log_ray_worker_vanished" and "process 5120 on 10.1.0.7" in title
    assert "worker-*-5120.err" in words
    memory = VANISHED.format("The worker may have exceeded K8s pod memory limits.")
    assert explained(tmp_path, raised + memory)[0] == "log_ray_worker_died"
    worker = traceback("RuntimeError: CUDA error: invalid argument", SCRIPT, "sglang", prefix="(WorkerDict pid=77) ")
    assert cause(worker + closed, tmp_path) == "log_cuda_call_failed"
