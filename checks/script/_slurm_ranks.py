"""Does a script get its ranks from Slurm, and does each of them see one GPU only?"""

from __future__ import annotations

import re

from mgpu.snapshot import Script, ScriptCall, ScriptSet

from ._calls import INIT, argument, reached_calls, sets

_OF_SLURM = "os.environ['SLURM_PROCID']"
_OF_LAUNCHER = re.compile(r"\b(?:LOCAL_)?RANK\b")  # set by torchrun and accelerate
_CHOOSES = r"torch\.cuda\.(?:set_device|device)"


def rank_from_slurm(script: Script) -> ScriptCall | ScriptSet | None:
    """Return where the process group gets the rank of Slurm's task; None if it can get another launcher's rank."""
    for call in reached_calls(script, re.escape(INIT)):
        if call.keywords.get("rank") == _OF_SLURM:
            return call
    put = [one for one in sets(script, r"os\.environ\['RANK'\]") if one.reached and _OF_SLURM in one.value]
    return put[0] if put and reached_calls(script, re.escape(INIT)) else None


def knows_other_ranks(script: Script) -> bool:
    """Whether the script mentions the rank that another launcher sets."""
    texts = [text for call in script.calls for text in (*call.arguments, *call.written, *call.conditions)]
    texts += [text for one in script.sets for text in (one.value, *one.conditions)]
    texts += [default for option in script.options if (default := option.default)]
    return any(_OF_LAUNCHER.search(text) for text in texts)


def has_one_gpu_per_task(script: Script) -> bool:
    """Whether each task of Slurm selects GPU 0: srun --gpus-per-task=1 shows it only its own GPU."""
    chosen = reached_calls(script, _CHOOSES)
    return rank_from_slurm(script) is not None and bool(chosen) and all(_is_first(script, call) for call in chosen)


def _is_first(script: Script, call: ScriptCall) -> bool:
    """Whether a call selects GPU 0, also through a variable that has no other value in this function."""
    given = argument(call, 0, "device") or ""
    place = (call.file, call.function)
    values = {one.value for one in sets(script, re.escape(given)) if (one.file, one.function) == place}
    made = any(given in one.targets for one in script.calls if (one.file, one.function) == place)
    return given in ("0", "'cuda:0'") or (values == {"0"} and not made)
