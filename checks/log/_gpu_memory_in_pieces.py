"""Is a GPU's memory full because most of what torch has reserved is free, but in pieces that are too small?

Torch gives unused segments back before it reports a full GPU: what it still has "reserved but unallocated" are the gaps
between tensors.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import every, never, within
from ._gpu_memory import Numbers, numbers, trace

_HALF = 0.5  # of the GPU: with less, a large request is too large by itself
_TIMES = 2  # what was requested
_RENDERS = within(r"(?i)gaussian_?rasteriz|surfel_rasteriz|diff_\w*rasteriz")
_GSPLAT = within(r"gsplat/")


def _is_mostly_gaps(read: Numbers) -> bool:
    if read.unallocated is None or read.tried is None or not read.total:
        return False
    return read.unallocated >= max(_TIMES * read.tried, _HALF * read.total)


# fmt: off
_JOIN = Fix("Let the allocator join the pieces, if it is not set yet.",
            ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # torch 2.1 and later",
             "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256  # earlier ones"))
_FEWER = Fix("Limit the number of Gaussians, or render smaller images.",
             ("python train.py --densify_grad_threshold 0.0004 --densify_until_iter 10000 -r 2 --data_device cpu",))
_FEWER_OF_GSPLAT = Fix("Limit the number of Gaussians in the strategy of the densification, or render smaller images.")
_MESSAGE = ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.10 GiB (GPU 0; 47.50 GiB total "
            "capacity; 9.20 GiB already allocated; 1.20 GiB free; 45.10 GiB reserved in total by PyTorch)")
_STRATEGIES = "https://docs.gsplat.studio/main/apis/strategy.html"
_SPLATTING = "https://github.com/graphdeco-inria/gaussian-splatting#faq"
_GROWS = "a GPU's memory is fragmented: the rasterizer's buffers grow with the number of Gaussians"
_GAPS = (
    "Most of what torch has reserved is unused, but in pieces that are too small for the next buffer. Densification "
    "adds Gaussians, and each larger buffer leaves a gap where the one before it was.")
_GIVE_BACK = Fix("Give the pieces back after each densification.", ("torch.cuda.empty_cache()",))
_TOO_MANY = "a GPU's memory is full in the rasterizer: the scene has too many Gaussians, or the image is too large"
_EACH_HAS = (
    "Each has parameters and two optimizer states, and the buffers of the rasterizer grow with them and with the "
    "image.")
IN_PIECES = (
    Case(every(_RENDERS, numbers(_is_mostly_gaps)),
         _GROWS, _GAPS, (_JOIN, _GIVE_BACK, _FEWER),
         trace("train.py in training", "diff_gaussian_rasterization/__init__.py in forward", message=_MESSAGE),
         _SPLATTING),
    Case(_RENDERS,
         _TOO_MANY, f"Densification adds Gaussians until densify_until_iter. {_EACH_HAS}", (_FEWER, _JOIN),
         trace("train.py in training", "diff_gaussian_rasterization/__init__.py in forward"), _SPLATTING),
    Case(every(_GSPLAT, numbers(_is_mostly_gaps)),
         _GROWS, _GAPS, (_JOIN, _GIVE_BACK, _FEWER_OF_GSPLAT),
         trace("train.py in training", "gsplat/cuda/_wrapper.py in forward", message=_MESSAGE), _STRATEGIES),
    Case(_GSPLAT,
         _TOO_MANY, f"Densification adds Gaussians. {_EACH_HAS}", (_FEWER_OF_GSPLAT, _JOIN),
         trace("train.py in training", "gsplat/cuda/_wrapper.py in forward"), _STRATEGIES),
    Case(every(numbers(_is_mostly_gaps), never(within(r"state_dict|save"))),
         "a GPU's memory is fragmented: most of what torch has reserved is unused, in pieces that are too small",
         'Torch holds it ("reserved", but not allocated), because tensors between the gaps are still used. Sizes that '
         "change from step to step do that: batches of changing length, growing buffers, whole images for an "
         "evaluation.",
         (_JOIN, Fix("Keep sizes equal: pad or cut to a few lengths, or give the pieces back after the large step.",
                     ("torch.cuda.empty_cache()",))),
         trace("train.py in main", message=_MESSAGE), "https://docs.pytorch.org/docs/stable/notes/cuda.html"),
)
# fmt: on
