"""A GPU that is missing: a Mac, a hosted notebook, one process that asks for a number, or ranks of a launcher.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import explained

INIT = ("torch/cuda/__init__.py", "_lazy_init", "torch._C._cuda_init()")
APPLY = ("torch/nn/modules/module.py", "_apply", "param_applied = fn(param)")
CHECKED = ("torch/cuda/__init__.py", "get_device_properties", 'raise AssertionError("Invalid device id")')
NO_BUILD = "AssertionError: Torch not compiled with CUDA enabled"
NO_GPUS = "RuntimeError: No CUDA GPUs are available"
ORDINAL = "RuntimeError: CUDA error: invalid device ordinal"


@pytest.mark.parametrize(
    ("script", "code", "below", "error", "title", "words", "never"),
    [
        ("/Users/ada/fit.py", "x = x.cuda()", INIT, NO_BUILD, "torch has no CUDA on a Mac", "'mps'", "whl/cu"),
        ("/home/ada/fit.py", "x = x.cuda()", INIT, NO_BUILD, "this torch build has no CUDA",
         "get-started/previous-versions", "'mps'"),
        ("/content/fit.py", "x = x.cuda()", INIT, NO_GPUS, "the notebook's machine has no GPU", "Change runtime type",
         "sbatch"),
        ("/kaggle/working/fit.py", "x = x.cuda()", INIT, NO_GPUS, "the notebook's machine has no GPU", "Accelerator",
         "sbatch"),
        ("/home/ada/fit.py", "x = x.cuda()", INIT, NO_GPUS, "the program sees no GPU", "docker run --gpus all",
         "ranks"),
        ("/home/ada/fit.py", "net.to('cuda:1')", APPLY, ORDINAL,
         "the script asks for a GPU by its number, and the process has no GPU of that number (fit.py:7 in main)",
         "net.to('cuda:1')", "num_processes"),
        ("/home/ada/fit.py", "net = nn.DataParallel(net, device_ids=[0, 1, 2, 3])", CHECKED,
         "AssertionError: Invalid device id", "the script asks for a GPU by its number", "'cuda:0'", "LOCAL_RANK"),
        ("/home/ada/fit.py", "net.to(args.device)", APPLY, ORDINAL, "the process has no GPU of the number that it asks",
         "nvidia-smi -L", "num_processes"),
    ],
)  # fmt: skip
def test_what_one_process_lacks(
    script: str, code: str, below: tuple[str, str, str], error: str, title: str, words: str, never: str, tmp_path: Path
) -> None:
    _, found, why = explained(tmp_path, frames((script, "main", code), below) + f"{error}\n")
    assert title in found and words in why and never not in found + why, (found, why)


@pytest.mark.parametrize(("error", "title"), [(NO_GPUS, "the ranks see no GPU"), (ORDINAL, "more ranks than visible")])
def test_ranks_of_a_launcher_keep_their_answer(error: str, title: str, tmp_path: Path) -> None:
    own = ("/home/ada/fit.py", "main", "net.to(device)")
    text = "".join(f"{frames(own, INIT, prefix=f'[rank{n}]: ')}[rank{n}]: {error}\n" for n in (0, 1))
    _, found, _ = explained(tmp_path, text)
    assert title in found, found
