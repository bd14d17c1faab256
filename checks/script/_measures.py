"""Does a script train only to measure memory or speed, so that nothing it trains is kept?"""

from __future__ import annotations

import re

from mgpu.snapshot import Script, ScriptCall

from ._calls import reached_calls

_MEASURES = (
    r"torch\.cuda\.(?:max_memory_\w+|reset_peak_memory_stats|reset_max_memory_\w+|memory_\w+|mem_get_info|Event)"
    r"|torch\.utils\.benchmark\..+|torch\.profiler\.profile|(?:time\.)?perf_counter(?:_ns)?|time\.time"
)
_KEEPS = (
    r"(?:.*\.)?(?:\w*save(?!d)\w*|push_to_hub|state_dict|write_checkpoint|eval|evaluate|validate|predict|log_artifact"
    r"|add_scalars?)"
)
_NAMES = re.compile(r"bench|profil|measur|memory|vram|throughput|latency|speed|timing", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)


def only_measures(script: Script, backward: ScriptCall) -> bool:
    """Whether a backward pass is a part of a measurement: the names say so, and nothing is kept or evaluated."""
    stem = script.path.rpartition("/")[2]
    named = _NAMES.search(stem) or _NAMES.search(backward.function)
    loops = [script.loops[place] for place in backward.loops]
    epochs = any(_EPOCHS.search(f"{loop.over} {loop.target}") for loop in loops)
    measured = reached_calls(script, _MEASURES)
    return bool(named and measured) and not epochs and not reached_calls(script, _KEEPS)
