"""Did an AMD GPU, its driver or ROCm fail?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from .._kernel_line import KERNEL_LINE

_INSTALL = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html"
_DOCKER = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html"
_HIP = "https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/debugging.html"
# fmt: off
_KERNEL_LOG = Fix("Read what the driver logged, and whether it is always the same GPU.",
                  ("sudo dmesg -T | grep -iE 'amdgpu|kfd' | tail -n 40", "rocm-smi"), who="admin")
_FIND = Fix("Find the kernel: the traceback then stops at it.",
            ("AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1 mgpu launch train.py",))

ROWS = (
    Row("log_amd_kernels_missing", "root", "cuda",
        r"HIP error: (?:invalid device function|no kernel image is available)|hipErrorNoBinaryForGpu|"
        r"rocBLAS error: Cannot read \S*TensileLibrary|rocBLAS error: Could not initialize Tensile",
        ("RuntimeError: HIP error: invalid device function",
         "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: No such file or directory for "
         "GPU arch : gfx1036", '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"'),
        "the installed torch or ROCm has no kernels for this AMD GPU",
        "Builds support some architectures (gfx...) only. A CPU's integrated GPU, counted as device 0, is usually "
        "not among them.",
        (Fix("Compare the architectures, and hide an integrated GPU.",
             ("rocminfo | grep -i gfx", "python -c 'import torch; print(torch.cuda.get_arch_list())'",
              "export HIP_VISIBLE_DEVICES=0,1")),
         Fix("Install a build for newer GPUs. A related consumer GPU can use the code of its generation.",
             ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/rocm6.4",
              "export HSA_OVERRIDE_GFX_VERSION=11.0.0  # RDNA 3; 10.3.0 for RDNA 2"))), _INSTALL),
    Row("log_amd_no_gpu", "root", "cuda",
        r"No HIP GPUs are available|[Uu]nable to open /dev/kfd|ROCk module is NOT loaded|no ROCm-capable device|"
        r"hipErrorNoDevice",
        ("RuntimeError: No HIP GPUs are available", "Unable to open /dev/kfd read-write: Permission denied",
         "ROCk module is NOT loaded, possibly no GPU devices", "RuntimeError: HIP error: no ROCm-capable device is "
                                                               "detected"),
        "the ranks see no AMD GPU",
        "The user is not in the groups video and render, the container has no /dev/kfd and /dev/dri, the driver is "
        "not loaded, or HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES hide the GPUs.",
        (Fix("Check device files, groups and variables.",
             ("ls -l /dev/kfd /dev/dri; id", "env | grep VISIBLE_DEVICES", "rocminfo | grep -i gfx")),
         Fix("Give the container the devices, the user the groups.",
             ("docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render ...",
              "sudo usermod -aG video,render $USER"))), _DOCKER),
    Row("log_amd_memory_fault", "root", "cuda", r"Memory access fault by GPU node-\d+",
        ("Memory access fault by GPU node-2 (Agent handle: 0x55d7) on address 0x7f3c00000000. Reason: Page not present "
         "or supervisor privilege.",),
        "a kernel accessed invalid memory on an AMD GPU",
        "A kernel reads out of bounds, this torch does not support the GPU, or GPUs access each other's memory through "
        "an IOMMU that translates it. The process is aborted without a traceback.",
        (_FIND, Fix("With several GPUs: check that the IOMMU passes through.",
                    ("cat /proc/cmdline  # iommu=pt", "mgpu doctor --only iommu_translates_peer_traffic")),
         _KERNEL_LOG), _HIP),
    Row("log_amd_queue_aborted", "root", "cuda",
        r"aborting with error ?: HSA_STATUS_ERROR|HSA_STATUS_ERROR_[A-Z_]+|HW Exception by GPU node-\d+",
        (":0:rocdevice.cpp            :2984: 123 us: [pid:1 tid:0x7] Callback: Queue 0x7f aborting with error : "
         "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
         "HW Exception by GPU node-3 (Agent handle: 0x560f) reason :GPU Hang",
         "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources."),
        "an AMD GPU stopped executing (runtime error or GPU hang)",
        "A kernel hung or trapped, memory or queues ran out, or firmware and driver have a fault. The rank is aborted "
        "without a traceback.",
        (_KERNEL_LOG, _FIND, Fix("Use a tested pair of driver and ROCm.", ("cat /sys/module/amdgpu/version; cat "
                                                                            "/opt/rocm/.info/version",),
                                 who="admin")),
        "https://github.com/ROCm/ROCm/issues/4021"),
    Row("log_amd_gpu_reset", "root", "kernel",
        KERNEL_LINE + r"amdgpu [0-9a-f:.]+: (?:amdgpu: )?(?:GPU reset begin|ring \S+ timeout|GPU reset.*failed|"
        r"GPU recovery failed|.*uncorrectable .*error)",
        ("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!", "[ 1234.567890] amdgpu 0000:03:00.0: amdgpu: ring "
                                                          "gfx_0.0.0 timeout, signaled seq=1, emitted seq=3"),
        "the driver reset an AMD GPU, or reports a fault of it",
        "The GPU did not respond, or its memory had an error. All programs on it fail.",
        (_KERNEL_LOG, Fix("Reboot the node. If it happens again, replace the GPU.", ("sudo reboot",), who="admin")),
        "https://docs.kernel.org/gpu/amdgpu/index.html"),
    Row("log_amd_hip_error", "secondary", "cuda",
        r"HIP error: (?!invalid device function|no kernel image|no ROCm-capable|out of memory|an illegal|"
        r"unspecified launch)(?P<what>.+)",
        ("RuntimeError: HIP error: invalid argument", "torch.AcceleratorError: HIP error: operation not supported"),
        "an operation on an AMD GPU failed: {what}",
        "Errors of the GPU are reported later than they happen: the call that fails is often not the cause.",
        (_FIND, _KERNEL_LOG), _HIP, summary="An operation on an AMD GPU failed."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
