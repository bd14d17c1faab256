"""Does a checkpoint have whole parameters and the run flat pieces of them, or the reverse?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_MOST_RANKS = 4096
_LEAST_ELEMENTS = 1 << 16  # of a parameter in torch's own message, which is not about checkpoints of FSDP only
# What the two shapes of a message are: of the checkpoint, then of the run.
_SHAPES = r"torch\.Size\(\[(?P<a>\d[\d, ]*)\]\)\D{3,80}(?P<b>\d[\d, ]*)"
_BOTH = re.compile(rf"(?:copying a param with shape|Size mismatch between saved|mismatch for loaded \(?) ?{_SHAPES}")
_STATE = "torch.distributed.checkpoint.state_dict"


def explain(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a shape with one dimension next to one with several, of N times as many elements."""
    text = f"{raised.message} {raised.more or ''}" if raised else ""
    if not (found := _BOTH.search(text)):
        return None
    saved, current = ([int(number) for number in re.findall(r"\d+", found[name])] for name in ("a", "b"))
    if (len(saved) == 1) == (len(current) == 1):
        return None
    whole, flat = (current, saved) if len(saved) == 1 else (saved, current)
    elements = math.prod(whole)
    ranks = elements // flat[0] if flat[0] and elements % flat[0] == 0 else 0
    if not 1 < ranks <= _MOST_RANKS or ("from checkpoint" in found[0] and elements < _LEAST_ELEMENTS):
        return None
    sides = (
        ("flat pieces of FSDP", "whole parameters") if whole is current else ("whole parameters", "flat pieces of FSDP")
    )
    return Meaning(
        f"the checkpoint has {sides[0]}, and the run reads {sides[1]}",
        f"{' x '.join(map(str, whole))} = {ranks} x {flat[0]}: it is the same parameter, and the flat one is one of "
        f"{ranks} equal pieces. FSDP 1 keeps a parameter as flat pieces, one for each rank. The model's configuration "
        "is not the problem: one side probably got its state dict from FSDP's functions, the other from the wrapped "
        "module itself or from FSDP 2.",
        (
            Fix(
                "Save and load through the same functions, which give whole shapes for FSDP 1 and 2.",
                (
                    f"from {_STATE} import get_model_state_dict, set_model_state_dict",
                    "state = {'model': get_model_state_dict(model)}; dcp.load(state, checkpoint_id=path)",
                    "set_model_state_dict(model, state['model'])",
                ),
            ),
            Fix(
                "In a framework, use the FSDP version and the state dict type that wrote the checkpoint.",
                ("FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)", "fsdp_version: 1"),
            ),
        ),
    )
