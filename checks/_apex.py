"""How does one get NVIDIA's apex, which is not on PyPI, or do without it?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Meaning

_CLONE = "git clone https://github.com/NVIDIA/apex && cd apex && "
_INSTALL = "APEX_CPP_EXT=1 APEX_CUDA_EXT=1 pip install -v --no-build-isolation ."
BUILD_APEX = _CLONE + _INSTALL
BUILD_APEX_FOR_ONE_GPU = f"{_CLONE}TORCH_CUDA_ARCH_LIST=9.0 {_INSTALL}"
NO_APEX = Meaning(
    "NVIDIA's apex is not installed in this environment",
    "It is built from its source: the apex on PyPI is another project. What scripts use it for (mixed precision, DDP, "
    "SyncBatchNorm, fused optimizers) is part of torch by now.",
    (
        Fix(
            "Use torch's own: start without the option that asks for apex (--fp16, --apex), or change the lines.",
            ("torch.autocast('cuda', dtype=torch.bfloat16)", "torch.amp.GradScaler('cuda')"),
        ),
        Fix("Or build it, with the installed torch and its CUDA toolkit.", (BUILD_APEX,)),
    ),
)
