"""Which package's compiled code has no kernels for the GPU? Texts for `log_gpu_without_kernels`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .. import _version_skew as skew
from .._apex import BUILD_APEX_FOR_ONE_GPU

# Packages with CUDA code of their own, which is compiled when they are installed. Those that are wheels only (vllm,
# triton) are not among them: they are updated, not built.
# fmt: off
_BUILT = frozenset({
    "mmcv", "flash_attn", "flash_attn_interface", "apex", "causal_conv1d", "mamba_ssm", "pytorch3d", "spconv",
    "torchsparse", "MinkowskiEngine", "nvdiffrast", "gsplat", "detectron2", "natten", "torch_scatter", "torch_sparse",
    "torch_cluster", "torch_spline_conv", "tinycudann", "kaolin", "MultiScaleDeformableAttention", "auto_gptq",
    "awq_ext", "exllamav2", "pointnet2_ops", "diff_gaussian_rasterization", "simple_knn", "fused_ssim", "xformers",
    "transformer_engine", "grouped_gemm", "deep_gemm", "dgl", "pyg_lib", "fbgemm_gpu", "bitsandbytes",
})
# fmt: on
_WHEELS = frozenset({"bitsandbytes", "xformers", "fbgemm_gpu", "dgl"})  # which few people compile
# How to compile it, where a variable selects the GPU. PyPI has prebuilt wheels of the others, which pip would take
# again, or something else of that name: they are built from their source.
_FROM_PYPI = {
    "flash_attn": "FLASH_ATTENTION_FORCE_BUILD=TRUE FLASH_ATTN_CUDA_ARCHS=90 pip install --no-build-isolation "
    "--no-cache-dir --force-reinstall --no-deps flash-attn",
    "mamba_ssm": "MAMBA_FORCE_BUILD=TRUE TORCH_CUDA_ARCH_LIST=9.0 pip install --no-build-isolation --no-cache-dir "
    "--force-reinstall --no-deps mamba-ssm",
    "causal_conv1d": "CAUSAL_CONV1D_FORCE_BUILD=TRUE TORCH_CUDA_ARCH_LIST=9.0 pip install --no-build-isolation "
    "--no-cache-dir --force-reinstall --no-deps causal-conv1d",
    "apex": BUILD_APEX_FOR_ONE_GPU,
    "mmcv": "git clone https://github.com/open-mmlab/mmcv && cd mmcv && TORCH_CUDA_ARCH_LIST=9.0 MMCV_WITH_OPS=1 "
    "pip install -v --no-build-isolation .",
}
_FROM_SOURCE = "TORCH_CUDA_ARCH_LIST=9.0 pip install -v --no-build-isolation --no-deps .  # in its source folder"
_OPERATION = re.compile(r"/ops/(?P<name>\w+)\.py in ")


def extension_without_kernels(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the extension whose call failed; None if torch's own code can have failed."""
    package = raised.packages[-1] if raised and raised.packages else ""
    if raised is None or package not in _BUILT:
        return None
    dist = skew.distribution(package)
    operation = _OPERATION.search(raised.frames[-1]) if raised.frames else None
    what = f" ({operation['name']})" if operation else ""
    ask = ("python -c 'import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'",)
    if package in _WHEELS:
        remedy = Fix(
            f"Install a newer {dist}, which has kernels for more GPUs.",
            (shell("pip install --upgrade {:package}", dist),),
        )
    else:
        remedy = Fix(
            f"Build {dist} again for this GPU: 9.0 is the compute capability of H100, H200 and H800; an RTX 50 has "
            "12.0.",
            (_FROM_PYPI.get(package, _FROM_SOURCE),),
        )
    return Meaning(
        f"the compiled code of {dist}{what} has no kernels for this GPU",
        f"The call that failed is {dist}'s own. It was compiled for other GPU generations: on a machine with another "
        "GPU, without a GPU, or before this GPU existed. torch itself has to have kernels for the GPU, too: the list "
        "that it prints must have this GPU's.",
        (Fix("Compare this GPU with what torch was built for.", ask), remedy),
    )
