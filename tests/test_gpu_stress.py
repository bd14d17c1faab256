"""`--deep`: faults planted in a fake libcuda.so.1, or in a synthetic torch, and found through the real children."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mgpu import engine
from mgpu.probes import NVML, gather, gpu_run, gpu_stress
from mgpu.snapshot import Gap, GpuRun, PeerCopy, Snapshot, from_json, to_json
from mgpu.snapshot.redaction import redact
from tests import fake_cuda, fake_nvml
from tests.checks.facts import driver, facts, gpu, gpus, lost, no_driver, process, seen, uuid
from tests.checks.test_cuda import WANTED
from tests.conftest import CHECKS

MIB = 1 << 20
HUNG_S = 4.0  # the deadline where a hang is what is tested; the others must come through in it


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake libcuda.so.1, compiled once."""
    return fake_cuda.build(tmp_path_factory.getbasetemp() / "fake_cuda")


Used = Callable[..., Snapshot]


@pytest.fixture
def used(libcuda: Path, monkeypatch: pytest.MonkeyPatch) -> Used:
    """Use the GPUs of a machine: `used(2, "cuInit@GPU-1=802", torch="nan")`."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def run(machine: int | Snapshot = 1, plan: str = "", *, torch: str | None = "", **options: Any) -> Snapshot:
        snapshot = machine_of(machine) if isinstance(machine, int) else machine
        with mock.patch.dict(os.environ, fake_cuda.environment(libcuda, plan, torch=torch)):
            return gpu_stress.run(snapshot, **options)

    return run


def machine_of(number: int, **changes: Any) -> Snapshot:
    return Snapshot(**facts(gpus=gpus(number), gpu_runs=None, **changes))


def runs(snapshot: Snapshot) -> tuple[GpuRun, ...]:
    assert snapshot.gpu_runs is not None, snapshot.gaps
    return snapshot.gpu_runs


def said(snapshot: Snapshot) -> dict[str, str]:
    """The problems of the family, by check."""
    checks = [check for check in CHECKS.values() if check.area == "cuda" and "gpu_runs" in check.facts]
    outcomes = engine.run(checks, snapshot)
    return {outcome.check.id: outcome.problem.title for outcome in outcomes if outcome.problem}


def fixes(snapshot: Snapshot, check_id: str) -> str:
    return " ".join(
        text
        for outcome in engine.run_check(CHECKS[check_id], snapshot)
        if outcome.problem
        for fix in outcome.problem.fixes
        for text in (fix.text, *fix.commands)
    )


# --- healthy -----------------------------------------------------------------------------------------------------


def test_four_gpus_that_work(used: Used, libcuda: Path) -> None:
    snapshot = used(4)
    for index, run in enumerate(runs(snapshot)):
        assert (run.index, run.uuid, run.ended, run.stage) == (index, uuid(index), "done", "peers")
        assert (run.code, run.detail, run.no_kernel, run.no_peers) == (None, None, None, None)
        assert (run.model, run.multiprocessors, run.cuda_version) == ("NVIDIA H100 80GB HBM3", 132, (13, 0))
        assert run.libcuda == str(libcuda / "libcuda.so.1")
        assert (run.memory_free_bytes, run.memory_intact) == (79 << 30, True)
        assert run.results.keys() == {"fp32", "bf16", "fp16"}
        assert run.peers == tuple(PeerCopy(other, True, True) for other in range(4) if other != index)
    assert len({tuple(run.results.values()) for run in runs(snapshot)}) == 1
    assert said(snapshot) == {}
    for check in CHECKS.values():
        if check.area == "cuda":
            assert [outcome.status for outcome in engine.run_check(check, snapshot)] == ["ok"], check.id


def test_the_fact_can_be_saved_and_shared(used: Used) -> None:
    snapshot = used(2, "cuInit@GPU-1=803")
    back = from_json(json.loads(json.dumps(to_json(snapshot))))
    assert back == snapshot
    shared = redact(snapshot)
    assert uuid(0) not in json.dumps(to_json(shared))
    assert said(shared) == said(snapshot)


def test_an_older_gpu_is_not_asked_for_bfloat16(used: Used) -> None:
    (run,) = runs(used(1, "cuDeviceGetAttribute.75=#7;cuDeviceGetAttribute.76=#5"))
    assert run.results.keys() == {"fp32", "fp16"}


def test_what_it_costs_is_said_before() -> None:
    assert gpu_stress.announce_cost(machine_of(4)) == (
        "Testing 4 GPUs for a few seconds: CUDA context (about 500 MiB each), short computation."
    )
    assert "Testing GPU 0 for" in str(gpu_stress.announce_cost(machine_of(1)))
    assert gpu_stress.announce_cost(machine_of(0)) is None


def test_on_a_machine_that_nvml_describes(library: Path, libcuda: Path, tmp_path: Path) -> None:
    described = fake_nvml.machine(tmp_path, "a100_sxm_x4", fake_nvml.FAULTS["busy"])
    with mock.patch.dict(os.environ, fake_nvml.environment(library, described)):
        roots = {"sys_root": str(tmp_path / "sys"), "dev_root": str(tmp_path / "dev")}
        snapshot = gather([replace(NVML, arguments=roots)])
    with mock.patch.dict(os.environ, fake_cuda.environment(libcuda)):
        found = runs(gpu_stress.run(snapshot))
    assert [run.ended for run in found] == ["skipped", "done", "done", "done"]
    assert found[0].detail == f"a process (pid {fake_nvml.NOBODY}) is using it"
    assert [len(run.peers) for run in found] == [0, 2, 2, 2]


# --- CUDA's errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", WANTED)
def test_every_code_of_cuinit_is_found_with_its_cause(code: int, used: Used) -> None:
    snapshot = used(1, f"cuInit={code}")
    (run,) = runs(snapshot)
    assert (run.ended, run.stage, run.code, run.detail) == ("failed", "init", code, f"cuInit returned {code}")
    assert said(snapshot).keys() == {"cuda_does_not_start"}
    assert f"CUDA error {code} " in said(snapshot)["cuda_does_not_start"]


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (802, "systemctl restart nvidia-fabricmanager"),
        (803, "sudo reboot"),
        (804, "compat"),
        (999, "modprobe nvidia_uvm"),
        (46, "-c DEFAULT"),
        (34, "stubs"),
        (100, "docker run --gpus all"),
        (3, "uvm_disable_hmm"),
        (805, "nvidia-cuda-mps-control"),
    ],
)
def test_the_fix_fits_the_code(code: int, fix: str, used: Used) -> None:
    assert fix in fixes(used(1, f"cuInit={code}"), "cuda_does_not_start")


def test_a_code_of_a_newer_cuda_is_an_error_with_its_own_name(used: Used) -> None:
    snapshot = used(1, "cuInit=4242")
    assert said(snapshot)["cuda_does_not_start"] == "GPU 0: CUDA does not start: CUDA error 4242 (CUDA_ERROR_BRAND_NEW)"


def test_one_gpu_fails_and_the_others_work(used: Used) -> None:
    snapshot = used(3, "cuDevicePrimaryCtxRetain@GPU-1=46")
    assert [run.ended for run in runs(snapshot)] == ["done", "failed", "done"]
    assert [[peer.to for peer in run.peers] for run in runs(snapshot)] == [[2], [], [0]]
    assert said(snapshot) == {
        "cuda_context_fails": "GPU 1: cannot create a CUDA context: CUDA error 46 (CUDA_ERROR_DEVICE_UNAVAILABLE)"
    }


@pytest.mark.parametrize(
    ("plan", "stage", "code"),
    [
        ("cuDeviceGetCount=#0", "init", 100),
        ("cuDriverGetVersion=3", "init", 3),
        ("cuDeviceGetCount=999", "init", 999),
        ("cuDeviceGet=101", "context", 101),
        ("cuDeviceGetAttribute.75=1", "context", 1),
        ("cuCtxSetCurrent=201", "context", 201),
        ("cuMemGetInfo_v2=719", "memory", 719),
        ("cuMemAlloc_v2=2", "memory", 2),
        ("cuMemsetD32_v2=700", "memory", 700),
        ("cuCtxSynchronize=214", "memory", 214),
        ("cuMemcpyDtoH_v2=304", "memory", 304),
    ],
)
def test_every_call_may_be_the_one_that_fails(plan: str, stage: str, code: int, used: Used) -> None:
    snapshot = used(1, plan)
    (run,) = runs(snapshot)
    assert (run.ended, run.stage, run.code) == ("failed", stage, code)
    assert said(snapshot).keys() == {"cuda_does_not_start" if stage == "init" else "cuda_context_fails"}


def test_memory_that_does_not_keep_what_is_written(used: Used) -> None:
    snapshot = used(2, "cuMemcpyDtoH_v2@GPU-1=corrupt")
    assert [run.memory_intact for run in runs(snapshot)] == [True, False]
    assert said(snapshot)["gpu_memory_corrupts"] == "GPU 1: data written to memory reads back changed"


def test_no_libcuda(tmp_path: Path) -> None:
    if ctypes.util.find_library("cuda"):
        pytest.skip("this machine has a libcuda")
    snapshot = gpu_stress.run(machine_of(1))
    (run,) = runs(snapshot)
    assert (run.ended, run.stage, run.code, run.libcuda) == ("failed", "library", None, None)
    assert said(snapshot) == {"cuda_does_not_start": "GPU 0: libcuda.so.1 cannot be loaded"}


def test_a_libcuda_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"\x7fELF and no more")
    with mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": str(tmp_path)}):
        (run,) = runs(gpu_stress.run(machine_of(1)))
    assert (run.ended, run.stage) == ("failed", "library")
    assert run.detail and "libcuda" in run.detail


def test_an_old_libcuda_without_a_function(used: Used, libcuda: Path, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler
    (tmp_path / "old.c").write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "old.c")], check=True
    )
    with mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": str(tmp_path)}):
        (run,) = runs(gpu_stress.run(machine_of(1)))
    assert (run.ended, run.stage, run.code) == ("failed", "init", None)
    assert run.detail == "cuDriverGetVersion: not in this driver"


# --- it hangs, it dies -------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gpu_stress, "_DEADLINE_S", HUNG_S)
    monkeypatch.setattr(gpu_stress, "_COPIES_DEADLINE_S", HUNG_S)
    yield


@pytest.mark.parametrize(
    ("plan", "torch", "stage", "words"),
    [
        ("cuInit@GPU-1=hang", "", "init", "no answer in 4 s in cuInit"),
        ("cuMemAlloc_v2@GPU-1=hang", "", "memory", "no answer in 4 s in cuMemAlloc"),
        ("", "hang@GPU-1", "kernel", "no answer in 4 s in a matrix product in fp32"),
    ],
)
def test_a_gpu_that_hangs_costs_its_own_answer(
    plan: str, torch: str, stage: str, words: str, used: Used, impatient: None
) -> None:
    snapshot = used(3, plan, torch=torch)
    assert [run.ended for run in runs(snapshot)] == ["done", "hung", "done"]
    assert (runs(snapshot)[1].stage, runs(snapshot)[1].detail) == (stage, words)
    assert said(snapshot) == {"cuda_hangs": f"GPU 1 hangs: {words}"}
    assert subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "gpu_run"], capture_output=True).returncode == 1


def test_a_driver_that_hangs_on_all_is_not_waited_for_again_and_again(used: Used, impatient: None) -> None:
    start = time.monotonic()
    snapshot = used(9, "cuInit=hang")
    assert time.monotonic() - start < 3 * HUNG_S
    assert [run.ended for run in runs(snapshot)] == ["hung"] * 4 + ["skipped"] * 5
    assert runs(snapshot)[8].detail == "CUDA hung on the GPUs tested before"
    assert said(snapshot).keys() == {"cuda_hangs"}


@pytest.mark.parametrize(
    ("plan", "torch", "stage", "words"),
    [
        ("cuInit@GPU-0=abort", "", "init", "killed by SIGABRT in cuInit"),
        ("cuDevicePrimaryCtxRetain@GPU-0=segv", "", "context", "killed by SIGSEGV in cuDevicePrimaryCtxRetain"),
        ("", "segv@GPU-0", "torch", "killed by SIGSEGV in import torch"),
    ],
)
def test_a_gpu_whose_process_dies_costs_its_own_answer(
    plan: str, torch: str, stage: str, words: str, used: Used
) -> None:
    snapshot = used(2, plan, torch=torch)
    assert [run.ended for run in runs(snapshot)] == ["died", "done"]
    assert (runs(snapshot)[0].stage, runs(snapshot)[0].detail) == (stage, words)
    assert said(snapshot) == {"cuda_process_dies": f"GPU 0: the process was {words}"}


def test_a_process_that_leaves_in_the_middle(used: Used) -> None:
    (run,) = runs(used(1, "cuMemAlloc_v2=exit"))
    assert (run.ended, run.stage) == ("died", "memory")
    assert run.detail and "exited with code 7" in run.detail


# --- torch (synthetic) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("missing", "PyTorch is not installed (No module named 'torch')"),
        ("broken=libtorch_cuda.so: undefined symbol", "import torch: OSError: libtorch_cuda.so: undefined symbol"),
        ("cpu", "PyTorch 2.9.0+cpu was built without CUDA"),
    ],
)
def test_without_a_torch_that_can_the_rest_is_still_known(torch: str, why: str, used: Used) -> None:
    snapshot = used(2, torch=torch)
    assert [(run.ended, run.no_kernel, run.memory_intact, len(run.peers)) for run in runs(snapshot)] == [
        ("done", why, True, 1)
    ] * 2
    assert said(snapshot) == {}
    (outcome,) = engine.run_check(CHECKS["cuda_kernel_fails"], snapshot)
    assert outcome.status == "skip"


@pytest.mark.parametrize(
    ("torch", "code", "title"),
    [
        (
            "kernel@GPU-1=no kernel image is available for execution on the device",
            None,
            "GPU 1: a computation failed: CUDA error 209 (CUDA_ERROR_NO_BINARY_FOR_GPU)",
        ),
        (
            "kernel@GPU-1=unspecified launch failure",
            None,
            "GPU 1: a computation failed: CUDA error 719 (CUDA_ERROR_LAUNCH_FAILED)",
        ),
        ("oom@GPU-1", 2, "GPU 1: a computation failed: CUDA error 2 (CUDA_ERROR_OUT_OF_MEMORY)"),
        (
            "init@GPU-1=Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver",
            803,
            "GPU 1: a computation failed: CUDA error 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
        ),
    ],
)
def test_a_kernel_that_fails(torch: str, code: int | None, title: str, used: Used) -> None:
    snapshot = used(2, torch=torch)
    assert [run.ended for run in runs(snapshot)] == ["done", "failed"]
    assert runs(snapshot)[1].code == code
    assert said(snapshot) == {"cuda_kernel_fails": title}


def test_a_gpu_that_computes_nan(used: Used) -> None:
    snapshot = used(2, torch="nan@GPU-1")
    assert runs(snapshot)[1].not_finite == ("fp32", "bf16", "fp16")
    assert said(snapshot) == {"gpu_result_not_finite": "GPU 1: NaN or infinity in fp32, bf16 and fp16"}


def test_a_gpu_that_computes_other_bits_than_its_siblings(used: Used) -> None:
    title = "GPU 2: different bits in fp32 than 2 GPUs of the same model"
    assert said(used(3, torch="wrong@GPU-2")) == {"gpu_results_differ": title}


def test_another_model_may_compute_other_bits(used: Used) -> None:
    mixed = replace(machine_of(3), gpus=gpus(3, gpu(2, name="NVIDIA A100-SXM4-80GB")))
    assert said(used(mixed, torch="wrong@GPU-2")) == {}


def test_a_gpu_that_computes_other_bits_each_time(used: Used) -> None:
    snapshot = used(2, torch="unsteady@GPU-0")
    assert runs(snapshot)[0].unsteady == ("fp32", "bf16", "fp16")
    assert said(snapshot)["gpu_results_differ"].startswith("GPU 0: different result the second time")


# --- between GPUs ------------------------------------------------------------------------------------------------


def test_a_copy_that_arrives_changed(used: Used) -> None:
    snapshot = used(3, "cuMemcpyPeer@0>2=corrupt")
    assert [peer for run in runs(snapshot) for peer in run.peers if not peer.intact] == [PeerCopy(2, True, False)]
    assert said(snapshot) == {"peer_copy_fails": "copy from GPU 0 to GPU 2: data arrives changed"}


def test_a_copy_that_hangs(used: Used, impatient: None) -> None:
    snapshot = used(3, "cuMemcpyPeer@1>0=hang")
    assert [run.ended for run in runs(snapshot)] == ["done"] * 3
    assert said(snapshot) == {"peer_copy_fails": "copy from GPU 1 to GPU 0: no answer"}


def test_a_copy_that_kills_the_process(used: Used) -> None:
    assert said(used(2, "cuMemcpyPeer@1>0=segv")) == {"peer_copy_fails": "copy from GPU 1 to GPU 0: the process died"}


def test_a_copy_that_fails(used: Used) -> None:
    snapshot = used(2, "cuMemcpyPeer@0>1=217")
    assert runs(snapshot)[0].peers == (PeerCopy(1, True, None, "cuMemcpyPeer returned 217 (None)"),)
    assert runs(snapshot)[1].peers == (PeerCopy(0, True, True),)
    assert "cuMemcpyPeer returned 217" in said(snapshot)["peer_copy_fails"]


def test_gpus_without_direct_access_copy_all_the_same(used: Used) -> None:
    snapshot = used(2, "cuDeviceCanAccessPeer=#0")
    assert [run.peers for run in runs(snapshot)] == [(PeerCopy(1, False, True),), (PeerCopy(0, False, True),)]
    assert said(snapshot) == {}


def test_copies_that_cannot_even_begin(used: Used) -> None:
    both = f"{uuid(0)},{uuid(1)}"
    snapshot = used(2, f"cuInit@{both}=999")
    assert [(run.ended, run.peers, run.no_peers) for run in runs(snapshot)] == [
        ("done", (), "cuInit returned 999 (CUDA_ERROR_UNKNOWN)")
    ] * 2
    (outcome,) = engine.run_check(CHECKS["peer_copy_fails"], snapshot)
    assert outcome.status == "skip"


# --- which GPUs --------------------------------------------------------------------------------------------------


def test_a_gpu_somebody_uses_is_left_alone(used: Used) -> None:
    machine = replace(machine_of(3), gpus=gpus(3, gpu(1, processes=(process(),))))
    snapshot = used(machine, "cuInit@GPU-1=abort")  # it would die if it were touched
    assert [(run.ended, run.detail) for run in runs(snapshot)] == [
        ("done", None),
        ("skipped", "ada's process (pid 4711) is using it"),
        ("done", None),
    ]
    assert said(snapshot) == {}
    (outcome,) = engine.run_check(CHECKS["cuda_does_not_start"], snapshot)
    assert "GPU 1 not tested" in str(outcome.answer)
    assert [run.ended for run in runs(used(machine, even_if_busy=True))] == ["done"] * 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"processes": (process(user=None, mine=None),)}, "a process (pid 4711) is using it"),
        ({"processes": (process(mine=True),)}, None),
        ({"processes": (process(kind="graphics", user="root"),)}, None),
        ({"processes": None}, None),
        ({"processes": None, "memory_used_bytes": 2048 * MIB}, "its processes are not listed, and 2048 MiB"),
        ({"processes": None, "memory_used_bytes": None}, "its processes are not listed, and an unknown amount"),
        ({"memory_free_bytes": 1024 * MIB - 1}, "only 1023 MiB of its memory is free"),
        ({"memory_free_bytes": 1024 * MIB}, None),
        ({"memory_free_bytes": None}, None),
        ({"uuid": None}, "NVML does not report its UUID"),
    ],
)
def test_when_a_gpu_is_left_alone(changes: dict[str, Any], why: str | None, used: Used) -> None:
    machine = replace(machine_of(1), gpus=(gpu(0, **changes),))
    (run,) = runs(used(machine, torch="missing"))
    assert run.ended == ("skipped" if why else "done")
    assert (run.detail or "").startswith(why or "")


def test_a_lost_gpu_is_left_alone(used: Used) -> None:
    machine = replace(machine_of(2), gpus=gpus(2, lost(1)))
    assert runs(used(machine, torch="missing"))[1].detail == "it does not respond to the driver: GPU_IS_LOST"


def test_only_visible_gpus_are_used(used: Used) -> None:
    machine = replace(machine_of(4), visible=seen(3, 1, value="3,1"))
    assert [run.index for run in runs(used(machine, torch="missing"))] == [1, 3]


@pytest.mark.parametrize("how", ["by name", "by mode"])
def test_a_mig_instance(how: str, used: Used) -> None:
    mig = "MIG-5a5a5a5a-0000-4000-8000-00000000beef"
    split = gpus(2, gpu(0, mig_mode=True, mig_uuids=(mig,)))
    visible = seen(value=mig, mig=mig, by_number=False) if how == "by name" else seen(0)
    (run,) = runs(used(replace(machine_of(2), gpus=split, visible=visible)))
    assert (run.index, run.uuid, run.ended, run.model) == (0, mig, "done", "NVIDIA H100 80GB HBM3 (MIG)")


def test_one_mig_instance_of_each_gpu_and_whole_ones(used: Used) -> None:
    first, second, third = (f"MIG-{n}a5a5a5a-0000-4000-8000-00000000beef" for n in (1, 2, 3))
    split = gpus(4, gpu(0, mig_mode=True, mig_uuids=(first, second)), gpu(1, mig_mode=True, mig_uuids=(third,)))
    visible = seen(3, value=f"{first},{second},{third},{uuid(3)}", mig=first, more_mig=(second, third), by_number=False)
    found = runs(used(replace(machine_of(4), gpus=split, visible=visible), torch="missing"))
    assert [(run.index, run.uuid) for run in found] == [(0, first), (1, third), (3, uuid(3))]


def test_without_a_gpu_there_is_nothing_to_do(used: Used) -> None:
    snapshot = used(replace(machine_of(0), driver=no_driver()))
    assert snapshot.gpu_runs is None
    assert snapshot.gaps["gpu_runs"] == Gap("no_driver", "there is no GPU to use")
    snapshot = used(replace(machine_of(0), visible=seen()))
    assert snapshot.gpu_runs == ()


def test_when_nvml_hangs_cuda_is_not_asked(used: Used) -> None:
    gap = Gap("timed_out", "NVML did not answer in 10 s")
    for known in (None, driver()):
        gaps = {"gpus": gap} if known else {"driver": gap, "gpus": gap}
        snapshot = used(replace(machine_of(1), driver=known, gpus=None, visible=None, gaps=gaps), "cuInit=abort")
        assert snapshot.gpu_runs is None
        assert snapshot.gaps["gpu_runs"] == gap


def test_when_nvml_does_not_start_cuda_may_say_why(used: Used) -> None:
    broken = driver(nvml_error="LIB_RM_VERSION_MISMATCH")
    snapshot = used(replace(machine_of(1), driver=broken, gpus=None, visible=None), "cuInit=803")
    (run,) = runs(snapshot)
    assert (run.index, run.uuid, run.code) == (0, None, 803)
    assert said(snapshot)["cuda_does_not_start"].startswith("the first GPU: CUDA does not start: CUDA error 803")


# --- the computation itself, with the real torch on the CPU --------------------------------------------------------


def test_the_same_computation_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(gpu_run, "_SIZE", 96)
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        digest, finite = gpu_run._compute(torch, "cpu", kind)
        assert finite
        assert gpu_run._compute(torch, "cpu", kind) == (digest, True)
    assert len({gpu_run._compute(torch, "cpu", kind)[0] for kind in (torch.float32, torch.float16)}) == 2
    monkeypatch.setattr(gpu_run, "_SEED", 7)
    assert gpu_run._compute(torch, "cpu", torch.float32)[0] != digest


def test_a_computation_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(gpu_run, "_SIZE", 8)
    real = torch.randn

    def poisoned(*arguments: Any, **options: Any) -> Any:
        made = real(*arguments, **options)
        made[0, 0] = float("inf")
        return made

    with mock.patch.object(torch, "randn", poisoned):
        assert gpu_run._compute(torch, "cpu", torch.float32)[1] is False


def test_the_libnccl_that_is_mapped(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        fake_nvml.unavailable("no C compiler")
    (tmp_path / "nccl.c").write_text("int ncclGetVersion(int *v) { *v = 22907; return 0; }\n")
    library = tmp_path / "libnccl.so.2"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nccl.c")], check=True)
    code = f"import ctypes; from mgpu.probes import gpu_run; ctypes.CDLL({str(library)!r}); print(gpu_run._nccl())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str({"nccl_path": str(library), "nccl_version": "2.29.7"})


def test_what_is_mapped_is_read_with_care(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_bytes(
        b"7f00-7f01 r-xp 00000000 00:00 0\n7f01-7f02 r-xp 00000000 08:01 12  /opt/a b/libcuda.so.580 \xff\ngarbage"
    )
    assert gpu_run._mapped_path("/libcuda.so", str(maps)) == "/opt/a b/libcuda.so.580 \ufffd"
    assert gpu_run._mapped_path("/libnccl.so", str(maps)) is None
    assert gpu_run._mapped_path("/libcuda.so", str(tmp_path / "nowhere")) is None


class AcceleratorError(RuntimeError):
    error_code = 209


class OutOfMemoryError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AcceleratorError("CUDA error: no kernel image"), 209),
        (OutOfMemoryError("CUDA out of memory"), 2),
        (RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"), 802),
        (RuntimeError("CUDA error: unspecified launch failure"), None),
        (RuntimeError(""), None),
    ],
)
def test_the_number_in_an_error_of_torch(error: Exception, code: int | None) -> None:
    assert gpu_run._code(error) == code
    assert gpu_run._first_line(error)
