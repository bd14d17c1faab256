"""How much memory did XLA plan for a compiled step, and which program was it compiled for: JAX's or torch's?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import Log, UncaughtException

_PLANNED = re.compile(r"memory space (\w+)\. Used ([\d.]+[KMGT]) of ([\d.]+[KMGT])")
_REQUESTED = re.compile(r"(?:[Oo]ut of memory|[Ff]ailed).{0,60}alloc\w+ (?P<bytes>\d{9,18}) ?bytes")
# fmt: off
XLA_SMALLER = Fix("Use a smaller micro-batch, shorter sequences or recomputation, or shard the model over more "
                  "devices. In reinforcement learning: fewer environments at once, or fewer steps per rollout.")
_CUT_OFTEN = Fix("Cut the program after each micro-batch, so that XLA can reuse the memory of its activations.",
                 ("loss.backward(); torch_xla.sync()  # older: xm.mark_step()",))
XLA_PREALLOCATED = Fix("With JAX on a shared GPU: let it take memory as needed.",
                    ("export XLA_PYTHON_CLIENT_PREALLOCATE=false", "nvidia-smi"))
_BLOCKS = Fix("Use smaller blocks in the kernel, or smaller sizes in the operation that the lines below name. A newer "
              "compiler can choose other blocks.", ("pip list | grep -iE 'jax|torch.xla|libtpu'",))
# fmt: on


def explain_plan(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a program that XLA could not place in memory by its numbers; None if the line has none."""
    found = _PLANNED.search(groups["what"])
    if found is None:
        return None
    space, used, limit = found.groups()
    if space != "hbm":
        return Meaning(
            f"one operation needs {used} of a core's own memory ({space}), which has {limit}",
            f"{space} is small memory inside a core, not the accelerator's main memory (hbm). XLA, or a kernel of your "
            "own (Pallas), chose blocks that do not fit in it.",
            (_BLOCKS,),
        )
    title = f"the accelerator's memory is full (reported by XLA): one compiled program needs {used}, and it has {limit}"
    plan = "XLA plans the memory of a whole program when it compiles it. "
    if not _is_of_torch(raised):
        return Meaning(
            title,
            f"{plan}Weights, gradients, optimizer states and activations of one device do not fit.",
            (XLA_SMALLER,),
        )
    return Meaning(
        title,
        f"{plan}torch_xla records operations and compiles all since the last torch_xla.sync() or xm.mark_step() as "
        "one program, when that is called or when Python reads a value: `if`, .item(), a print. Micro-batches and "
        "epochs of a loop without such a call are all in it, with the activations of each.",
        (_CUT_OFTEN, XLA_SMALLER),
    )


def requested(text: str, log: Log) -> str:
    """Return a sentence about the size of the buffer that did not fit; "" if the line has none of a GiB or more."""
    found = _REQUESTED.search(text)
    size = int(found["bytes"]) / (1 << 30) if found else 0
    return f" One buffer of {size:.1f} GiB did not fit." if size >= 1 else ""


def _is_of_torch(raised: UncaughtException | None) -> bool:
    """Whether torch_xla compiled the program: JAX raises a type of its own, through frames of its own."""
    if raised is None or raised.type != "RuntimeError":
        return False
    return not any(frame.startswith(("jax/", "jaxlib/", "flax/")) for frame in raised.frames)
