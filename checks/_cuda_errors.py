"""What do CUDA's error numbers mean for somebody who wants to train, and what is to be done?

Numbers and names: cuda.h, CUresult (CUDA 13); the words are what the CUDA runtime, and so torch, prints. The numbers of
the driver and of the runtime agree from 100 on, and in those below that stand here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mgpu.check import Fix

_DRIVER_API = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
_RUNTIME_API = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"


class CudaError(NamedTuple):
    """One number, in the field's terms. `words` is how the runtime prints it, for errors that come without a number."""

    code: int
    name: str
    words: str
    cause: str
    fixes: tuple[Fix, ...]
    source: str = _DRIVER_API


_WHO_USES_IT = Fix("See who uses it, and wait or choose another GPU.", ("nvidia-smi",))
_REBOOT = Fix("Reboot, so that module and libraries are of one version.", ("sudo reboot",), who="admin")
_KERNEL_LOG = ("sudo dmesg | grep -iE 'nvrm|nvidia'",)
_RESET = Fix("Stop everything on this GPU and reset it.", ("sudo nvidia-smi --gpu-reset -i INDEX",), who="admin")
_BOARD = Fix("When it comes back after a reset, have the board replaced.", ("nvidia-bug-report.sh",), who="hardware")
_NO_COMPAT = Fix(
    "Take folders called compat (and stubs) off the library path.",
    ("export LD_LIBRARY_PATH=$(echo \"$LD_LIBRARY_PATH\" | tr ':' '\\n' | grep -vE 'compat|stubs' | paste -sd:)",),
)
# fmt: off
_RELOAD_UVM = Fix(
    "Load nvidia_uvm again.", ("sudo modprobe -r nvidia_uvm; sudo modprobe nvidia_uvm", "nvidia-modprobe -u -c=0"),
    who="admin",
)
# fmt: on
_NO_HMM = Fix(
    "Where the kernel's log has `devmem_alloc_pagemap … err -34`: switch HMM off.",
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
_ARCH_LIST = Fix("See what torch was built for.", ("python -c 'import torch; print(torch.cuda.get_arch_list())'",))
_NO_MPS = Fix(
    "Stop the MPS daemon, or start it again; without it, forget its variables.",
    ("echo quit | nvidia-cuda-mps-control", "unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY"),
)
_FABRIC = Fix(
    "On an NVSwitch machine: start the fabric manager, in the driver's version; reset the GPUs if it was restarted.",
    ("sudo systemctl restart nvidia-fabricmanager", "systemctl status nvidia-fabricmanager"),
    who="admin",
)
# The computation is the same everywhere, and none of the user's code is in it.
_NOT_THE_PROGRAM = "The computation is a plain matrix product, so the GPU, its memory or the driver is at fault."
_FAULTY = (
    Fix("See what the driver logged (an Xid).", _KERNEL_LOG, who="admin"),
    _RESET,
    _BOARD,
)

# fmt: off
ERRORS: dict[int, CudaError] = {
    error.code: error
    for error in (
        CudaError(
            1, "CUDA_ERROR_INVALID_VALUE", "invalid argument",
            "The driver refuses a call that is right elsewhere: libcuda and the kernel module disagree, or the driver "
            "is in a bad state.",
            (Fix("See what the driver logged.", _KERNEL_LOG, who="admin"), _REBOOT),
        ),
        CudaError(
            2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory",
            "Not even a context fits: somebody else's memory, or memory that an ended process left.",
            (_WHO_USES_IT, Fix("See processes that nvidia-smi does not show.", ("fuser -v /dev/nvidia*",))),
        ),
        CudaError(
            3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error",
            "The driver did not start. In a program that forks after it used CUDA this is the program's fault; here "
            "nothing was forked, so it is the machine's.",
            (Fix("See what the driver logged.", _KERNEL_LOG, who="admin"), _RELOAD_UVM, _NO_HMM),
        ),
        CudaError(
            34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library",
            "The toolkit's stub of libcuda, made for linking only, was loaded in place of the driver's.",
            (_NO_COMPAT,),
            "https://github.com/NVIDIA/warp/issues/219",
        ),
        CudaError(
            35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version",
            "The CUDA that torch was built with needs a newer driver.",
            (_NEWER_DRIVER, _OLDER_TORCH),
            _RUNTIME_API,
        ),
        CudaError(
            36, "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver",
            "A call came that this driver does not have yet.",
            (_NEWER_DRIVER, _OLDER_TORCH),
            _RUNTIME_API,
        ),
        CudaError(
            46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "busy or unavailable",
            "The GPU takes no process more (compute mode exclusive, and one is there), none at all (prohibited), or it "
            "is in MIG mode without an instance.",
            (
                Fix("See its compute mode, MIG mode and processes.", ("nvidia-smi -q -d COMPUTE", "nvidia-smi -L")),
                Fix("Set the compute mode back.", ("sudo nvidia-smi -i INDEX -c DEFAULT",), who="admin"),
            ),
        ),
        CudaError(
            100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected",
            "The driver shows this process no GPU: the container or the job was given none, or the device files may "
            "not be opened.",
            (
                Fix("See which device files are here, and who may open them.", ("ls -l /dev/nvidia*", "nvidia-smi -L")),
                Fix("In a container: hand the GPUs over.", ("docker run --gpus all ...",)),
            ),
        ),
        CudaError(
            101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal",
            "A GPU is asked for that this process does not have: more ranks than GPUs, or another machine's number.",
            (Fix("See what is visible.", ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES")),),
        ),
        CudaError(
            102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "valid Grid license",
            "A virtual GPU without its licence.",
            (Fix("Apply the vGPU licence.", ("nvidia-smi -q | grep -i license",), who="admin"),),
        ),
        CudaError(
            200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid",
            "The compiled kernels cannot be read: a damaged install, or a library of another CUDA.",
            (Fix("Install torch anew.", ("pip install --force-reinstall --no-cache-dir torch",)),),
        ),
        CudaError(
            209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device",
            "This build of torch has no kernels for this GPU's compute capability.",
            (
                _ARCH_LIST,
                Fix("For a GPU newer than this torch: install the newest one.", ("pip install --upgrade torch",)),
                Fix(
                    "For Volta and older: a build for CUDA 12.6.",
                    ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",),
                ),
            ),
        ),
        CudaError(
            214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered",
            "The GPU's memory returned what ECC could not correct.",
            (_RESET, _BOARD),
        ),
        CudaError(
            217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices",
            "Direct access between two GPUs that cannot.",
            (Fix("See which pairs can.", ("nvidia-smi topo -p2p r",)),),
        ),
        CudaError(
            218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed",
            "The driver could not compile torch's portable code for this GPU.",
            (_NEWER_DRIVER, _OLDER_TORCH),
        ),
        CudaError(
            220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error",
            "An NVLink failed while data went over it.",
            (Fix("See the links.", ("nvidia-smi nvlink -e", "nvidia-smi nvlink -s")), _RESET, _BOARD),
        ),
        CudaError(
            221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found",
            "libnvidia-ptxjitcompiler.so.1 of the driver is not there: often a container given a part of the driver.",
            (
                Fix(
                    "In a container: ask for compute.",
                    ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",),
                ),
                Fix("Else install all of the driver.", ("ldconfig -p | grep ptxjitcompiler",), who="admin"),
            ),
        ),
        CudaError(
            222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "compiled with an unsupported toolchain",
            "Portable code of a newer CUDA than the driver knows (Triton, torch.compile or an extension made it).",
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
            "Libraries of the driver are of several versions.",
            (Fix("See which there are.", ("ldconfig -p | grep -E 'libcuda|libnvidia'",)), _REBOOT),
        ),
        CudaError(
            303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed",
            "A library of the driver does not start.",
            (Fix("See which there are.", ("ldconfig -p | grep -E 'libcuda|libnvidia'",)), _REBOOT),
        ),
        CudaError(
            304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS",
            "The kernel refused the driver something: often a device file, /dev/nvidia-uvm first, that this process "
            "may not open, or a limit on memory or files.",
            (
                Fix("See the device files and the limits.", ("ls -l /dev/nvidia*", "ulimit -a")),
                Fix("See what the driver logged.", _KERNEL_LOG, who="admin"),
            ),
        ),
        CudaError(
            401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state",
            "NVLink multicast (NVLS) cannot be set up: the fabric manager is not in order.",
            (
                _FABRIC,
                Fix("Go without multicast.", ("export NCCL_NVLS_ENABLE=0",), kind="stopgap",
                    caveat="All-reduce inside the machine is slower."),
            ),
            "https://github.com/NVIDIA/nccl/issues/1788",
        ),
        CudaError(
            700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered", _NOT_THE_PROGRAM, _FAULTY,
        ),
        CudaError(
            701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch",
            "A kernel asks for more than this GPU has: a build for another model, or an MPS limit on its share.",
            (_ARCH_LIST, _NO_MPS),
        ),
        CudaError(
            702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated",
            "The driver ended a kernel that held up a display on this GPU.",
            (Fix("Train on a GPU without a display, or end the display server.", ("nvidia-smi -q -d DISPLAY",)),),
        ),
        CudaError(710, "CUDA_ERROR_ASSERT", "device-side assert triggered", _NOT_THE_PROGRAM, _FAULTY),
        CudaError(714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error", _NOT_THE_PROGRAM, _FAULTY),
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
            "The driver forbids it to this process: an IMEX channel or another device file that it may not open.",
            (
                Fix("See the device files.", ("ls -l /dev/nvidia* /dev/nvidia-caps*",)),
                Fix("In a container: hand them over.", ("docker run --gpus all -e NVIDIA_IMEX_CHANNELS=0 ...",)),
            ),
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        ),
        CudaError(
            801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported",
            "This GPU or this kind of machine (virtual GPU, WSL) does not have what was asked for.",
            (Fix("See what kind of GPU this is.", ("nvidia-smi -q | grep -iE 'product|virtualization'",)),),
        ),
        CudaError(
            802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized",
            "A service that CUDA waits for is not there: on NVSwitch machines (HGX, DGX) the fabric manager; with "
            "confidential computing, the step that declares the GPUs ready.",
            (
                _FABRIC,
                Fix("With confidential computing: declare the GPUs ready.", ("sudo nvidia-smi conf-compute -srs 1",),
                    who="admin"),
                _NO_HMM,
            ),
            "https://github.com/pytorch/pytorch/issues/35710",
        ),
        CudaError(
            803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination",
            "libcuda and the kernel module are of different versions: the driver was updated while the old module "
            "stayed loaded, or a container brings a libcuda of its own.",
            (_NO_COMPAT, _REBOOT),
            "https://docs.nvidia.com/deploy/cuda-compatibility/",
        ),
        CudaError(
            804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW",
            "libcuda is newer than the kernel module, which works on data-centre GPUs only: a cuda-compat package "
            "stands in front of the driver's own libcuda, or the driver was updated without a reboot.",
            (_NO_COMPAT, _REBOOT),
            "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        ),
        CudaError(
            805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect",
            "An MPS daemon is configured, and does not answer.", (_NO_MPS,),
        ),
        CudaError(
            806, "CUDA_ERROR_MPS_RPC_FAILURE", "call between the MPS server and the MPS client failed",
            "The MPS server does not answer any more.", (_NO_MPS,),
        ),
        CudaError(
            807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server is not ready to accept new MPS client requests",
            "The MPS server recovers from a fault of another client.", (_NO_MPS,),
        ),
        CudaError(
            808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "resources required to create MPS client have been exhausted",
            "MPS has as many clients as it takes.", (_WHO_USES_IT, _NO_MPS),
        ),
        CudaError(
            809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
            "hardware resources required to support device connections have been exhausted",
            "MPS has as many connections as it takes.", (_WHO_USES_IT, _NO_MPS),
        ),
        CudaError(
            810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client has been terminated by the server",
            "The MPS server ended this process, usually for a fault of another client on the same GPU.", (_NO_MPS,),
        ),
        CudaError(
            999, "CUDA_ERROR_UNKNOWN", "unknown error",
            "The driver says no more. Often nvidia_uvm is not loaded or hangs after a suspend, or /dev/nvidia-uvm is "
            "missing in the container.",
            (_RELOAD_UVM, Fix("See what the driver logged.", _KERNEL_LOG, who="admin"), _REBOOT),
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/689",
        ),
    )
}
# fmt: on

# torch's own words for two of them, in torch.cuda.init.
_TORCH_WORDS = {
    "NVIDIA driver on your system is too old": 35,
    "No CUDA GPUs are available": 100,
    "CUDA out of memory": 2,
}


def by_words(text: str) -> CudaError | None:
    """The error that a sentence of torch's or the runtime's is about: by its number, else by its words."""
    number = re.search(r"\b[Ee]rror:? (\d{1,4})\b", text)
    if number and int(number.group(1)) in ERRORS:
        return ERRORS[int(number.group(1))]
    for words, code in _TORCH_WORDS.items():
        if words in text:
            return ERRORS[code]
    hits = [error for error in ERRORS.values() if error.words.lower() in text.lower()]
    return max(hits, key=lambda error: len(error.words), default=None)


def unknown(code: int | None, name: str | None) -> CudaError:
    """For a number that is not in the table: a newer CUDA may have it."""
    return CudaError(
        -1 if code is None else code,
        name or "not known",
        "",
        "CUDA's documentation tells what this one means; the driver's log may say why.",
        (Fix("See what the driver logged.", _KERNEL_LOG, who="admin"), Fix(f"Look it up: {_DRIVER_API}")),
    )
