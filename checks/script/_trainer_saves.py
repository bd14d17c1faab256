"""Which calls save what a Trainer has trained?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.snapshot import Script, ScriptCall

from ._calls import reached_calls, trainer_calls

# Small files, which each rank writes with the same content.
_NO_WEIGHTS = re.compile(r"tokeni[sz]er|processor|config|extractor|vocab", re.IGNORECASE)
_LEFT_TO_TRAINER = re.compile(r"state_dict|DTensor|safe_serialization=None")


def saves_after_trainer(script: Script, saves: Sequence[ScriptCall]) -> list[ScriptCall]:
    """Return the calls that save a model in the function that called a Trainer's train before."""
    trained = [*trainer_calls(script), *reached_calls(script, r"trainer\.train")]
    return [
        save
        for save in saves
        if not _NO_WEIGHTS.search(f"{save.name} {' '.join(save.written)}")
        and not any(_LEFT_TO_TRAINER.search(text) for text in (*save.written, *save.keywords))
        and any((call.file, call.function) == (save.file, save.function) and call.line < save.line for call in trained)
    ]
