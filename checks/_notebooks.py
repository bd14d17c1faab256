"""Did a notebook's launcher fork a process that had used CUDA already?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

# torch.multiprocessing calls accelerate's launcher, which calls the function of the notebook. Under torchrun or
# accelerate launch the script is the outermost frame.
_LAUNCHER = ("torch", "accelerate")
_CELLS = ("Cell In", "<ipython-input")
_WORKER = "torch/utils/data/_utils/worker.py in _worker_loop"  # the frame in which the dataset is called

_MEANING = Meaning(
    "a notebook used CUDA before notebook_launcher forked the ranks",
    "The launcher forks the notebook's process, and a forked process cannot use its parent's CUDA. A cell created a "
    "model, a tensor or an Accelerator on the GPU, or an import started CUDA.",
    (
        Fix(
            "Restart the kernel. Create the model, the Accelerator and everything on the GPU only inside the training "
            "function, and check before the launch that CUDA is untouched.",
            ("assert not torch.cuda.is_initialized()",),
        ),
        Fix("Or run a script.", ("mgpu launch train.py",)),
    ),
)


def explain_fork(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain CUDA in a forked process: of a notebook's launcher, or of a DataLoader."""
    if raised is not None and (raised.loader or _WORKER in raised.frames):
        own = raised.own_code if _WORKER in raised.frames and raised.place else None
        return Meaning(
            "a DataLoader worker used CUDA" + (f" ({raised.place})" if own else ""),
            "Workers are forked from the rank, whose CUDA they cannot use. The dataset or the collator creates or "
            "moves tensors to the GPU" + (f': "{own}".' if own else "."),
            (
                Fix("Create tensors on the CPU in the dataset and collator, and move them in the training loop."),
                Fix(
                    "If a model has to run there (an encoder), load in the rank itself, or encode the data before.",
                    ("DataLoader(..., num_workers=0)",),
                ),
                Fix("Or start workers with spawn.", ("DataLoader(..., multiprocessing_context='spawn')",)),
            ),
        )
    return explain_start(groups, raised)


def explain_start(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain CUDA that does not start, if a notebook's launcher had forked the process."""
    if raised is None:
        return None
    in_cell = (raised.place or "").startswith(_CELLS)
    return _MEANING if raised.packages[:2] == _LAUNCHER or (in_cell and "accelerate" in raised.packages) else None
