"""Which wrapper's part in the names of a checkpoint keeps it from being loaded?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import Log, UncaughtException

# fmt: off
_WRAPPERS = (
    ("_orig_mod", "torch.compile", "torch.compile(model)"),
    ("_checkpoint_wrapped_module", "activation checkpointing", "its checkpoint wrapper"),
    ("_fsdp_wrapped_module", "FSDP 1", "FullyShardedDataParallel(model)"),
    ("_forward_module", "Lightning's strategy", "the strategy"),
    ("base_model.model", "PEFT", "get_peft_model(model, config)"),
    ("module", "DDP or another wrapper that calls the model `module`", "the wrapper"),
    ("model", "an outer module that calls it `model`", "the outer module"),
)
_PLAIN = ("module", "model")  # a model's own parts can have these names, too
_ANYWHERE = "state = {{name.replace('{:dotted}.', ''): value for name, value in state.items()}}"
_AT_FRONT = "state = {{name.removeprefix('{:dotted}.'): value for name, value in state.items()}}"
# fmt: on


def wrapped_in_checkpoint(log: Log, groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a missing key that the log has with the part of a wrapper in it; None if it does not."""
    key, saved = groups["key"], groups.get("saved")
    if not saved:
        return None
    added = [one for one in _WRAPPERS if f".{saved}".count(f".{one[0]}.") > f".{key}".count(f".{one[0]}.")]
    if not added:
        return None
    part, who, wrapped = added[0]
    return Meaning(
        f"the checkpoint probably has {key} under the name that {who} gave it: {saved}",
        f"{wrapped} puts '{part}.' into the names of the weights, and this log has the missing name with it. The run "
        f"loads the names without it. The weight is most likely saved, so do not allow a partial load: it would leave "
        "these weights as they were initialized.",
        (
            Fix(
                "Compare with the names that are saved.",
                (
                    'python -c "import torch.distributed.checkpoint as d; '
                    "print(*d.FileSystemReader('CHECKPOINT').read_metadata().state_dict_metadata, sep='\\n')\"",
                ),
            ),
            Fix("Load into a model that is wrapped in the same way as the one that was saved, and in the same order."),
            Fix(
                "Or convert the checkpoint once, and take that part out of its names.",
                (
                    "python -m torch.distributed.checkpoint.format_utils dcp_to_torch CHECKPOINT weights.pt",
                    "state = torch.load('weights.pt')  # it can have the weights under a key, such as 'model'",
                    python(_AT_FRONT if saved.startswith(f"{part}.") and part in _PLAIN else _ANYWHERE, part),
                ),
            ),
            *_saves_without(part),
        ),
    )


def _saves_without(part: str) -> tuple[Fix, ...]:
    if part != "_orig_mod":
        return ()
    return (Fix("To save plain names from now on, compile the model in place.", ("model.compile()",)),)
