"""Does a script get its ranks from Slurm or MPI, and does each task of Slurm see one GPU only?"""

from __future__ import annotations

import re

from mgpu.snapshot import InScript, Script, ScriptCall, ScriptSet

from ._calls import INIT, argument, reached_calls, sets

_OF_SLURM = "os.environ['SLURM_PROCID']"
# Set by Open MPI, by the PMI of MPICH and Intel MPI, and by MVAPICH.
_OF_MPI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
_OF_LAUNCHER = re.compile(r"\b(?:LOCAL_)?RANK\b")  # set by torchrun and accelerate
_CHOOSES = r"torch\.cuda\.(?:set_device|device)"


def rank_from_slurm(script: Script) -> ScriptCall | ScriptSet | None:
    """Return where the process group gets the rank of Slurm's task; None if it can get another launcher's rank."""
    started = reached_calls(script, re.escape(INIT))
    put = [one for one in sets(script, r"os\.environ\['RANK'\]") if one.reached and _OF_SLURM in one.value]
    for call in started:
        if call.keywords.get("rank") == _OF_SLURM and _is_always_read(script, call, _OF_SLURM):
            return call
    return put[0] if put and started and not put[0].conditions and not put[0].guards else None


def rank_from_mpi(script: Script) -> tuple[ScriptCall, str] | None:
    """Return where the process group gets the rank of an MPI process, and its variable; None if another one is used."""
    for call in reached_calls(script, re.escape(INIT)):
        for name in _OF_MPI:
            value = f"os.environ['{name}']"
            if call.keywords.get("rank") == value and _is_always_read(script, call, value):
                return call, name
    return None


def rank_of_tasks(script: Script) -> bool:
    """Whether only srun or mpirun can start the ranks: they have a number, but no rendezvous of their own."""
    if script.spawns or knows_other_ranks(script):
        return False
    return rank_from_slurm(script) is not None or rank_from_mpi(script) is not None


def _is_always_read(script: Script, call: ScriptCall, value: str) -> bool:
    """Whether the rank is read from this variable whenever the process group is started."""
    name = value.partition("'")[2].partition("'")[0]
    spots: list[ScriptCall | ScriptSet] = [
        one for one in script.calls if one.reached and any(name in written for written in one.written)
    ]
    spots += [one for one in script.sets if value in one.value and one.reached]
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
