"""Does a script get its ranks from Slurm, and does each of them see one GPU only?"""

from __future__ import annotations

import re

from mgpu.snapshot import InScript, Script, ScriptCall, ScriptSet

from ._calls import INIT, argument, reached_calls, sets

_OF_SLURM = "os.environ['SLURM_PROCID']"
_OF_LAUNCHER = re.compile(r"\b(?:LOCAL_)?RANK\b")  # set by torchrun and accelerate
_CHOOSES = r"torch\.cuda\.(?:set_device|device)"


def rank_from_slurm(script: Script) -> ScriptCall | ScriptSet | None:
    """Return where the process group gets the rank of Slurm's task; None if it can get another launcher's rank."""
    started = reached_calls(script, re.escape(INIT))
    put = [one for one in sets(script, r"os\.environ\['RANK'\]") if one.reached and _OF_SLURM in one.value]
    for call in started:
        if call.keywords.get("rank") == _OF_SLURM and _is_always_read(script, call):
            return call
    return put[0] if put and started and not put[0].conditions and not put[0].guards else None


def _is_always_read(script: Script, call: ScriptCall) -> bool:
    """Whether the rank of Slurm's task is read whenever the process group is started."""
    spots: list[ScriptCall | ScriptSet] = [one for one in script.calls if _OF_SLURM in one.arguments and one.reached]
    spots += [one for one in script.sets if _OF_SLURM in one.value and one.reached]
    around = {*call.conditions, *call.guards}
    return any(around.issuperset((*one.conditions, *one.guards)) for one in spots)


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
    """Whether a call selects GPU 0, also through the last value of a variable in its function."""
    given = argument(call, 0, "device") or ""
    before: list[ScriptCall | ScriptSet] = [one for one in sets(script, re.escape(given)) if _precedes(one, call)]
    before += [one for one in script.calls if given in one.targets and _precedes(one, call)]
    last = max(before, key=lambda one: one.line, default=None)
    return given in ("0", "'cuda:0'") or (isinstance(last, ScriptSet) and last.value == "0")


def _precedes(one: InScript, other: InScript) -> bool:
    return (one.file, one.function) == (other.file, other.function) and one.line < other.line
