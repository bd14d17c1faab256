"""What do CUDA's error codes mean for a training run, and how are they fixed?

Codes and names: cuda.h, CUresult (CUDA 13). Messages: as the CUDA runtime, and therefore torch, prints them. Driver and
runtime codes agree from 100 up, and for the lower codes listed here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix

_DRIVER_API = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
_RUNTIME_API = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"


class CudaError(NamedTuple):
    """One CUDA error code. `message` is the runtime's text, for errors that come without a code."""

    code: int
    name: str
    message: str
    cause: str
    fixes: tuple[Fix, ...]
    source: str = _DRIVER_API


_WHO_USES_IT = Fix("Find out who uses the GPU, then wait or choose another one.", ("nvidia-smi",))
_REBOOT = Fix("Reboot, so that kernel module and libraries have the same version.", ("sudo reboot",), who="admin")
_KERNEL_LOG = ("sudo dmesg | grep -iE 'nvrm|nvidia'",)
_RESET = Fix("Stop everything on this GPU and reset it.", ("sudo nvidia-smi --gpu-reset -i INDEX",), who="admin")
_BOARD = Fix("If it recurs after a reset, have the board replaced.", ("nvidia-bug-report.sh",), who="hardware")
_NO_COMPAT = Fix(
    "Remove compat (and stubs) directories from the library path.",
    ("export LD_LIBRARY_PATH=$(echo \"$LD_LIBRARY_PATH\" | tr ':' '\\n' | grep -vE 'compat|stubs' | paste -sd:)",),
)
# fmt: off
_RELOAD_UVM = Fix(
    "Reload nvidia_uvm.", ("sudo modprobe -r nvidia_uvm; sudo modprobe nvidia_uvm", "nvidia-modprobe -u -c=0"),
    who="admin",
)
# fmt: on
_NO_HMM = Fix(
    "If the kernel log contains `devmem_alloc_pagemap … err -34`, disable HMM.",
    (
        "echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee /etc/modprobe.d/uvm.conf",
        "sudo modprobe -r nvidia_uvm; sudo modprobe nvidia_uvm",
    ),
    who="admin",
)
_NEWER_DRIVER = Fix("Install a newer driver.", (), who="admin")
_OLDER_TORCH = Fix(
    "Or install a torch built for an older CUDA.",
    ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",),
)
_ARCH_LIST = Fix(
    "See which GPUs torch was built for.", ("python -c 'import torch; print(torch.cuda.get_arch_list())'",)
)
_NO_MPS = Fix(
    "Stop or restart the MPS daemon. If you do not use MPS, unset its variables.",
    ("echo quit | nvidia-cuda-mps-control", "unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY"),
)
_FABRIC = Fix(
    "On an NVSwitch machine, start the fabric manager in the driver's version. If it was restarted, reset the GPUs.",
    ("sudo systemctl restart nvidia-fabricmanager", "systemctl status nvidia-fabricmanager"),
    who="admin",
)
# The computation contains no user code.
_NOT_THE_PROGRAM = "The test is a plain matrix product, so the GPU, its memory or the driver is at fault."
_FAULTY = (
    Fix("Check what the driver logged (an Xid).", _KERNEL_LOG, who="admin"),
    _RESET,
    _BOARD,
)

