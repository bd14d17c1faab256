"""Which preparation do all ranks run at once that one of them should run first?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.snapshot import Script, ScriptCall
from mgpu.text import counted

from ._calls import argument, calls, finding, unpacks
from ._rank_paths import dotted_names, own_loop, reached_by_every_rank, trains, visibly_called

_DEFERRING_EXECUTION = "https://huggingface.co/docs/accelerate/main/en/concept_guides/deferring_execution"
_DDP_TUTORIAL = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
_DOWNLOADS = r"urllib\.request\.urlretrieve|gdown\.(?:cached_)?download\w*|wget\.download|nltk\.download"
_DATASETS = r"torch(?:vision|audio|text)\.datasets\."
_LOADED = re.compile(r".*load_state_dict")
_LINES = 2  # of a comprehension, from its value to its loop
_FIRST = re.compile(r"main_process_first|rank_?0_first|local_main_first|zero_first", re.IGNORECASE)


@check(Severity.WARNING, source="https://github.com/pytorch/tutorials/issues/3065", given=own_loop)
def script_downloads_on_every_rank(script: Script) -> Answer:
    """Every rank downloads the dataset to the same folder at the same time.

    Why: N processes write the same files, which causes intermittent checksum errors and truncated archives.
    More: Files may also be missing, because each rank runs the whole script and unpacks over the others.

    Fix: Download on one rank per node before dist.barrier(), then read on all.
    """
    own = [one.name for one in script.classes if any(re.match(_DATASETS, base) for base in one.bases)]
    loads = calls(script, rf"{_DATASETS}.*|(?:.+\.)?(?:{'|'.join(map(re.escape, own)) or '(?!)'})")
    downloading = [call for call in loads if call.keywords.get("download") == "True"]
    downloads = visibly_called(script, [*calls(script, _DOWNLOADS), *downloading])
    downloads = [call for call in downloads if not call.name.endswith("urlretrieve") or argument(call, 1, "filename")]
    if not downloads or not trains(script):
        return Ok("no downloads without a lock")
    if _has_one_rank_first(script):
        return Ok(f"{counted(len(downloads), 'download')}, in a script that lets one rank go first")
    wrong = reached_by_every_rank(script, downloads)
    if not wrong:
        return Ok(f"{counted(len(downloads), 'download')}, each on one rank")
    fix = commands("if local_rank == 0:")
    if script.speaks == "accelerate":
        fix = Fix("Let one process per node go first.", ("with accelerator.local_main_process_first():",))
    return finding(script, wrong[0], "every rank downloads to the same folder at the same time", fix, wrong[1:])


@check(Severity.INFO, source=_DEFERRING_EXECUTION, given=own_loop)
def script_tokenises_on_every_rank(script: Script) -> Answer:
    """Every rank preprocesses the whole dataset instead of using the cache of one rank.

    Why: N ranks do the same work N times. If one goes first, the others can use its cache.
    More: datasets caches the result of map(), but N ranks that start at the same time find no cache. Each does all of
    the work with num_proc processes, and they compete for the node's memory and cores.

    Fix: Let one rank go first. The others use its cache.
    """
    maps = list(calls(script, r"datasets\.load_dataset\(\)(?:\.\w+\(\)|\[[^]]*\])*\.map"))
    lazy = any(_loads_part(call) for call in calls(script, r"datasets\.load_dataset"))
    if not maps or lazy or not trains(script):
        return Ok("no Hugging Face dataset is preprocessed before training")
    if _has_one_rank_first(script) or any(call.name.endswith("load_from_disk") for call in script.calls):
        return Ok("one rank goes first")
    wrong = reached_by_every_rank(script, maps)
    if not wrong:
        return Ok(f"{counted(len(maps), 'call')} of map(), each on one rank")
    fix = Fix(
        "Run it there first, then dist.barrier(), then on the others, which use its cache.", ("if local_rank == 0:",)
    )
    if script.speaks == "accelerate":
        fix = commands("with accelerator.main_process_first():")
    return finding(script, wrong[0], "every rank runs map() on the whole dataset at the same time", fix, wrong[1:])


def _loads_part(load: ScriptCall) -> bool:
    """Whether a dataset is streamed, or only a slice of it is loaded."""
    return load.keywords.get("streaming") not in (None, "False") or "[" in load.keywords.get("split", "")


def _has_one_rank_first(script: Script) -> bool:
    """Whether one rank goes first: the script has a context manager for it, or a barrier under a rank condition."""
    contexts = any(_FIRST.search(call.name) for call in script.calls)
    barrier = any(
        "barrier" in call.name and {"main", "local_main", "not_main", "some"} & set(call.guards)
        for call in script.calls
    )
    return contexts or barrier


@check(Severity.INFO, source=_DDP_TUTORIAL, given=own_loop)
def script_checkpoint_loaded_onto_gpu_0(script: Script) -> Answer:
    """Every rank loads a checkpoint without map_location.

    Why: A checkpoint saved from cuda:0 uses memory of GPU 0 once for every rank.
    More: torch.load restores tensors to the device they were saved from: N copies and N CUDA contexts there, and rank 0
    runs out of memory first.

    Fix: Load it to the CPU, or to the rank's own device.
    """
    loads = visibly_called(script, calls(script, r"torch\.load"))
    if not loads or not trains(script):
        return Ok("nothing is loaded with torch.load")
    if any(argument(call, 1, "map_location") or unpacks(call) for call in loads):
        return Ok("torch.load has a map_location")
    if _saves_from_cpu(script):
        return Ok("the weights are moved to the CPU before they are saved")
    wrong = [call for call in reached_by_every_rank(script, loads) if _is_loaded_into_model(script, call)]
    if not wrong:
        return Ok(f"{counted(len(loads), 'call')} of torch.load, none for a checkpoint that every rank loads")
    return finding(
        script,
        wrong[0],
        "torch.load without map_location: every rank loads to the GPU it was saved from",
        commands('torch.load(path, map_location="cpu")'),
        wrong[1:],
    )


def _saves_from_cpu(script: Script) -> bool:
    """Whether the script moves what it saves to the CPU: `{name: value.cpu() ...}` over a state_dict()."""
    moved = calls(script, r"\w+\.cpu")
    return any(
        (one.file, one.function) == (each.file, each.function) and 0 <= each.line - one.line <= _LINES
        for each in calls(script, r".*\bstate_dict\(\)\.items")
        for one in moved
    )


def _is_loaded_into_model(script: Script, load: ScriptCall) -> bool:
    """Whether the loaded object goes into a model or an optimizer."""
    for call in script.calls:
        if not _LOADED.fullmatch(call.name) or call.file != load.file:
            continue
        if "torch.load(" in "".join((*call.arguments, *call.written)) and call.line == load.line:
            return True
        if call.function == load.function and call.line >= load.line and set(load.targets) & dotted_names(call.written):
            return True
    return False
