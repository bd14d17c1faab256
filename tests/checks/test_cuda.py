"""checks/cuda/ and checks/_cuda_errors.py"""

from __future__ import annotations

import re
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Problem
from mgpu.snapshot import Gpu, GpuRun, PeerCopy, Plan, Snapshot
from tests.checks.facts import (
    Case,
    driver,
    facts,
    fails,
    gpu_run,
    gpu_runs,
    no_driver,
    problem,
    skips,
    table,
    torch_runtime,
    well,
)
from tests.conftest import CHECKS

NO_GPU: tuple[Gpu, ...] = ()
EMPTY: dict[str, Any] = {
    "model": None, "multiprocessors": None, "seconds": None, "cuda_version": None, "memory_free_bytes": None,
    "memory_intact": None, "results": {}, "nccl_path": None, "nccl_version": None, "peers": (),
}  # fmt: skip


def failed(index: int, stage: str, code: int | None, name: str | None = None, **changes: Any) -> GpuRun:
    """A GPU whose child ended with an error."""
    call = {"library": "", "init": "cuInit", "context": "cuDevicePrimaryCtxRetain", "memory": "cuMemAlloc_v2"}.get(
        stage
    )
    words = f"{call} returned {code}" if call else "AcceleratorError: CUDA error: some words"
    return gpu_run(
        index, **EMPTY | {"ended": "failed", "stage": stage, "code": code, "name": name, "detail": words} | changes
    )  # fmt: skip


def kernel(index: int, words: str, code: int | None = None) -> GpuRun:
    """A GPU on which torch raised."""
    return failed(index, "kernel", code, detail=f"AcceleratorError: CUDA error: {words}")


def ended(index: int, how: str, stage: str, detail: str) -> GpuRun:
    return gpu_run(index, **EMPTY | {"ended": how, "stage": stage, "detail": detail})


def skipped(index: int, why: str = "ada's process (pid 4711) computes on it") -> GpuRun:
    return gpu_run(index, **EMPTY | {"ended": "skipped", "stage": "library", "detail": why})


def copies(*changed: PeerCopy, **changes: Any) -> tuple[GpuRun, ...]:
    """Four GPUs, of which GPU 0 made these copies."""
    return gpu_runs(4, gpu_run(0, peers=changed, **changes))


def each(number: int, **changes: Any) -> tuple[GpuRun, ...]:
    return tuple(gpu_run(index, **changes) for index in range(number))


ALL_SKIPPED = (skipped(0), skipped(1))
NO_TORCH = each(2, no_kernel="PyTorch is not installed", results={}, stage="torch", peers=())
OTHER = {"fp32": "0dd", "bf16": "beef", "fp16": "feed"}
INIT_802 = "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"  # noqa: E501

