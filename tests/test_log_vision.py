"""Packages for images, scenes, simulators, graphs and sound: what do their messages mean, and when do they not?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

RUN = ("/usr/lib/python3.10/subprocess.py", "_execute_child", "raise child_exception_type(errno_num, err_msg, name)")
SPLAT = ("diff_gaussian_rasterization/__init__.py", "forward", "num_rendered = _C.rasterize_gaussians(*args)")


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("net(x)", (), "NotImplementedError: Could not run 'torchvision::roi_align' with arguments from the 'CUDA' "
         "backend.", "torchvision was built without CUDA: roi_align", "--index-url"),
        ("import mmcv.ops", (("mmcv/utils/ext_loader.py", "load_ext", "importlib.import_module(name)"),),
         "ModuleNotFoundError: No module named 'mmcv._ext'", "mmcv has no compiled operators", "mim install"),
        ("import mmdet", (("mmdet/__init__.py", "<module>", "assert (mmcv_version >= minimum"),),
         "AssertionError: MMEngine==0.11.0 is used but incompatible. Please install mmengine>=0.7.1, <0.11.0.",
         "MMEngine 0.11.0 does not fit: mmengine>=0.7.1, <0.11.0 is required",
         "mim install 'mmengine>=0.7.1, <0.11.0'"),
        ("aug(image=x)", (("albumentations/core/bbox_utils.py", "check", "raise ValueError("),),
         "ValueError: y_max is less than or equal to y_min for bbox [0.1 0.5 0.2 0.5 1. ].", "has no area", "clamp"),
        ("y = net(x)", (("torch/nn/functional.py", "max_pool2d", "return torch.max_pool2d(input)"),),
         "RuntimeError: Given input size: (512x1x1). Calculated output size: (512x0x0). Output size is too small",
         "smaller than the kernel", "Resize"),
        ("x = torch.cat([x, skip], 1)", (), "RuntimeError: Sizes of tensors must match except in dimension 1. Expected "
         "size 64 but got size 63 for tensor number 1 in the list.", "joined differ by one: for feature maps",
         "multiple of 32"),
        ("x = torch.cat([x, y])", (), "RuntimeError: Sizes of tensors must match except in dimension 0. Expected "
         "size 512 but got size 511 for tensor number 1 in the list.", "tensors of different sizes", "pad"),
        ("x = torch.cat([x, y], 1)", (), "RuntimeError: Sizes of tensors must match except in dimension 1. Expected "
         "size 64 but got size 8 for tensor number 1 in the list.", "tensors of different sizes", "pad"),
        ("cut(clip)", (RUN,), "FileNotFoundError: [Errno 2] No such file or directory: 'ffprobe'",
         "the program ffprobe is not installed", "command -v ffprobe"),
        ("import cv2", (), "ImportError: libgthread-2.0.so.0: cannot open shared object file: No such file",
         "a library of the operating system is missing", "libglib2.0-0"),
        ("import x", (), "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
         "the library libcudart.so.11.0", "torch's CUDA version"),
        ("render(cam)", (SPLAT,), "RuntimeError: CUDA error: invalid configuration argument", "no points", "cloud"),
        ("net(x)", (), "RuntimeError: CUDA error: invalid configuration argument", "this GPU cannot run", "GPU"),
        ("cv2.imshow('x', image)", (), "cv2.error: OpenCV(4.9.0) /io/window.cpp:1272: error: (-2:Unspecified) The "
         "function is not implemented. Rebuild the library with Windows, GTK+ 2.x in function 'cvShowImage'",
         "this OpenCV has no windows", "cv2.imwrite"),
        ("obs, reward, done, info = env.step(action)", (), "ValueError: too many values to unpack (expected 4)",
         "step() of the environment returns 5 values", "terminated or truncated"),
        ("state, mask = self.env.reset()", (), "ValueError: not enough values to unpack (expected 2, got 1)",
         "reset() of the environment does not return 2 values", "obs = env.reset()"),
        ("a, b, c, d = model.step(x)", (), "ValueError: too many values to unpack (expected 4)", "gives more values",
         "out"),
        ("x = torch.tensor(env.reset())", (), "ValueError: expected sequence of length 4 at dim 1 (got 0)",
         "env.reset() returns a pair", "obs, info"),
        ("x = torch.tensor(rows)", (), "ValueError: expected sequence of length 4 at dim 1 (got 0)",
         "a list whose rows have different lengths is made into a tensor", "pad_sequence"),
        ('assert False, "Unknown format"', (), "AssertionError: Unknown format",
         "own code stopped the run at fit.py:7 in main: Unknown format", "grep -n -B12 'assert False' fit.py"),
        ("img.resize(s, Image.ANTIALIAS)", (), "AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'",
         "PIL.Image", "Image.LANCZOS"),
        ("h = conv(x, edge_index)", (), "IndexError: Encountered an index error. Please ensure that all indices in "
         "'index' point to valid indices in the interval [0, 9] (got interval [-1, 9])", "nodes from -1", "x"),
    ],
)  # fmt: skip
def test_what_it_means(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames((SCRIPT, 'main', code), *below)}{error}\n")
    assert title in found and words in text, (found, text)
