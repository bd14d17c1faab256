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
        r"CUDA error: (?P<what>invalid resource handle|invalid (?:pitch )?argument|"
        r"operation not supported|an exception occurred on the device|"
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
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