CASES = (
    # torch_cannot_start_cuda
    fails("torch_cannot_start_cuda", "PyTorch cannot start CUDA: error 802 (CUDA_ERROR_SYSTEM_NOT_READY)",
        "sudo systemctl restart nvidia-fabricmanager", torch_runtime=torch_runtime(0, cuda_error=INIT_802)),
    fails("torch_cannot_start_cuda", "error 35 (cudaErrorInsufficientDriver)", "whl/cu126",
        torch_runtime=torch_runtime(
            0, cuda_error="The NVIDIA driver on your system is too old (found version 11040)")),
    fails("torch_cannot_start_cuda", "error 100 (CUDA_ERROR_NO_DEVICE)", "ls -l /dev/nvidia*",
        torch_runtime=torch_runtime(0, cuda_error="No CUDA GPUs are available")),
    fails("torch_cannot_start_cuda", "PyTorch cannot start CUDA", "dmesg",
        torch_runtime=torch_runtime(0, cuda_error="words that nobody knows")),
    well("torch_cannot_start_cuda", "CUDA starts in PyTorch"),
    skips("torch_cannot_start_cuda", "no GPU here", driver=no_driver(),
        torch_runtime=torch_runtime(0, cuda_error="Found no NVIDIA driver on your system")),
    skips("torch_cannot_start_cuda", "no GPUs expected (--expect-gpus 0)", plan=Plan(expect_gpus=0),
        torch_runtime=torch_runtime(0, cuda_error=INIT_802)),
    skips("torch_cannot_start_cuda", "cannot be imported", torch_runtime=torch_runtime(0, import_error="ImportError")),
    skips("torch_cannot_start_cuda", "this torch has no CUDA", torch_runtime=torch_runtime(0)),
    # cuda_does_not_start
    fails("cuda_does_not_start",
        "GPUs 0, 1, 2 and 3: CUDA does not start: CUDA error 802 (CUDA_ERROR_SYSTEM_NOT_READY)",
        "systemctl restart nvidia-fabricmanager", gpu_runs=tuple(failed(n, "init", 802) for n in range(4))),
    fails("cuda_does_not_start", "GPU 3: CUDA does not start: CUDA error 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
        "sudo reboot", gpu_runs=gpu_runs(4, failed(3, "init", 803))),
    fails("cuda_does_not_start",
        "GPU 0: CUDA does not start: CUDA error 804 (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)",
        "grep -vE 'compat|stubs'",
        gpu_runs=(failed(0, "init", 804),)),
    fails("cuda_does_not_start", "the first GPU: CUDA does not start: CUDA error 999 (CUDA_ERROR_UNKNOWN)",
        "sudo modprobe nvidia_uvm", gpu_runs=(failed(0, "init", 999, uuid=None),)),
    fails("cuda_does_not_start", "CUDA error 34 (CUDA_ERROR_STUB_LIBRARY)", "stubs", gpu_runs=(failed(0, "init", 34),)),
    fails("cuda_does_not_start", "CUDA error 4242 (CUDA_ERROR_BRAND_NEW)", "dmesg",
        gpu_runs=(failed(0, "init", 4242, "CUDA_ERROR_BRAND_NEW"),)),
    fails("cuda_does_not_start", "GPU 0: libcuda.so.1 cannot be loaded", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        gpu_runs=(failed(0, "library", None, detail="libcuda.so.1: cannot open shared object file"),)),
    well("cuda_does_not_start", "cuInit succeeds for 4 GPUs"),
    well("cuda_does_not_start", "cuInit succeeds for 3 GPUs; GPU 2 not tested: ada's process (pid 4711) computes on it",
        gpu_runs=gpu_runs(4, skipped(2))),
    well("cuda_does_not_start", "for 1 GPU", gpu_runs=(failed(0, "context", 46),)),
    skips("cuda_does_not_start", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    skips("cuda_does_not_start", "there is no GPU to test", gpu_runs=()),
    skips("cuda_does_not_start", "no GPU got that far", gpu_runs=(ended(0, "hung", "init", "no answer in cuInit"),)),
    # cuda_context_fails
    fails("cuda_context_fails", "GPU 1: cannot create a CUDA context: CUDA error 46 (CUDA_ERROR_DEVICE_UNAVAILABLE)",
        "sudo nvidia-smi -i 1 -c DEFAULT", gpu_runs=gpu_runs(4, failed(1, "context", 46))),
    fails("cuda_context_fails", "GPU 1: cannot use its memory: CUDA error 2 (CUDA_ERROR_OUT_OF_MEMORY)", "nvidia-smi",
        gpu_runs=gpu_runs(4, failed(1, "memory", 2))),
    fails("cuda_context_fails", "CUDA error 214 (CUDA_ERROR_ECC_UNCORRECTABLE)", "nvidia-smi --gpu-reset -i 1,2",
        gpu_runs=gpu_runs(4, failed(1, "memory", 214), failed(2, "memory", 214))),
    fails("cuda_context_fails", "CUDA error 805 (CUDA_ERROR_MPS_CONNECTION_FAILED)", "nvidia-cuda-mps-control",
        gpu_runs=gpu_runs(4, failed(1, "context", 805))),
    well("cuda_context_fails", "context and memory work on 4 GPUs"),
    well("cuda_context_fails", "on 3 GPUs", gpu_runs=gpu_runs(4, failed(1, "init", 802))),
    skips("cuda_context_fails", "no GPU got that far", gpu_runs=(failed(0, "init", 802),)),
    skips("cuda_context_fails", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    # cuda_kernel_fails
    fails("cuda_kernel_fails", "GPUs 0 and 1: a computation failed: CUDA error 209 (CUDA_ERROR_NO_BINARY_FOR_GPU)",
        "whl/cu126",
        gpu_runs=tuple(kernel(n, "no kernel image is available for execution on the device") for n in (0, 1))),
    fails("cuda_kernel_fails", "GPU 2: a computation failed: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS)",
        "--gpu-reset -i 2", gpu_runs=gpu_runs(4, kernel(2, "an illegal memory access was encountered", 700))),
    fails("cuda_kernel_fails", "GPU 2: a computation failed: AcceleratorError: CUDA error: CUBLAS_STATUS_NOT_READY",
        "dmesg", gpu_runs=gpu_runs(4, kernel(2, "CUBLAS_STATUS_NOT_READY"))),
    fails("cuda_kernel_fails", "CUDA error 35 (cudaErrorInsufficientDriver)", "newer driver",
        gpu_runs=(failed(0, "torch", None, detail="RuntimeError: The NVIDIA driver on your system is too old"),)),
    well("cuda_kernel_fails", "a matrix product in fp32, bf16 and fp16 on 4 GPUs"),
    well("cuda_kernel_fails", "on 2 GPUs; none on GPUs 0 and 1: PyTorch is not installed",
        gpu_runs=gpu_runs(4, *NO_TORCH)),
    skips("cuda_kernel_fails", "no kernel was run: PyTorch is not installed", gpu_runs=NO_TORCH),
    skips("cuda_kernel_fails", "no GPU got that far", gpu_runs=(failed(0, "init", 802),)),
    skips("cuda_kernel_fails", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    # cuda_hangs
    fails("cuda_hangs", "GPU 3 hangs: no answer in 90 s in cuInit", "sudo nvidia-smi --gpu-reset -i 3",
        gpu_runs=gpu_runs(4, ended(3, "hung", "init", "no answer in 90 s in cuInit"))),
    fails("cuda_hangs", "GPUs 2 and 3 hang", "xid",
        gpu_runs=gpu_runs(4, *(ended(n, "hung", "init", "no answer in 90 s in cuInit") for n in (2, 3)))),
    well("cuda_hangs", "4 GPUs completed every call"),
    well("cuda_hangs", "1 GPU completed every call; GPU 0 not tested: ada's process (pid 4711) computes on it",
        gpu_runs=(skipped(0), gpu_run(1))),
    skips("cuda_hangs", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    # cuda_process_dies
    fails("cuda_process_dies", "GPU 0: the process was killed by SIGSEGV in import torch", "--force-reinstall",
        gpu_runs=(ended(0, "died", "torch", "killed by SIGSEGV in import torch"),)),
    fails("cuda_process_dies", "GPU 0: the process was killed by SIGABRT in cuInit", "sudo reboot",
        gpu_runs=(ended(0, "died", "init", "killed by SIGABRT in cuInit"),)),
    well("cuda_process_dies", "4 processes exited normally"),
    skips("cuda_process_dies", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    # gpu_memory_corrupts
    fails("gpu_memory_corrupts", "GPU 1: data written to memory reads back changed", "dcgmi diag -r 3 -i 1",
        gpu_runs=gpu_runs(4, gpu_run(1, memory_intact=False))),
    well("gpu_memory_corrupts", "memory sample of 4 GPUs reads back correctly"),
    skips("gpu_memory_corrupts", "no GPU got that far", gpu_runs=(failed(0, "init", 802),)),
    skips("gpu_memory_corrupts", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    # gpu_result_not_finite
    fails("gpu_result_not_finite", "GPU 1: NaN or infinity in fp16", "nvidia-bug-report.sh",
        gpu_runs=gpu_runs(4, gpu_run(1, not_finite=("fp16",)))),
    well("gpu_result_not_finite", "on 4 GPUs is finite"),
    skips("gpu_result_not_finite", "no GPU got that far", gpu_runs=NO_TORCH),
    skips("gpu_result_not_finite", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    # gpu_results_differ
    fails("gpu_results_differ", "GPU 2: different bits in fp32 than 3 GPUs of the same model", "dcgmi diag -r 3 -i 2",
        gpu_runs=gpu_runs(4, gpu_run(2, results=OTHER))),
    fails("gpu_results_differ", "GPUs 0 and 1 return different results in fp32", "mgpu doctor --deep",
        gpu_runs=gpu_runs(2, gpu_run(1, results=OTHER))),
    fails("gpu_results_differ", "GPU 2: different result the second time in bf16", "dcgmi diag -r 3 -i 2",
        gpu_runs=gpu_runs(4, gpu_run(2, unsteady=("bf16",)))),
    well("gpu_results_differ", "4 GPUs of one model agree bit for bit"),
    well("gpu_results_differ", "3 GPUs of one model agree",  # another model may well round otherwise
        gpu_runs=gpu_runs(4, gpu_run(3, model="NVIDIA A100-SXM4-80GB", results=OTHER))),
    well("gpu_results_differ", "3 GPUs of one model agree",  # as may a slice with fewer multiprocessors
        gpu_runs=gpu_runs(4, gpu_run(3, multiprocessors=114, results=OTHER))),
    well("gpu_results_differ", "each GPU's results are repeatable; no two GPUs of one model",
        gpu_runs=(gpu_run(0), gpu_run(1, model="A100"))),
    well("gpu_results_differ", "each GPU's results are repeatable; no two GPUs of one model",
        gpu_runs=(gpu_run(0, model=None), gpu_run(1, model=None))),
    skips("gpu_results_differ", "no GPU got that far", gpu_runs=NO_TORCH),
    skips("gpu_results_differ", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
    # peer_copy_fails
    fails("peer_copy_fails", "copy from GPU 0 to GPU 1: data arrives changed", "export NCCL_P2P_DISABLE=1",
        gpu_runs=copies(PeerCopy(1, True, False), PeerCopy(2, True, True))),
    fails("peer_copy_fails", "from GPU 0 to GPU 1: no answer, and 1 other pair", "iommu",
        gpu_runs=copies(PeerCopy(1, True, None, "no answer"), PeerCopy(2, True, False))),
    well("peer_copy_fails", "12 copies arrived intact, 12 of them direct"),
    well("peer_copy_fails", "10 copies arrived intact, 9 of them direct", gpu_runs=copies(PeerCopy(1, False, True))),
    skips("peer_copy_fails", "fewer than two GPUs", gpu_runs=(gpu_run(0, peers=()),)),
    skips("peer_copy_fails", "no copy was tested: cuInit returned 3",
        gpu_runs=each(2, peers=(), no_peers="cuInit returned 3")),
    skips("peer_copy_fails", "no GPU was tested: ada's process (pid 4711) computes on it", gpu_runs=ALL_SKIPPED),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_gpus_with_different_errors_are_different_problems() -> None:
    runs = gpu_runs(4, failed(1, "init", 802), failed(2, "init", 999), failed(3, "init", 802))
    outcomes = engine.run_check(CHECKS["cuda_does_not_start"], Snapshot(**facts(gpu_runs=runs)))
    assert [outcome.problem and outcome.problem.title.partition(":")[0] for outcome in outcomes] == [
        "GPUs 1 and 3",
        "GPU 2",
    ]


def test_the_evidence_has_the_call_the_code_and_the_library() -> None:
    found = problem(
        "cuda_does_not_start", gpu_runs=(failed(0, "init", 803, libcuda="/usr/local/cuda/compat/libcuda.so"),)
    )
    assert found.evidence["call"] == "cuInit returned 803"
    assert found.evidence["libcuda"] == "/usr/local/cuda/compat/libcuda.so"
    assert str(found.evidence["documentation"]).startswith("https://docs.nvidia.com/")


# What torch and the runtime really print.
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (INIT_802, 802),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", 46),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", 46),
        ("CUDA error: unspecified launch failure", 719),
        ("CUDA error: uncorrectable ECC error encountered", 214),
        ("CUDA error: device-side assert triggered", 710),
        ("CUDA error: the provided PTX was compiled with an unsupported toolchain.", 222),
        ("CUDA error: unknown error", 999),
        ("CUDA error: initialization error", 3),
        ("CUDA error: out of memory", 2),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB", 2),
        ("CUDA driver initialization failed, you might not have a CUDA gpu. Error 804: forward compatibility", 804),
        ("CUDA error: operation not permitted", 800),
        ("CUDA error: operation not supported", 801),
        ("CUDA error: operation not supported on global/shared address space", 717),
        ("CUDA error: the operation cannot be performed in the present state", 401),
    ],
)
def test_torchs_words_name_the_error(words: str, code: int) -> None:
    found = problem("torch_cannot_start_cuda", torch_runtime=torch_runtime(0, cuda_error=words))
    assert f"error {code} " in found.title


def table_of_errors() -> dict[int, Any]:
    import sys

    return dict(sys.modules["mgpu.checks._cuda_errors"].ERRORS)


WANTED = (
    2,
    3,
    34,
    35,
    36,
    46,
    100,
    101,
    209,
    214,
    217,
    220,
    222,
    226,
    304,
    401,
    700,
    702,
    710,
    719,
    *range(800, 811),
    999,
)


@pytest.mark.parametrize("code", WANTED)
def test_every_code_has_a_name_a_cause_and_a_fix(code: int) -> None:
    error = table_of_errors()[code]
    assert re.fullmatch(r"CUDA_ERROR_[A-Z_]+|cudaError\w+", error.name)
    assert error.cause.endswith(".") and error.fixes
    assert error.source.startswith("https://")
    for stage, check_id in (
        ("init", "cuda_does_not_start"),
        ("context", "cuda_context_fails"),
        ("kernel", "cuda_kernel_fails"),
    ):
        found = problem(check_id, gpu_runs=gpu_runs(4, failed(2, stage, code)))
        assert isinstance(found, Problem)
        assert f"CUDA error {code} ({error.name})" in found.title
        assert found.cause == error.cause
        assert not any("INDEX" in command for fix in found.fixes for command in fix.commands)


@pytest.mark.parametrize("code", WANTED)
def test_torch_names_no_gpu_and_the_commands_paste(code: int) -> None:
    words = table_of_errors()[code].message
    found = problem("torch_cannot_start_cuda", torch_runtime=torch_runtime(0, cuda_error=words, cuda_available=False))
    assert isinstance(found, Problem)
    assert not any("INDEX" in command or " -i " in command for fix in found.fixes for command in fix.commands)


def test_no_words_mean_two_errors() -> None:
    words = [error.message for error in table_of_errors().values()]
    assert len(words) == len(set(words)) and all(words)


def test_a_driver_that_is_here_is_what_makes_the_question() -> None:
    assert Case("torch_cannot_start_cuda", "fail", "", changes={
        "driver": driver(), "gpus": NO_GPU, "torch_runtime": torch_runtime(0, cuda_error="No CUDA GPUs are available"),
    }).answer().status == "fail"  # fmt: skip
