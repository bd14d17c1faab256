"""checks/libraries"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Library
from tests.checks.facts import (
    Case,
    config,
    driver,
    fails,
    gpus,
    informs,
    libraries,
    no_driver,
    pytorch,
    skips,
    table,
    warns,
    well,
)

CPU = pytorch(version="2.9.0+cpu", cuda=None)
CU12 = pytorch(version="2.8.0+cu128", cuda="12.8")
WHEELS = {
    "nvidia-nvjitlink-cu12": "12.8.93", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cublas-cu12": "12.8.4.1",
    "nvidia-nccl-cu12": "2.27.3",
}  # fmt: skip
NVJITLINK = Library("nvJitLink", "/opt/env/lib/nvidia/nvjitlink/lib/libnvJitLink.so.12", "wheel")
CUDNN = Library("cudnn", "/opt/env/lib/nvidia/cudnn/lib/libcudnn.so.9", "wheel")
DEEPSPEED = {"torch": "2.9.0", "deepspeed": "0.18.9"}
INDUCTOR = config("distributed_type: MULTI_GPU\ndynamo_config:\n  dynamo_backend: INDUCTOR\n")
COMPAT = Library("cuda", "/usr/local/cuda-13.0/compat/libcuda.so.590.44.01", "compat", "590.44.01", True)
OLD_COMPAT = Library("cuda", "/usr/local/cuda-12.4/compat/libcuda.so.550.54.15", "compat", "550.54.15", True)
NO_LIBCUDA = Library("cuda", "libcuda.so.1", "system", loads=False, error="libcuda.so.1: cannot open shared object")
TOOLKIT = {"torch": ("cuda-toolkit[nvjitlink]==13.0.2",), "cuda-toolkit": ("nvidia-nvjitlink==13.0.88.*",)}
STUB = Library("cuda", "/usr/local/cuda/lib64/stubs/libcuda.so", "stub", None, True)


def shadow(name: str, version: str | None, major: int = 12, folder: str = "/usr/local/cuda-12.1/lib64") -> Library:
    return Library(name, f"{folder}/lib{name}.so.{major}", "library_path", version)


def bitsandbytes(*cuda: str) -> tuple[Library, ...]:
    folder = "/opt/env/lib/bitsandbytes"
    return tuple(
        Library("bitsandbytes", f"{folder}/libbitsandbytes_cuda{v.replace('.', '')}.so", "wheel", v) for v in cuda
    )


CASES = (
    # cuda_wheels_overwrite_each_other
    warns("cuda_wheels_overwrite_each_other", "nvidia-cudnn-cu12 9.10.2.21 and nvidia-cudnn-cu13 9.13.0.50",
        "pip uninstall -y nvidia-cudnn-cu12",
        libraries=libraries(wheels={"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cudnn-cu13": "9.13.0.50"})),
    warns("cuda_wheels_overwrite_each_other", "nvidia-cudnn-cu12", "--no-deps nvidia-cudnn-cu13==9.13.0.50",
        libraries=libraries(wheels={"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cudnn-cu13": "9.13.0.50"})),
    warns("cuda_wheels_overwrite_each_other", "nvidia-nvshmem-cu11 1 and nvidia-nvshmem-cu12 2", "pip uninstall",
        libraries=libraries(wheels={"nvidia-nvshmem-cu12": "2", "nvidia-nvshmem-cu11": "1"})),
    well("cuda_wheels_overwrite_each_other", "2 NVIDIA wheels, no duplicates"),
    well("cuda_wheels_overwrite_each_other", "no duplicates",  # folders of their own
        libraries=libraries(wheels={"nvidia-cublas": "13.1.0.3", "nvidia-cublas-cu12": "12.8.4.1"})),
    skips("cuda_wheels_overwrite_each_other", "no NVIDIA wheel", libraries=libraries(wheels={})),
    # cuda_families_mixed
    informs("cuda_families_mixed", "2 NVIDIA wheels for cu12, torch is built for CUDA 13.0",
        "pip uninstall -y nvidia-cublas-cu12 nvidia-cufft-cu12", libraries=libraries(
            wheels={"nvidia-cublas": "13.1", "nvidia-cublas-cu12": "12.8.4.1", "nvidia-cufft-cu12": "11.3.3.83"})),
    well("cuda_families_mixed", "2 NVIDIA wheels, all for CUDA 13"),
    well("cuda_families_mixed", "4 NVIDIA wheels, all for CUDA 12", libraries=libraries(wheels=WHEELS), pytorch=CU12),
    skips("cuda_families_mixed", "torch has no CUDA", pytorch=CPU),
    skips("cuda_families_mixed", "no NVIDIA wheel", libraries=libraries(wheels={})),
    # cuda_wheels_not_as_required
    warns("cuda_wheels_not_as_required", "nvidia-cudnn-cu13 9.12.0.1 (torch requires ==9.13.0.50)",
        "pip install --no-deps nvidia-cudnn-cu13==9.13.0.50",
        libraries=libraries(wheels={"nvidia-nccl-cu13": "2.29.7", "nvidia-cudnn-cu13": "9.12.0.1"})),
    warns("cuda_wheels_not_as_required", "nvidia-cudnn-cu13 missing", "nvidia-cudnn-cu13==9.13.0.50",
        libraries=libraries(wheels={"nvidia-nccl-cu13": "2.29.7"})),
    warns("cuda_wheels_not_as_required", "nvidia-cudnn-cu13 10.0", "pip install",  # the next major is another library
        libraries=libraries(wheels={"nvidia-cudnn-cu13": "10.0.0.1"})),
    warns("cuda_wheels_not_as_required", "nvidia-nvjitlink 13.0.39 (torch requires ==13.0.88.*)",
        "'nvidia-nvjitlink==13.0.88.*'", libraries=libraries(
            wheels={"cuda-toolkit": "13.0.2", "nvidia-nvjitlink": "13.0.39"}, requires=TOOLKIT)),
    well("cuda_wheels_not_as_required", "1 as torch requires"),
    well("cuda_wheels_not_as_required", "1 as torch requires, 1 of them newer",
        libraries=libraries(wheels={"nvidia-cudnn-cu13": "9.14.0.64"})),
    well("cuda_wheels_not_as_required", "2 as torch requires", libraries=libraries(
        wheels={"cuda-toolkit": "13.0.2", "nvidia-nvjitlink": "13.0.88"}, requires=TOOLKIT)),
    skips("cuda_wheels_not_as_required", "torch requires no NVIDIA wheel", libraries=libraries(requires={})),
    skips("cuda_wheels_not_as_required", "torch has no CUDA", pytorch=CPU),
    # bitsandbytes_lacks_cuda
    warns("bitsandbytes_lacks_cuda", "bitsandbytes 0.45.5 has libraries for CUDA 11.8, 12.4; torch is built for 13.0",
        "pip install --upgrade bitsandbytes",
        packages={"bitsandbytes": "0.45.5"}, libraries=libraries(*bitsandbytes("12.4", "11.8"))),
    warns("bitsandbytes_lacks_cuda", "torch is built for 12.8", "--upgrade",  # before 0.50 the minor counts
        packages={"bitsandbytes": "0.49.2"}, libraries=libraries(*bitsandbytes("12.6")), pytorch=CU12),
    warns("bitsandbytes_lacks_cuda", "torch is built for 13.0", "--upgrade",
        packages={"bitsandbytes": "0.50.1"}, libraries=libraries(*bitsandbytes("12.6"))),
    well("bitsandbytes_lacks_cuda", "bitsandbytes 0.50.0 has a library for CUDA 12.8",
        packages={"bitsandbytes": "0.50.0"}, libraries=libraries(*bitsandbytes("12.6")), pytorch=CU12),
    well("bitsandbytes_lacks_cuda", "has a library for CUDA 13.0",
        packages={"bitsandbytes": "0.49.0"}, libraries=libraries(*bitsandbytes("12.8", "13.0"))),
    skips("bitsandbytes_lacks_cuda", "not installed"),
    skips("bitsandbytes_lacks_cuda", "torch has no CUDA", packages={"bitsandbytes": "0.49.0"}, pytorch=CPU),
    skips("bitsandbytes_lacks_cuda", "unknown", packages={"bitsandbytes": "0.49.0"}),
    skips("bitsandbytes_lacks_cuda", "BNB_CUDA_VERSION=124 selects",
        packages={"bitsandbytes": "0.45.5"}, env={"BNB_CUDA_VERSION": "124"}),
    # library_path_shadows_wheels
    warns("library_path_shadows_wheels",
        "/usr/local/cuda-12.1/lib64/libnvJitLink.so.12 is 12.1.105, torch's wheel 12.8.93", "unset LD_LIBRARY_PATH",
        libraries=libraries(found=(NVJITLINK, shadow("nvJitLink", "12.1.105")), wheels=WHEELS), pytorch=CU12),
    warns("library_path_shadows_wheels", "libcudnn.so.9 is 9.1.0, torch's wheel 9.10.2.21", "/opt/cudnn/lib",
        libraries=libraries(found=(CUDNN, shadow("cudnn", "9.1.0", 9, "/opt/cudnn/lib")), wheels=WHEELS), pytorch=CU12),
    well("library_path_shadows_wheels", "1 CUDA library on LD_LIBRARY_PATH, none older",  # a newer one has the symbols
        libraries=libraries(found=(NVJITLINK, shadow("nvJitLink", "12.9.86")), wheels=WHEELS), pytorch=CU12),
    well("library_path_shadows_wheels", "none older",  # the same minor
        libraries=libraries(found=(NVJITLINK, shadow("nvJitLink", "12.8.61")), wheels=WHEELS), pytorch=CU12),
    well("library_path_shadows_wheels", "none older",  # another name: libnvJitLink.so.13
        libraries=libraries(found=(NVJITLINK, shadow("nvJitLink", "13.0.39", 13)), wheels=WHEELS), pytorch=CU12),
    well("library_path_shadows_wheels", "none older",  # torch finds this one by its own path first
        libraries=libraries(found=(NVJITLINK, shadow("cudart", "12.1.105")), wheels=WHEELS), pytorch=CU12),
    well("library_path_shadows_wheels", "none older",  # its version is not written anywhere
        libraries=libraries(found=(NVJITLINK, shadow("nvJitLink", None)), wheels=WHEELS), pytorch=CU12),
    well("library_path_shadows_wheels", "no CUDA library on LD_LIBRARY_PATH"),
    skips("library_path_shadows_wheels", "torch has no CUDA", pytorch=CPU),
    skips("library_path_shadows_wheels", "not from wheels", libraries=libraries(wheels={})),
    # libcuda_missing
    fails("libcuda_missing", "libcuda.so.1 cannot be loaded", "ldconfig -p | grep libcuda",
        libraries=libraries(NO_LIBCUDA), driver=driver(cuda_version=None)),
    well("libcuda_missing", "libcuda from /usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"),
    skips("libcuda_missing", "NVML found libcuda", libraries=libraries(NO_LIBCUDA)),
    skips("libcuda_missing", "was not tried", libraries=libraries(found=())),
    skips("libcuda_missing", "no NVIDIA driver responds", libraries=libraries(NO_LIBCUDA), driver=no_driver()),
    skips("libcuda_missing", "no GPU here", libraries=libraries(NO_LIBCUDA), gpus=()),
    # libcuda_is_stub
    fails("libcuda_is_stub", "cuda/lib64/stubs/libcuda.so is a stub", "grep stubs", libraries=libraries(STUB)),
    fails("libcuda_is_stub", "/x/stubs/libnvidia-ml.so is a stub", "stubs folder",
        libraries=libraries(Library("nvidia-ml", "/x/stubs/libnvidia-ml.so", "stub", None, True))),
    well("libcuda_is_stub", "libcuda.so.580.65.06: no stub"),
    skips("libcuda_is_stub", "neither libcuda nor libnvidia-ml can be loaded", libraries=libraries(NO_LIBCUDA)),
    skips("libcuda_is_stub", "them was not tried", libraries=libraries(found=())),
    # libcuda_not_the_drivers
    fails("libcuda_not_the_drivers", "libcuda is 550.54.14, the driver 580.65.06", "ldconfig -p",
        libraries=libraries(Library("cuda", "/usr/lib/libcuda.so.550.54.14", "system", "550.54.14", True))),
    fails("libcuda_not_the_drivers", "cuda-compat 550.54.15 is used with the newer driver 580.65.06",
        "Remove /usr/local/cuda-12.4/compat from", libraries=libraries(OLD_COMPAT)),
    fails("libcuda_not_the_drivers", "cuda-compat 550.54.15 is used with", "LD_LIBRARY_PATH",  # equal: no compat
        libraries=libraries(OLD_COMPAT), driver=driver(version="550.54.15")),
    well("libcuda_not_the_drivers", "cuda-compat 590.44.01 over driver 580.65.06", libraries=libraries(COMPAT)),
    well("libcuda_not_the_drivers", "libcuda and driver are 580.65.06"),
    skips("libcuda_not_the_drivers", "does not report its version",
        libraries=libraries(Library("cuda", "/usr/lib/wsl/lib/libcuda.so.1.1", "system", "1.1", True))),
    skips("libcuda_not_the_drivers", "does not report its version", libraries=libraries(STUB)),
    skips("libcuda_not_the_drivers", "cannot be loaded", libraries=libraries(NO_LIBCUDA)),
    skips("libcuda_not_the_drivers", "version is unknown", driver=driver(version=None)),
    # cuda_compat_active, cuda_compat_on_geforce
    informs("cuda_compat_active", "cuda-compat 590.44.01 over driver 580.65.06", "NCCL_CUMEM_HOST_ENABLE=0",
        libraries=libraries(COMPAT)),
    well("cuda_compat_active", "the driver's own /usr/lib"),
    skips("cuda_compat_active", "cannot be loaded", libraries=libraries(NO_LIBCUDA)),
    fails("cuda_compat_on_geforce", "NVIDIA GeForce RTX 4090 (GPUs 0, 1, 2 and 3) with cuda-compat", "ldconfig",
        libraries=libraries(COMPAT), gpus=gpus(name="NVIDIA GeForce RTX 4090")),
    well("cuda_compat_on_geforce", "no GeForce among 4 visible GPUs", libraries=libraries(COMPAT)),
    well("cuda_compat_on_geforce", "the driver's own", gpus=gpus(name="NVIDIA GeForce RTX 4090")),
    skips("cuda_compat_on_geforce", "no visible GPU", libraries=libraries(COMPAT), gpus=()),
    skips("cuda_compat_on_geforce", "cannot be loaded", libraries=libraries(NO_LIBCUDA)),
    # preload_hooks_ranks
    informs("preload_hooks_ranks", "/opt/monitor/libhook.so", "unset LD_PRELOAD",
        libraries=libraries(Library("libhook.so", "/opt/monitor/libhook.so", "preload", None, True))),
    informs("preload_hooks_ranks", "/gone/libtcmalloc.so.4 (does not exist)", "cat /etc/ld.so.preload",
        libraries=libraries(Library("libtcmalloc.so.4", "/gone/libtcmalloc.so.4", "preload", None, False))),
    well("preload_hooks_ranks", "2 preloaded, all of them common", libraries=libraries(
        Library("libjemalloc.so.2", "libjemalloc.so.2", "preload"),
        Library("libtcmalloc_minimal.so.4", "/usr/lib/libtcmalloc_minimal.so.4", "preload", None, True))),
    well("preload_hooks_ranks", "no library is preloaded"),
    # nvcc_of_another_cuda
    informs("nvcc_of_another_cuda", "nvcc is 12.8, torch is built for CUDA 13.0", "CUDA_HOME=/usr/local/cuda-13.0",
        libraries=libraries(nvcc="12.8")),
    well("nvcc_of_another_cuda", "nvcc 13.1, torch for CUDA 13.0", libraries=libraries(nvcc="13.1")),
    skips("nvcc_of_another_cuda", "there is no nvcc", libraries=libraries(nvcc=None, nvcc_path=None)),
    skips("nvcc_of_another_cuda", "torch has no CUDA", pytorch=CPU),
    # nvcc_newer_than_driver
    informs("nvcc_newer_than_driver", "nvcc is 13.1, the driver supports CUDA up to 13.0", "cuda-13.0",
        libraries=libraries(nvcc="13.1")),
    well("nvcc_newer_than_driver", "nvcc 13.0, the driver supports CUDA 13.0"),
    well("nvcc_newer_than_driver", "nvcc 9.2", libraries=libraries(nvcc="9.2")),
    skips("nvcc_newer_than_driver", "there is no nvcc", libraries=libraries(nvcc=None)),
    skips("nvcc_newer_than_driver", "is unknown", driver=driver(cuda_version=None)),
    # deepspeed_cannot_compile
    warns("deepspeed_cannot_compile", "deepspeed 0.18.9 without nvcc", "export CUDA_HOME=/usr/local/cuda-13.0",
        packages=DEEPSPEED, libraries=libraries(nvcc=None, nvcc_path=None, cuda_home=None)),
    warns("deepspeed_cannot_compile", "without nvcc, a C++ compiler and ninja", "pip install ninja",
        packages=DEEPSPEED, libraries=libraries(nvcc=None, nvcc_path=None, compiler=None, ninja=None)),
    well("deepspeed_cannot_compile", "nvcc 13.0, C++ compiler, ninja", packages=DEEPSPEED),
    skips("deepspeed_cannot_compile", "not installed", libraries=libraries(nvcc_path=None)),
    skips("deepspeed_cannot_compile", "torch has no CUDA", packages=DEEPSPEED, pytorch=CPU),
    # deepspeed_refuses_nvcc: op_builder/builder.py accepts minors it lists; CUDA 13 has no list
    warns("deepspeed_refuses_nvcc", "nvcc is 12.8, torch is built for CUDA 13.0, and deepspeed 0.18.9 does not accept",
        "export CUDA_HOME=/usr/local/cuda-13.0", packages=DEEPSPEED, libraries=libraries(nvcc="12.8")),
    warns("deepspeed_refuses_nvcc", "nvcc is 13.1", "export DS_SKIP_CUDA_CHECK=1",
        packages=DEEPSPEED, libraries=libraries(nvcc="13.1")),
    warns("deepspeed_refuses_nvcc", "nvcc is 12.6, torch is built for CUDA 12.8", "DS_SKIP_CUDA_CHECK",
        packages={"deepspeed": "0.16.3"}, libraries=libraries(nvcc="12.6"), pytorch=CU12),
    well("deepspeed_refuses_nvcc", "deepspeed 0.16.4 accepts nvcc 12.6",
        packages={"deepspeed": "0.16.4"}, libraries=libraries(nvcc="12.6"), pytorch=CU12),
    warns("deepspeed_refuses_nvcc", "nvcc is 12.9", "DS_SKIP_CUDA_CHECK",
        packages={"deepspeed": "0.17.1"}, libraries=libraries(nvcc="12.9"), pytorch=CU12),
    well("deepspeed_refuses_nvcc", "accepts nvcc 12.9",
        packages={"deepspeed": "0.17.2"}, libraries=libraries(nvcc="12.9"), pytorch=CU12),
    well("deepspeed_refuses_nvcc", "accepts nvcc 11.6",
        packages=DEEPSPEED, libraries=libraries(nvcc="11.6"), pytorch=pytorch(cuda="11.8")),
    well("deepspeed_refuses_nvcc", "allowed by DS_SKIP_CUDA_CHECK=1",
        packages=DEEPSPEED, libraries=libraries(nvcc="13.1"), env={"DS_SKIP_CUDA_CHECK": "1"}),
    well("deepspeed_refuses_nvcc", "nvcc and torch are both for CUDA 13.0", packages=DEEPSPEED),
    skips("deepspeed_refuses_nvcc", "not installed"),
    skips("deepspeed_refuses_nvcc", "there is no nvcc", packages=DEEPSPEED, libraries=libraries(nvcc=None)),
    skips("deepspeed_refuses_nvcc", "torch has no CUDA", packages=DEEPSPEED, pytorch=CPU),
    # compiler_missing_for_dynamo
    warns("compiler_missing_for_dynamo", "dynamo_backend: INDUCTOR, but no C compiler", "apt-get install -y gcc",
        config=INDUCTOR, libraries=libraries(c_compiler=None)),
    warns("compiler_missing_for_dynamo", "no C compiler", "gcc",  # the key as old files have it
        config=config("distributed_type: MULTI_GPU\ndynamo_backend: inductor\n"), libraries=libraries(c_compiler=None)),
    well("compiler_missing_for_dynamo", "a C compiler, version 13", config=INDUCTOR),
    skips("compiler_missing_for_dynamo", "does not use Inductor", libraries=libraries(c_compiler=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
