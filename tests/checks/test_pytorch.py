"""checks/pytorch"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Library, Plan
from tests.checks.facts import (
    ARCHES,
    Case,
    driver,
    fails,
    gpu,
    gpus,
    informs,
    libraries,
    no_driver,
    python,
    pytorch,
    seen,
    skips,
    table,
    torch_runtime,
    warns,
    well,
)

NGC = "2.9.0a0+145a3a7bda.nv25.10"
MISSING = pytorch(installed=False, version=None, cuda=None, arch_list=None, location=None, nccl_required=None)
CPU = pytorch(version="2.9.0+cpu", cuda=None, arch_list=None, nccl_required=None)
CU128 = pytorch(version="2.9.0+cu128", cuda="12.8")
CUDNN = Library("cudnn", "/opt/env/lib/nvidia/cudnn/lib/libcudnn.so.9", "wheel")
OLD_SYMBOL = "/opt/env/lib/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E"
RTX_4090 = gpus(compute_capability=(8, 9))
RTX_5090 = gpus(compute_capability=(12, 0))
ONLY_PTX = pytorch(arch_list=("sm_80", "sm_90", "compute_90"))
CASES = (
    # torch_missing, torch_import_fails
    fails("torch_missing", "no torch in /opt/env/bin/python", "/opt/env/bin/python -m pip install torch",
        pytorch=MISSING),
    fails("torch_missing", "no torch in /opt/env/bin/python", "or pass its Python with --python",
        pytorch=MISSING, python=python(chosen="no environment in sight")),
    well("torch_missing", "torch 2.9.0+cu130"),
    fails("torch_import_fails",
        "import torch: ImportError: libcudnn.so.9", "torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130",
        torch_runtime=torch_runtime(import_error="ImportError: libcudnn.so.9: cannot open")),
    fails("torch_import_fails", "import torch: ImportError", "from its original source. 2.9.0a0+145a3a7bda.nv25.10",
        torch_runtime=torch_runtime(import_error="ImportError: x"), pytorch=pytorch(version=NGC)),
    well("torch_import_fails", "imported in 2.5 s"),
    skips("torch_import_fails", "torch is not installed",
        pytorch=MISSING, torch_runtime=torch_runtime(import_error="ModuleNotFoundError")),
    # torch_too_old: 2.4
    warns("torch_too_old", "torch 2.3.1+cu121, 2.4 or newer is required", "pip install --upgrade torch",
        pytorch=pytorch(version="2.3.1+cu121")),
    warns("torch_too_old", "torch 1.13.1", "--upgrade", pytorch=pytorch(version="1.13.1")),
    well("torch_too_old", "torch 2.4.0", pytorch=pytorch(version="2.4.0")),
    well("torch_too_old", "torch 2.10.0a0+git", pytorch=pytorch(version="2.10.0a0+git123")),
    skips("torch_too_old", "version is unknown", pytorch=pytorch(version=None)),
    skips("torch_too_old", "version is unknown", pytorch=MISSING),
    # torch_is_cpu_build
    fails("torch_is_cpu_build", "torch 2.9.0+cpu is built for the CPU only", "whl/cu130", pytorch=CPU),
    fails("torch_is_cpu_build", "is built for ROCm 6.4", "whl/cu130",
        pytorch=pytorch(version="2.9.0+rocm6.4", cuda=None, hip="6.4")),
    fails("torch_is_cpu_build", "CPU only", "whl/cu128", pytorch=CPU, driver=driver(version="570.26")),
    fails("torch_is_cpu_build", "CPU only", "whl/cu128", pytorch=CPU, driver=driver(version="525.60.13")),
    fails("torch_is_cpu_build", "CPU only", "whl/cu118", pytorch=CPU, driver=driver(version="470.82.01")),
    fails("torch_is_cpu_build", "CPU only", "pip install --force-reinstall torch",
        pytorch=CPU, driver=driver(version=None)),
    well("torch_is_cpu_build", "built for CUDA 13.0"),
    skips("torch_is_cpu_build", "no NVIDIA GPU", pytorch=CPU, driver=no_driver()),
    skips("torch_is_cpu_build", "0 GPUs are requested", pytorch=CPU, plan=Plan(expect_gpus=0)),
    skips("torch_is_cpu_build", "not installed", pytorch=MISSING),
    # driver_too_old_for_torch: 580.65.06 for CUDA 13, 525.60.13 for 12, 450.80.02 for 11
    fails("driver_too_old_for_torch", "driver 580.65.05, CUDA 13.0 needs 580.65.06 or newer", "whl/cu128",
        driver=driver(version="580.65.05", cuda_version=(12, 9))),
    fails("driver_too_old_for_torch", "driver 570.26, CUDA 13.0 needs 580.65.06", "update the driver to 580.65.06",
        driver=driver(version="570.26", cuda_version=None)),
    fails("driver_too_old_for_torch", "driver 525.60.12, CUDA 12.8 needs 525.60.13", "whl/cu118",
        driver=driver(version="525.60.12", cuda_version=(11, 8)), pytorch=CU128),
    fails("driver_too_old_for_torch", "CUDA 11.8 needs 450.80.02", "whl/cu118",
        driver=driver(version="440.33.01", cuda_version=(10, 2)), pytorch=pytorch(cuda="11.8")),
    well("driver_too_old_for_torch", "driver 580.65.06 runs CUDA 13.0"),
    well("driver_too_old_for_torch", "driver 525.60.13 runs CUDA 12.8",
        driver=driver(version="525.60.13"), pytorch=CU128),
    well("driver_too_old_for_torch", "driver 595.45.04 runs CUDA 12.8",
        driver=driver(version="595.45.04"), pytorch=CU128),
    well("driver_too_old_for_torch", "driver 535.161.08 runs CUDA 13.0 through a compatibility library",
        driver=driver(version="535.161.08", cuda_version=(13, 0))),
    fails("driver_too_old_for_torch", "driver 535.161.08, CUDA 13.0 needs", "whl/cu128",
        driver=driver(version="535.161.08", cuda_version=(12, 8))),
    skips("driver_too_old_for_torch", "torch has no CUDA", pytorch=CPU),
    skips("driver_too_old_for_torch", "the driver's version is unknown", driver=no_driver("UNKNOWN")),
    skips("driver_too_old_for_torch", "the oldest driver for CUDA 10.2", pytorch=pytorch(cuda="10.2")),
    # driver_older_than_toolkit: between the floor and the packaged driver
    informs("driver_older_than_toolkit", "driver 525.60.13, CUDA 12.8 came with 570.26", "a newer driver",
        driver=driver(version="525.60.13"), pytorch=CU128),
    informs("driver_older_than_toolkit", "driver 570.25, CUDA 12.8 came with 570.26", "a newer driver",
        driver=driver(version="570.25"), pytorch=CU128),
    well("driver_older_than_toolkit", "driver 570.26 fully supports CUDA 12.8",
        driver=driver(version="570.26"), pytorch=CU128),
    well("driver_older_than_toolkit", "fully supports CUDA 13.0"),
    skips("driver_older_than_toolkit", "too old", driver=driver(version="525.60.12"), pytorch=CU128),
    skips("driver_older_than_toolkit", "nothing to compare", pytorch=pytorch(cuda="12.7")),
    skips("driver_older_than_toolkit", "nothing to compare", pytorch=CPU),
    # torch_lacks_gpu_kernels
    fails("torch_lacks_gpu_kernels", "no kernels for sm_70 (GPU 3)", "whl/cu126",
        gpus=gpus(4, gpu(3, compute_capability=(7, 0)))),
    fails("torch_lacks_gpu_kernels", "no kernels for sm_120 (GPUs 0, 1, 2 and 3)", "whl/cu128",
        gpus=gpus(compute_capability=(12, 0)), pytorch=pytorch(arch_list=("sm_80", "sm_90"))),
    fails("torch_lacks_gpu_kernels", "no kernels for sm_80", "whl/cu128",
        gpus=gpus(compute_capability=(8, 0)), pytorch=pytorch(arch_list=("sm_86", "compute_90"))),
    fails("torch_lacks_gpu_kernels", "no kernels for sm_75", "whl/cu128",
        gpus=gpus(compute_capability=(7, 5)), pytorch=pytorch(arch_list=("sm_80",))),
    well("torch_lacks_gpu_kernels", "kernels for 4 visible GPUs"),
    well("torch_lacks_gpu_kernels", "3 visible GPUs",
        gpus=gpus(4, gpu(3, compute_capability=(7, 0))), visible=seen(0, 1, 2, value="0,1,2")),
    skips("torch_lacks_gpu_kernels", "torch has no CUDA", pytorch=CPU),
    skips("torch_lacks_gpu_kernels", "kernels are unknown", pytorch=pytorch(arch_list=None)),
    skips("torch_lacks_gpu_kernels", "the visible GPUs' compute capability is unknown",
        gpus=gpus(compute_capability=None)),
    # torch_sees_fewer_gpus
    fails("torch_sees_fewer_gpus", "torch sees 0 GPUs, 4 are visible", "mgpu doctor -v",
        torch_runtime=torch_runtime(0, cuda_error="error 802")),
    fails("torch_sees_fewer_gpus", "torch sees 3 GPUs, 4 are visible", "torch.cuda.init()",
        torch_runtime=torch_runtime(3)),
    fails("torch_sees_fewer_gpus", "torch sees 0 GPUs, 1 are visible", "torch.cuda.init()",
        torch_runtime=torch_runtime(0), visible=seen(value="MIG-1", mig="MIG-1")),
    well("torch_sees_fewer_gpus", "torch sees 4 GPUs"),
    well("torch_sees_fewer_gpus", "torch sees 1 GPU", torch_runtime=torch_runtime(1), visible=seen(2, value="2")),
    skips("torch_sees_fewer_gpus", "cannot be imported", torch_runtime=torch_runtime(0, import_error="OSError")),
    skips("torch_sees_fewer_gpus", "is unknown", torch_runtime=torch_runtime(device_count=None)),
    skips("torch_sees_fewer_gpus", "no GPU here", torch_runtime=torch_runtime(0), gpus=()),
    skips("torch_sees_fewer_gpus", "0 GPUs are requested", torch_runtime=torch_runtime(0), plan=Plan(expect_gpus=0)),
    # torch_without_nccl
    fails("torch_without_nccl", "torch 2.9.0+cu130 was built without NCCL", "pip install --force-reinstall torch",
        torch_runtime=torch_runtime(nccl_available=False, nccl_version=None)),
    well("torch_without_nccl", "built with NCCL 2.29.7"),
    skips("torch_without_nccl", "a single GPU does not",  # Jetson
        torch_runtime=torch_runtime(1, nccl_available=False), gpus=gpus(1), visible=seen(0)),
    skips("torch_without_nccl", "torch has no CUDA", pytorch=CPU),
    skips("torch_without_nccl", "torch.distributed is unknown", torch_runtime=torch_runtime(nccl_available=None)),
    # torch_built_for_another_python
    fails("torch_built_for_another_python", "is compiled for Python 3.10, this is Python 3.11.9", "echo $PYTHONPATH",
        pytorch=pytorch(built_for=(".cpython-310-x86_64-linux-gnu.so",))),
    fails("torch_built_for_another_python", "compiled for .pypy39", "-m pip install",
        pytorch=pytorch(built_for=(".pypy39-pp73-x86_64-linux-gnu.so",))),
    well("torch_built_for_another_python", "compiled for Python 3.11.9"),
    well("torch_built_for_another_python", "compiled for Python", pytorch=pytorch(built_for=(".abi3.so",))),
    skips("torch_built_for_another_python", "not installed", pytorch=MISSING),
    skips("torch_built_for_another_python", "is unknown", pytorch=pytorch(built_for=())),
    skips("torch_built_for_another_python", "is unknown", python=python(suffixes=())),
    # torch_kernels_only_as_ptx, torch_ptx_too_new_for_driver
    informs("torch_kernels_only_as_ptx", "torch 2.9.0+cu130 has only PTX for sm_120 (GPUs 0, 1, 2 and 3)",
        "pip install --upgrade torch", gpus=RTX_5090, pytorch=ONLY_PTX),
    well("torch_kernels_only_as_ptx", "nothing to compile for 4 visible GPUs"),
    well("torch_kernels_only_as_ptx", "nothing to compile", gpus=gpus(compute_capability=(7, 0)), pytorch=ONLY_PTX),
    skips("torch_kernels_only_as_ptx", "torch has no CUDA", pytorch=CPU),
    skips("torch_kernels_only_as_ptx", "the visible GPUs' compute capability is unknown",
        gpus=gpus(compute_capability=None)),
    fails("torch_ptx_too_new_for_driver",
        "torch has only PTX of CUDA 13.0 for GPUs 0, 1, 2 and 3, the driver supports 12.9", "whl/cu",
        gpus=RTX_5090, pytorch=ONLY_PTX, driver=driver(cuda_version=(12, 9))),
    well("torch_ptx_too_new_for_driver", "the driver compiles PTX of CUDA 13.0", gpus=RTX_5090, pytorch=ONLY_PTX),
    well("torch_ptx_too_new_for_driver", "nothing to compile", driver=driver(cuda_version=(12, 2))),
    skips("torch_ptx_too_new_for_driver", "is unknown",
        gpus=RTX_5090, pytorch=ONLY_PTX, driver=driver(cuda_version=None)),
    skips("torch_ptx_too_new_for_driver", "the visible GPUs' compute capability is unknown",
        gpus=gpus(compute_capability=None)),
    skips("torch_ptx_too_new_for_driver", "torch has no CUDA", pytorch=CPU),
    # arch_list_lacks_gpu
    warns("arch_list_lacks_gpu", "TORCH_CUDA_ARCH_LIST=8.0;8.6 does not include 9.0", "unset TORCH_CUDA_ARCH_LIST",
        env={"TORCH_CUDA_ARCH_LIST": "8.0;8.6"}),
    warns("arch_list_lacks_gpu", "does not include 12.0", "unset", env={"TORCH_CUDA_ARCH_LIST": "9.0a 10.0"},
        gpus=RTX_5090),
    warns("arch_list_lacks_gpu", "does not include 9.0", "unset", env={"TORCH_CUDA_ARCH_LIST": "10.0+PTX"}),
    well("arch_list_lacks_gpu", "8.0;8.6+PTX includes 4 visible GPUs", env={"TORCH_CUDA_ARCH_LIST": "8.0;8.6+PTX"}),
    well("arch_list_lacks_gpu", "includes", env={"TORCH_CUDA_ARCH_LIST": "7.5 8.0 8.6 9.0 10.0 12.0+PTX"}),
    well("arch_list_lacks_gpu", "includes", env={"TORCH_CUDA_ARCH_LIST": "Hopper"}),
    well("arch_list_lacks_gpu", "includes", env={"TORCH_CUDA_ARCH_LIST": "8.0"}, gpus=RTX_4090),
    skips("arch_list_lacks_gpu", "not set"),
    skips("arch_list_lacks_gpu", "native", env={"TORCH_CUDA_ARCH_LIST": "native"}),
    skips("arch_list_lacks_gpu", "names no architecture", env={"TORCH_CUDA_ARCH_LIST": "All"}),
    skips("arch_list_lacks_gpu", "the visible GPUs'",
        env={"TORCH_CUDA_ARCH_LIST": "8.0"}, gpus=gpus(compute_capability=None)),
    # torch_maps_foreign_library
    warns("torch_maps_foreign_library", "torch loaded /usr/local/cuda/lib64/libcudart.so.13.0.96", "LD_DEBUG=libs",
        torch_runtime=torch_runtime(mapped={"cudart": "/usr/local/cuda/lib64/libcudart.so.13.0.96"})),
    well("torch_maps_foreign_library", "cudart from torch's wheels"),
    well("torch_maps_foreign_library", "cudart from torch's wheels",  # reached by another link
        torch_runtime=torch_runtime(mapped={"cudart": "/data/envs/7/lib/nvidia/cu13/lib/libcudart.so.13"})),
    skips("torch_maps_foreign_library", "does not get its CUDA libraries",  # an image's torch, wheels of a package
        pytorch=pytorch(version=NGC, nccl_required=None),
        torch_runtime=torch_runtime(mapped={"cudart": "/usr/local/cuda/lib64/libcudart.so.13"})),
    skips("torch_maps_foreign_library", "no CUDA library that its wheels contain",
        torch_runtime=torch_runtime(mapped={})),
    skips("torch_maps_foreign_library", "no CUDA library that its wheels contain", libraries=libraries(found=())),
    skips("torch_maps_foreign_library", "no CUDA library that its wheels contain",  # NCCL has a check of its own
        torch_runtime=torch_runtime(mapped={"nccl": "/usr/lib/libnccl.so.2"}), libraries=libraries(CUDNN)),
    skips("torch_maps_foreign_library", "are unknown", torch_runtime=torch_runtime(mapped=None)),
    skips("torch_maps_foreign_library", "cannot be imported", torch_runtime=torch_runtime(import_error="OSError")),
    # cudnn_refused_by_torch
    warns("cudnn_refused_by_torch", "cuDNN version incompatibility: PyTorch was compiled against (9, 13, 0)",
        "unset LD_LIBRARY_PATH", torch_runtime=torch_runtime(cudnn_error="cuDNN version incompatibility: PyTorch was "
        "compiled against (9, 13, 0) but found runtime version (9, 1, 0)")),
    well("cudnn_refused_by_torch", "cuDNN 9.13.0"),
    skips("cudnn_refused_by_torch", "was not read", torch_runtime=torch_runtime(0, cudnn_version=None)),
    # torch_without_distributed
    fails("torch_without_distributed", "torch 2.9.0+cu130 has no torch.distributed", "pip install",
        torch_runtime=torch_runtime(nccl_available=False, gloo_available=False)),
    well("torch_without_distributed", "backends: nccl, gloo"),
    well("torch_without_distributed", "backends: gloo", torch_runtime=torch_runtime(0, nccl_available=False)),
    skips("torch_without_distributed", "is unknown", torch_runtime=torch_runtime(gloo_available=None)),
    skips("torch_without_distributed", "cannot be imported", torch_runtime=torch_runtime(import_error="OSError")),
    # torch_import_slow: 20 s
    informs("torch_import_slow", "import torch took 20 s", "df -h", torch_runtime=torch_runtime(import_s=20.0)),
    well("torch_import_slow", "imported in 19.9 s", torch_runtime=torch_runtime(import_s=19.9)),
    skips("torch_import_slow", "was not imported", torch_runtime=torch_runtime(import_s=None)),
    # extension_does_not_load
    warns("extension_does_not_load", "flash_attn cannot be loaded: flash_attn_2_cuda.so: undefined symbol: _ZN3c10",
        "pip uninstall -y flash-attn", torch_runtime=torch_runtime(extensions={"flash_attn": OLD_SYMBOL, "apex": ""})),
    warns("extension_does_not_load", "apex cannot be loaded: the process died while loading it", "apex",
        torch_runtime=torch_runtime(extensions={"apex": "the process died while loading it"})),
    warns("extension_does_not_load", "apex cannot be loaded", "git+https://github.com/NVIDIA/apex",
        torch_runtime=torch_runtime(extensions={"apex": OLD_SYMBOL})),
    warns("extension_does_not_load", "torchvision cannot be loaded",
        "pip install --no-cache-dir torchvision torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130",
        torch_runtime=torch_runtime(extensions={"torchvision": OLD_SYMBOL})),
    well("extension_does_not_load", "apex can be loaded", torch_runtime=torch_runtime(extensions={"apex": ""})),
    skips("extension_does_not_load", "no compiled extension"),
    skips("extension_does_not_load", "cannot be imported", torch_runtime=torch_runtime(import_error="OSError")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


# CUDA C programming guide, "Binary Compatibility": a cubin runs on the same major and a higher or equal minor; PTX on
# anything newer; sm_90a and its like on exactly that one.
@pytest.mark.parametrize(
    ("arches", "capability", "runs"),
    [
        (("sm_80",), (8, 0), True),
        (("sm_80",), (8, 6), True),
        (("sm_86",), (8, 0), False),
        (("sm_80",), (9, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("sm_100",), (10, 3), True),
        (("sm_100f",), (10, 3), True),
        (("sm_100f",), (12, 0), False),
        (("compute_80",), (12, 1), True),
        (("compute_90",), (9, 0), True),
        (("compute_90",), (8, 9), False),
        (("compute_90a",), (9, 0), True),
        (("compute_90a",), (12, 0), False),
        (("nonsense", "sm_120"), (12, 1), True),
        (ARCHES, (13, 0), True),
        (ARCHES, (7, 0), False),
    ],
)
def test_which_kernels_run_where(arches: tuple[str, ...], capability: tuple[int, int], runs: bool) -> None:
    facts = {"pytorch": pytorch(arch_list=arches), "gpus": gpus(compute_capability=capability)}
    case = Case("torch_lacks_gpu_kernels", "ok" if runs else "fail", "kernels for", changes=facts)
    assert case.answer().status == case.status
