"""Does a DataLoader's worker process do what only the rank itself can?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.check import Answer, Ok, Severity, check, commands
from mgpu.snapshot import InScript, Script, ScriptCall

from ._calls import DATA_LOADER, argument, calls, finding, reached_calls
from ._rank_paths import callers

_FORK = "https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing"
_OTHER_START = r".*\.set_start_method|.*\.get_context"
_OF_SAMPLES = ("__getitem__", "__iter__", "__getitems__")
_OPTION = re.compile(r"(?:(not )\(?)?self\.(\w+)(?: (?:==|is) (True|False))?\)?")
_TO_CUDA = re.compile(r"['\"]cuda(?::\d+)?['\"]")


@check(Severity.WARNING, source=_FORK)
def script_cuda_in_worker(script: Script) -> Answer:
    """A dataset moves samples to the GPU in the DataLoader's worker processes.

    Why: A worker is a fork of its rank, and CUDA does not survive a fork: "Cannot re-initialize CUDA in forked
    subprocess".
    More: With the start method spawn it works, but each worker uses GPU memory for a CUDA context of its own.

    Fix: Return CPU tensors from the dataset, and move the whole batch in the training loop.
    """
    loaders = [call for call in reached_calls(script, DATA_LOADER) if _workers(script, call)]
    if not loaders:
        return Ok("no DataLoader with a known number of worker processes")
    if calls(script, _OTHER_START) or any("multiprocessing_context" in call.keywords for call in loaders):
        return Ok("the script chooses how worker processes start")
    collating = {name for call in loaders if (name := call.keywords.get("collate_fn"))}
    wrong = [call for call in script.calls if call.reached and _uses_gpu(call) and _in_worker(script, call, collating)]
    wrong = [call for call in wrong if not _is_for_other_loaders(script, call, loaders)]
    if not wrong:
        return Ok("no dataset visibly uses the GPU")
    return finding(
        script,
        wrong[0],
        f"{wrong[0].function} uses the GPU in a DataLoader's worker process",
        commands("batch = batch.to(device, non_blocking=True)"),
        wrong[1:],
        workers=_workers(script, loaders[0]),
    )


def _workers(script: Script, loader: ScriptCall) -> int:
    """Return the number of worker processes of a DataLoader, also as an option's default; 0 if it is not known."""
    value = argument(loader, 5, "num_workers") or "0"
    option = next((one for one in script.options if f"--{value.rpartition('.')[2]}" in one.names), None)
    value = (option.default or "0") if option else value
    return int(value) if value.isdecimal() else 0


def _uses_gpu(call: ScriptCall) -> bool:
    if call.name.endswith(".cuda"):
        return not call.name.startswith("torch.cuda")
    device = call.keywords.get("device", "")
    return bool(
        _TO_CUDA.match(device) or (call.name.endswith(".to") and call.arguments and _TO_CUDA.match(call.arguments[0]))
    )


def _in_worker(script: Script, spot: InScript, collating: set[str]) -> bool:
    """Whether a worker runs this: in a dataset's method for samples, in what it calls, or in a collate function."""
    functions = {spot.function, *(site.function for site in callers(script, spot) if site.file == spot.file)}
    return any(
        (name.rpartition(".")[2] in _OF_SAMPLES and _is_dataset(script, name, spot.file)) or name in collating
        for name in functions
        if name
    )


def _is_for_other_loaders(script: Script, spot: InScript, loaders: Sequence[ScriptCall]) -> bool:
    """Whether all datasets of these loaders have another value of an option of their own around a spot."""
    owner = spot.function.rpartition(".")[0]
    makers = [call for call in script.calls if owner and call.name.rpartition(".")[2] == owner]
    given = [[call for call in makers if set(call.targets) & set(loader.written[:1])] for loader in loaders]
    options = [found for text in spot.conditions if (found := _OPTION.fullmatch(text))]
    return all(given) and any(
        all(call.keywords.get(name) == excluded for calls_of in given for call in calls_of)
        for name, excluded in map(_excluded, options)
    )


def _excluded(option: re.Match[str]) -> tuple[str, str]:
    """Return the name of an option, and the value with which a condition on it is false."""
    negated, name, value = bool(option[1]), option[2], option[3] or "True"
    return name, str(negated is (value == "True"))


def _is_dataset(script: Script, method: str, file: str) -> bool:
    owner = method.rpartition(".")[0]
    bases = next((one.bases for one in script.classes if (one.name, one.file) == (owner, file)), ())
    return any(re.fullmatch(r"torch\.utils\.data\.\w*Dataset|torchvision\.datasets\..+", base) for base in bases)