# fmt: off
ERRORS: dict[int, CudaError] = {
    error.code: error
    for error in (
        CudaError(
            1, "CUDA_ERROR_INVALID_VALUE", "invalid argument",
            "The driver rejects a call that is valid on other machines: libcuda and the kernel module do not match, or "
            "the driver is in a bad state.",
            (Fix("Check what the driver logged.", _KERNEL_LOG, who="admin"), _REBOOT),
        ),
        CudaError(
            2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory",
            "There is no memory even for a CUDA context: other processes use it, or a dead process did not free it.",
            (_WHO_USES_IT, Fix("List processes that nvidia-smi does not show.", ("fuser -v /dev/nvidia*",))),
        ),
        CudaError(
            3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error",
            "The driver did not start. A program that forks after using CUDA gets this error too, but this test does "
            "not fork, so the cause is the machine.",
            (Fix("Check what the driver logged.", _KERNEL_LOG, who="admin"), _RELOAD_UVM, _NO_HMM),
        ),
        CudaError(
            34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library",
            "The toolkit's stub libcuda, meant only for linking, was loaded instead of the driver's.",
            (_NO_COMPAT,),
            "https://github.com/NVIDIA/warp/issues/219",
        ),
        CudaError(
            35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version",
            "The CUDA version that torch was built with requires a newer driver.",
            (_NEWER_DRIVER, _OLDER_TORCH),
            _RUNTIME_API,
        ),
        CudaError(
            36, "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver",
            "The program called a function that this driver does not support yet.",
            (_NEWER_DRIVER, _OLDER_TORCH),
            _RUNTIME_API,
        ),
        CudaError(
            46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "busy or unavailable",
            "The GPU accepts no more processes (exclusive compute mode, already in use), none at all (prohibited), or "
            "is in MIG mode without an instance.",
            (
                Fix("Check its compute mode and MIG mode.", ("nvidia-smi -q -d COMPUTE", "nvidia-smi -L")),
                Fix("Reset the compute mode to the default.", ("sudo nvidia-smi -i INDEX -c DEFAULT",), who="admin"),
            ),
        ),
        CudaError(
            100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected",
            "The driver shows no GPU to this process: the container or job was given none, or this user may not open "
            "the device files.",
            (
                Fix("Check which device files exist and who may open them.", ("ls -l /dev/nvidia*", "nvidia-smi -L")),
                Fix("Start the container with the GPUs.", ("docker run --gpus all ...",)),
            ),
        ),
        CudaError(
            101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal",
            "The program requested a GPU that this process does not have: more ranks than GPUs, or an index from "
            "another machine.",
            (Fix("List the visible GPUs.", ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES")),),
        ),
        CudaError(
            102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "valid Grid license",
            "The virtual GPU has no license.",
            (Fix("Apply the vGPU license.", ("nvidia-smi -q | grep -i license",), who="admin"),),
        ),
        CudaError(
            200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid",
            "The compiled kernels cannot be loaded: a damaged installation, or a library built for another CUDA.",
            (Fix("Reinstall torch.", ("pip install --force-reinstall --no-cache-dir torch",)),),
        ),
        CudaError(
            209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device",
            "This build of torch has no kernels for this GPU's compute capability.",
            (
                _ARCH_LIST,
                Fix("If the GPU is newer than this torch, upgrade torch.", ("pip install --upgrade torch",)),
                Fix(
                    "For Volta and older GPUs, install a build for CUDA 12.6.",
                    ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",),
                ),
            ),
        ),
        CudaError(
            214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered",
            "The GPU's memory had an error that ECC could not correct.",
            (_RESET, _BOARD),
        ),
        CudaError(
            217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices",
            "The program requested direct access between two GPUs that do not support it.",
            (Fix("See which pairs support it.", ("nvidia-smi topo -p2p r",)),),
        ),
        CudaError(
            218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed",
            "The driver could not compile torch's PTX code for this GPU.",
            (_NEWER_DRIVER, _OLDER_TORCH),
        ),
        CudaError(
            220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error",
            "An NVLink failed during a transfer.",
            (Fix("Check the links.", ("nvidia-smi nvlink -e", "nvidia-smi nvlink -s")), _RESET, _BOARD),
        ),
        CudaError(
            221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found",
            "The driver's libnvidia-ptxjitcompiler.so.1 is missing, often because a container was given only part of "
            "the driver.",
            (
                Fix(
                    "Start the container with the compute capability.",
                    ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",),
                ),
                Fix("Otherwise, install the complete driver.", ("ldconfig -p | grep ptxjitcompiler",), who="admin"),
            ),
        ),
        CudaError(
            222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "compiled with an unsupported toolchain",
            "PTX code from a newer CUDA than the driver supports (generated by Triton, torch.compile or an extension).",
            (_NEWER_DRIVER, _OLDER_TORCH),
            "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        ),
        CudaError(
            226, "CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error",
            f"The GPU stopped this process to keep a fault from spreading. {_NOT_THE_PROGRAM}",
            _FAULTY,
        ),
        CudaError(
            302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found",
            "The driver's libraries have different versions.",
            (Fix("List the driver's libraries.", ("ldconfig -p | grep -E 'libcuda|libnvidia'",)), _REBOOT),
        ),
        CudaError(
            303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed",
            "One of the driver's libraries does not initialize.",
            (Fix("List the driver's libraries.", ("ldconfig -p | grep -E 'libcuda|libnvidia'",)), _REBOOT),
        ),
        CudaError(
            304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS",
            "The kernel rejected a request of the driver. Often this process may not open a device file "
            "(/dev/nvidia-uvm first), or it hit a limit on memory or files.",
            (
                Fix("Check the device files and the limits.", ("ls -l /dev/nvidia*", "ulimit -a")),
                Fix("Check what the driver logged.", _KERNEL_LOG, who="admin"),
            ),
        ),
        CudaError(
            401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state",
            "NVLink multicast (NVLS) cannot be set up because of a problem with the fabric manager.",
            (
                _FABRIC,
                Fix("Disable multicast.", ("export NCCL_NVLS_ENABLE=0",), kind="stopgap",
                    caveat="All-reduce inside the machine is slower."),
            ),
            "https://github.com/NVIDIA/nccl/issues/1788",
        ),
        CudaError(
            700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered", _NOT_THE_PROGRAM, _FAULTY,
        ),
        CudaError(
            701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch",
            "A kernel needs more resources than this GPU has: it was built for another model, or MPS limits its share.",
            (_ARCH_LIST, _NO_MPS),
        ),
        CudaError(
            702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated",
            "The driver stopped a kernel that blocked a display on this GPU for too long.",
            (Fix("Train on a GPU without a display, or stop the display server.", ("nvidia-smi -q -d DISPLAY",)),),
        ),
        CudaError(710, "CUDA_ERROR_ASSERT", "device-side assert triggered", _NOT_THE_PROGRAM, _FAULTY),
        CudaError(714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error", _NOT_THE_PROGRAM, _FAULTY),
        CudaError(
            711, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted",
            "A GPU can have direct access to at most 8 others over PCIe. This process uses more: it sees more than 9 "
            "GPUs, or more ranks than GPUs were started on this machine.",
            (
                Fix("Check that there are as many ranks as GPUs, at most 8 for each run.",
                    ("nvidia-smi -L", "mgpu configure --validate accelerate.yaml",
                     "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7")),
                Fix("Or run without direct access.", ("export NCCL_P2P_DISABLE=1",)),
            ),
            "https://discuss.pytorch.org/t/run-time-error-when-using-driver-with-16-gpus/73503",
        ),
        CudaError(
            715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered", _NOT_THE_PROGRAM, _FAULTY,
        ),
        CudaError(716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address", _NOT_THE_PROGRAM, _FAULTY),
        CudaError(
            717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space",
            _NOT_THE_PROGRAM, _FAULTY,
        ),
        CudaError(718, "CUDA_ERROR_INVALID_PC", "invalid program counter", _NOT_THE_PROGRAM, _FAULTY),
        CudaError(719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure", _NOT_THE_PROGRAM, _FAULTY),
        CudaError(
            800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted",
            "The driver denies this process access: it may not open an IMEX channel or another device file.",
            (
                Fix("Check the device files.", ("ls -l /dev/nvidia* /dev/nvidia-caps*",)),
                Fix(
                    "Start the container with the IMEX channel.",
                    ("docker run --gpus all -e NVIDIA_IMEX_CHANNELS=0 ...",),
                ),
            ),
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        ),
        CudaError(
            801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported",
            "This GPU or this kind of machine (virtual GPU, WSL) does not support the operation.",
            (Fix("Check what kind of GPU this is.", ("nvidia-smi -q | grep -iE 'product|virtualization'",)),),
        ),
        CudaError(
            802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized",
            "A service that CUDA depends on is not ready: on NVSwitch machines (HGX, DGX) the fabric manager; with "
            "confidential computing, the step that marks the GPUs as ready.",
            (
                _FABRIC,
                Fix("With confidential computing, mark the GPUs as ready.", ("sudo nvidia-smi conf-compute -srs 1",),
                    who="admin"),
                _NO_HMM,
            ),
            "https://github.com/pytorch/pytorch/issues/35710",
        ),
        CudaError(
            803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination",
            "libcuda and the kernel module have different versions: the driver was updated while the old module "
            "stayed loaded, or a container brings its own libcuda.",
            (_NO_COMPAT, _REBOOT),
            "https://docs.nvidia.com/deploy/cuda-compatibility/",
        ),
        CudaError(
            804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW",
            "libcuda is newer than the kernel module, which works only on data center GPUs: a cuda-compat package "
            "takes precedence over the driver's own libcuda, or the driver was updated without a reboot.",
            (_NO_COMPAT, _REBOOT),
            "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        ),
        CudaError(
            805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect",
            "An MPS daemon is configured but does not respond.", (_NO_MPS,),
        ),
        CudaError(
            806, "CUDA_ERROR_MPS_RPC_FAILURE", "call between the MPS server and the MPS client failed",
            "The MPS server stopped responding.", (_NO_MPS,),
        ),
        CudaError(
            807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server is not ready to accept new MPS client requests",
            "The MPS server is recovering from another client's fault.", (_NO_MPS,),
        ),
        CudaError(
            808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "resources required to create MPS client have been exhausted",
            "MPS already has its maximum number of clients.", (_WHO_USES_IT, _NO_MPS),
        ),
        CudaError(
            809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
            "hardware resources required to support device connections have been exhausted",
            "MPS already has its maximum number of connections.", (_WHO_USES_IT, _NO_MPS),
        ),
        CudaError(
            810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client has been terminated by the server",
            "The MPS server stopped this process, usually after a fault in another client on the same GPU.",
            (_NO_MPS,),
        ),
        CudaError(
            999, "CUDA_ERROR_UNKNOWN", "unknown error",
            "The driver reports no details. Often nvidia_uvm is not loaded or hangs after a suspend, or "
            "/dev/nvidia-uvm is missing in the container.",
            (_RELOAD_UVM, Fix("Check what the driver logged.", _KERNEL_LOG, who="admin"), _REBOOT),
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/689",
        ),
    )
}
# fmt: on

# Messages of torch's own, from torch.cuda.init, and their codes.
_TORCH_MESSAGES = {
    "NVIDIA driver on your system is too old": 35,
    "No CUDA GPUs are available": 100,
    "CUDA out of memory": 2,
}


def error_in_message(text: str) -> CudaError | None:
    """Return the error that a message of torch or the runtime is about, by its code if it has one."""
    number = re.search(r"\b[Ee]rror:? (\d{1,4})\b", text)
    if number and int(number.group(1)) in ERRORS:
        return ERRORS[int(number.group(1))]
    for message, code in _TORCH_MESSAGES.items():
        if message in text:
            return ERRORS[code]
    hits = [error for error in ERRORS.values() if error.message.lower() in text.lower()]
    return max(hits, key=lambda error: len(error.message), default=None)


def unknown_error(code: int | None, name: str | None) -> CudaError:
    """Return an entry for a code that is not in the table, for example from a newer CUDA."""
    return CudaError(
        -1 if code is None else code,
        name or "not known",
        "",
        "CUDA's documentation explains this code. The driver's log may show why it happened.",
        (Fix("Check what the driver logged.", _KERNEL_LOG, who="admin"), Fix(f"Look it up: {_DRIVER_API}")),
    )
