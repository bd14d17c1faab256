"""Which CUDA call was rejected, and what do these short messages mean?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

_API = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
# fmt: off
_FIND = Fix("Find the call: the traceback then stops at it.", ("CUDA_LAUNCH_BLOCKING=1 mgpu launch train.py",))
_MEANINGS = {
    "invalid resource handle": (
        "A stream, event or library handle belongs to another GPU, or to the process before a fork.",
        Fix("Select the GPU once, before anything uses CUDA, and start workers with spawn.",
            ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",))),
    "operation not supported": (
        "The GPU, its driver or the virtual machine lacks a feature (peer access, cuMem, pinned memory under WSL, "
        "managed memory).",
        Fix("Try without the features that depend on it.",
            ("export NCCL_CUMEM_ENABLE=0 NCCL_P2P_DISABLE=1",
             "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"))),
    "operating system call failed": (
        "The kernel or the container denied what CUDA needs: memory mappings, locked memory, or /dev/shm.",
        Fix("Check the limits, and start the container with the host's IPC.",
            ("ulimit -a; sysctl vm.max_map_count", "docker run --ipc=host --ulimit memlock=-1 ..."))),
    "context is destroyed": (
        "The process's CUDA context was removed while a thread still used it: the process was exiting, or a library "
        "reset the GPU (cudaDeviceReset).",
        Fix("Read the first error of this rank.")),
    "driver shutting down": (
        "A thread used CUDA while the process was exiting. The reason for the exit is further up.",
        Fix("Read the first error of this rank.")),
    "part or all of the requested memory range is already mapped": (
        "The same host memory was pinned twice, often by DeepSpeed's offload and by another library.",
        Fix("Turn off one of the two.", ('"pin_memory": false  # in offload_optimizer and offload_param',))),
}
# fmt: on


def _explain(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    what = groups["what"]
    found = _MEANINGS.get(what)
    return Meaning(f"a CUDA call failed: {what}", found[0], (found[1], _FIND)) if found else None


# fmt: off
ROWS = (
    Row("log_cuda_call_failed", "secondary", "cuda",
        r"(?:CUDA [Ee]rror|Triton Error \[CUDA\]): (?P<what>invalid resource handle|invalid (?:pitch )?argument|"
        r"operation not supported|an exception occurred on the device|"
        r"operating system call failed|context is destroyed|invalid symbol|peer access is already enabled|"
        r"mapping of buffer object failed|driver shutting down|too many blocks in cooperative launch|"
        r"cluster target block not present|external device failure|device not ready|"
        r"part or all of the requested memory range is already mapped|resource already mapped|"
        r"invalid (?:device context|device pointer|program counter image|texture|channel descriptor)|"
        r"unrecognized error code)",
        ("RuntimeError: CUDA error: invalid resource handle", "torch.AcceleratorError: CUDA error: invalid argument",
         "RuntimeError: CUDA error: operation not supported"),
        "a CUDA call failed: {what}",
        "The driver rejected a call. An earlier operation can be meant: CUDA reports errors late. Often a library was "
        "built for another CUDA or GPU, or the driver is in a bad state.",
        (_FIND, Fix("Check whether CUDA itself works here.", ("mgpu doctor --deep --only cuda",))), _API,
        summary="A CUDA call failed.", explain=_explain),
    Row("log_driver_call_failed", "secondary", "cuda",
        r"CUDA driver error: (?P<what>operation not supported|invalid argument|operation not permitted|"
        r"invalid device context|invalid resource handle|unknown error|OS call failed|not supported|"
        r"initialization error|device kernel image is invalid|no binary for gpu|file not found)",
        ("RuntimeError: CUDA driver error: operation not supported",
         "RuntimeError: CUDA driver error: invalid argument"),
        "a call to the driver failed: {what}",
        "torch calls the driver itself for memory that it maps (expandable_segments, symmetric memory, CUDA graphs) "
        "and for kernels that it loads at run time. Virtual GPUs, WSL, MIG and old drivers do not map memory.",
        (Fix("Turn off what maps memory.", ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",)),
         _FIND), "https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp",
        summary="A call to the driver failed."),
    Row("log_allocator_option_refused", "root", "script",
        r"Unrecognized (?:key '\w*' in \w+ allocator config|CachingAllocator option: ?\S*).*|"
        r"Expected a single True/False argument for \w+|CachingAllocator option \w+ (?:too small|must be)|"
        r"Error parsing CachingAllocator settings|out of bounds in ConfigTokenizer|"
        r"AllocatorConfig\.h\":\d+, please report|"
        r"Error, expecting .{0,40}(?:_mb|_threshold|_divisions|digit)",
        ("RuntimeError: Unrecognized CachingAllocator option: expandable_segment",
         "ValueError: Expected a single True/False argument for expandable_segments",
         "RuntimeError: CachingAllocator option max_split_size_mb too small, must be > 20",
         "RuntimeError: Error parsing CachingAllocator settings, expected : after max_split_size_mb"),
        "torch rejects the settings of its memory allocator: PYTORCH_CUDA_ALLOC_CONF",
        "The variable (PYTORCH_ALLOC_CONF in newer releases) is a list of name:value, separated by commas, and is read "
        "when a rank first uses a GPU. The name is misspelled, or belongs to a newer torch: expandable_segments needs "
        "torch 2.1. Values are True or False with a capital letter, and max_split_size_mb is above 20.",
        (Fix("Correct it, or unset it, where the ranks start.",
             ("env | grep ALLOC_CONF", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
              "unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF")),),
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#environment-variables"),
    Row("log_allocator_broken", "root", "cuda",
        r"(?:handles_\.at\(i\)|block->expandable_segment_|expandable_segment\S*) INTERNAL ASSERT FAILED at "
        r"\"\S*CUDACachingAllocator\.cpp",
        ('RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":396, please '
         "report a bug to PyTorch.",
         'RuntimeError: !block->expandable_segment_ INTERNAL ASSERT FAILED at "../c10/CUDACachingAllocator.cpp":2814, '
         "please report a bug to PyTorch."),
        "torch's allocator broke with expandable_segments, probably when the GPU's memory was full",
        "With expandable_segments:True, an allocation that fails halfway leaves the allocator in a state that every "
        "later allocation trips over. max_split_size_mb or garbage_collection_threshold next to it had the same effect "
        "before torch 2.5. The first out-of-memory error can be caught and invisible.",
        (Fix("Treat it as out of memory: a smaller batch, or a sharded model.", ("nvidia-smi", "mgpu configure")),
         Fix("Do without the option, or without others next to it.",
             ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", "pip install --upgrade torch"))),
        "https://github.com/pytorch/pytorch/issues/188008"),
    Row("log_allocator_not_ready", "root", "script",
        r"(?:Invalid device argument|Allocator not initialized for device) ?\S* ?: did you call init\?",
        ("RuntimeError: Invalid device argument : did you call init?",
         "RuntimeError: Allocator not initialized for device : did you call init?"),
        "memory statistics of a GPU were read or reset before this process used CUDA",
        "torch creates the allocator of a GPU when CUDA starts. reset_peak_memory_stats() or a limit of memory before "
        "that, or for a GPU number that this process does not have, is refused.",
        Fix("Start CUDA first, on the rank's own GPU.",
            ("torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); torch.cuda.init()", "echo $CUDA_VISIBLE_DEVICES")),
        "https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp"),
    Row("log_cuda_library_failed", "secondary", "cuda",
        r"CUSOLVER_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED|ALLOC_FAILED|EXECUTION_FAILED)|"
        r"CUFFT_(?:INTERNAL_ERROR|ALLOC_FAILED|EXEC_FAILED|SETUP_FAILED)|"
        r"CUSPARSE_STATUS_(?:INTERNAL_ERROR|ALLOC_FAILED|NOT_INITIALIZED|EXECUTION_FAILED)",
        ("RuntimeError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
         "RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR",
         "RuntimeError: CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`"),
        "a CUDA math library (cuSOLVER, cuFFT, cuSPARSE) did not start or stopped with an internal error",
        "When it happens in ...Create() or at the first call, the GPU's memory is usually full: torch's cache leaves "
        "no room for the library's own workspace. Otherwise an earlier kernel failed, or the library was built before "
        "this GPU existed (cuFFT of CUDA 11.7 on GeForce RTX 40).",
        (Fix("Leave memory for it, and see which it is.",
             ("torch.cuda.set_per_process_memory_fraction(0.9)", "nvidia-smi",
              "CUDA_LAUNCH_BLOCKING=1 mgpu launch train.py")),
         Fix("Use a torch for a newer CUDA.", ("pip install --upgrade torch",))),
        "https://github.com/pytorch/pytorch/issues/88038"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
