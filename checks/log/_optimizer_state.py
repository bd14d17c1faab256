"""Does an optimizer's step combine its state with parameters that the state does not belong to?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from . import _own_objects

LARGEST_SPLIT = 64  # ranks that share one sequence
SMALLEST_SHARD = 10_000  # elements of a sharded parameter
LOADS = re.compile(r"load|state_dict|resum|restore|checkpoint(?!\.py in (?:forward|backward|checkpoint|_?recompute))")
_OPTIMIZER = re.compile(
    r"(?:^|/)torch/optim/|optim\w*\.py in step$|in (?:_?fused_)?adam\w*$|"
    r"/(?:fused_|cpu_)?(?:adam|adagrad|lamb|lion|novograd|sgd)\w*\.py in step$"  # of a package: its frame has a folder
)
_INNER = 3  # innermost frames, of which one names what the code does
_OF_STATE = re.compile(r"^Size mismatch$|^output with shape .+ doesn't match the broadcast shape")
_WHY = (
    "The step combines the state that the optimizer keeps for each parameter with its gradient. The state was loaded "
    "from a checkpoint of other parameters: another number of ranks (ZeRO and FSDP 1 keep a part per rank), other "
    "trained parameters (layers frozen or an adapter added since then), another model, or another order, because "
    "load_state_dict matches them by their position. Without a checkpoint, the parameters were changed after the "
    "optimizer had made its state. The batch is not the reason."
)
_FIXES = (
    Fix(
        "Resume as the run that wrote the checkpoint was started: with its number of ranks, ZeRO stage, model and "
        "trained parameters."
    ),
    Fix(
        "Or load the weights only, and start with a new optimizer.",
        (
            "model.load_state_dict(checkpoint['model'])  # not: optimizer.load_state_dict(...)",
            "engine.load_checkpoint(FOLDER, load_optimizer_states=False, load_lr_scheduler_states=False)  # DeepSpeed",
        ),
    ),
)


def of_other_ranks(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an optimizer's state that was sharded for another number of ranks: one size is a multiple of the other.

    Shards are padded, so that the larger one can be some elements short of it.
    """
    small, large = sorted((int(groups["a"]), int(groups["b"])))
    of_step = raised is not None and any(_OPTIMIZER.search(frame) for frame in raised.frames)
    times = round(large / max(1, small))
    if not of_step or small < SMALLEST_SHARD or times < 2 or abs(large - small * times) > LARGEST_SPLIT * times:
        return None
    # torch names the state first: exp_avg.mul_(beta1).add_(grad)
    loads = any(LOADS.search(frame) for frame in (raised.frames if raised else ()))
    if int(groups["a"]) < int(groups["b"]) and not loads:
        return _of_whole_gradient(small, large, times)
    return Meaning(
        f"the optimizer's state was probably sharded for another number of ranks: {small} elements and {large}, "
        f"{times} times as many",
        "FSDP 1 and ZeRO keep a part of the state per rank. A checkpoint that was saved as such parts fits the number "
        "of ranks that wrote it.",
        (
            Fix("Resume with the number of ranks that wrote the checkpoint."),
            Fix(
                "Or save and load a full state, which fits any number of ranks.",
                (
                    "FSDP.full_optim_state_dict(model, optimizer)",
                    "FSDP.optim_state_dict_to_load(model, optimizer, state)",
                ),
            ),
        ),
    )


def of_other_parameters(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an optimizer's step in which its state and the gradients have different shapes."""
    last = raised.frames[-_INNER:] if raised else ()
    if not any(_OPTIMIZER.search(frame) for frame in last) or any(LOADS.search(frame) for frame in last):
        return None
    return Meaning(
        f"the optimizer's state does not have the shape of the parameters: {groups['a']} and {groups['b']}",
        _WHY,
        _FIXES,
        complete=True,
    )


def state_of_other_parameters(one: UncaughtException) -> _own_objects.Meaning | None:
    """Explain the same from the messages of other optimizers; None for another message or place."""
    last = one.frames[-_INNER:]
    if not _OF_STATE.search(one.message) or not any(_OPTIMIZER.search(frame) for frame in last):
        return None
    if any(LOADS.search(frame) for frame in last):
        return None
    place = at_place(one)
    return _own_objects.Meaning(
        f"the optimizer's state does not have the sizes of the parameters{place}", _WHY, _FIXES, of_code=True
    )


def _of_whole_gradient(small: int, large: int, times: int) -> Meaning:
    return Meaning(
        f"the optimizer's state and the gradients are not sharded alike: {small} elements and {large}, {times} times "
        "as many",
        f"FSDP and ZeRO keep a part of each parameter and of its state per rank (1 of {times}), and reduce the "
        "gradients to the same part. If the run was not resumed, the backward pass left whole gradients: the model was "
        "called around its wrapper (model.module, generate, a second forward before the backward pass), within "
        "no_sync(), or the optimizer was created before the model was wrapped. If it was resumed, the checkpoint was "
        "saved as parts for another number of ranks.",
        (
            Fix(
                "Create the optimizer after wrapping, and call the wrapped model for each forward pass.",
                ("model, optimizer = accelerator.prepare(model, optimizer)",),
            ),
            Fix("If a trainer does that itself, it does not support FSDP in this release: use DDP or ZeRO-2 with it."),
            Fix("If it was resumed: use the number of ranks that wrote the checkpoint."),
        ),
    )
