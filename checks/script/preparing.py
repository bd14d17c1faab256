"""What do all ranks do at once before the training that one of them should do first?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.snapshot import Script, ScriptCall

from ._calls import calls, finding, given, unpacks
from ._rank_paths import by_everyone, in_use, own_loop, trains, words

_DEFERRING_EXECUTION = "https://huggingface.co/docs/accelerate/main/en/concept_guides/deferring_execution"
_DDP_TUTORIAL = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
_DOWNLOADS = r"urllib\.request\.urlretrieve|gdown\.(?:cached_)?download\w*|wget\.download|nltk\.download"
_LOADED = re.compile(r".*load_state_dict")
_FIRST = re.compile(r"main_process_first|rank_?0_first|local_main_first|zero_first", re.IGNORECASE)


@check(Severity.WARNING, source="https://github.com/pytorch/tutorials/issues/3065", given=own_loop)
def script_downloads_on_every_rank(script: Script) -> Answer:
    """Every rank downloads the data set into the same folder at the same time.

    Why: N processes write the same files: checksum errors and cut archives, on some ranks and some days.
    More: Or files are missing: each rank runs the whole script, and unpacks over the others.

    Fix: Download on one rank of each machine before dist.barrier(), then read on all.
    """
    loads = calls(script, r"torch(?:vision|audio|text)\.datasets\..*")
    asked = [call for call in loads if call.keywords.get("download") == "True"]
    downloads = in_use(script, [*calls(script, _DOWNLOADS), *asked])
    if not downloads or not trains(script):
        return Ok("nothing that downloads without a lock")
    if _one_first(script):
        return Ok(f"{len(downloads)} downloads, in a script that lets one rank go first")
    wrong = by_everyone(script, downloads)
    if not wrong:
        return Ok(f"{len(downloads)} downloads, each on one rank")
    fix = commands("if local_rank == 0:")
    if script.speaks == "accelerate":
        fix = Fix("Let one process of each machine go first.", ("with accelerator.local_main_process_first():",))
    return finding(script, wrong[0], "every rank downloads into the same folder at the same time", fix, wrong[1:])


@check(Severity.INFO, source=_DEFERRING_EXECUTION, given=own_loop)
def script_tokenises_on_every_rank(script: Script) -> Answer:
    """Every rank prepares the whole data set for itself instead of reading what one rank has prepared.

    Why: N ranks do the same work N times; one that goes first leaves a cache for the others.
    More: datasets caches what map() has done, but N ranks that begin at the same time find no cache: each does all of
    the work, with num_proc processes each, and shares the machine's memory and cores with the others.

    Fix: Let one go first; the others find its cache.
    """
    maps = list(calls(script, r"datasets\.load_dataset\(\)(?:\.\w+\(\)|\[[^]]*\])*\.map"))
    lazy = any(_of_a_part(call) for call in calls(script, r"datasets\.load_dataset"))
    if not maps or lazy or not trains(script):
        return Ok("no data set of Hugging Face is prepared before the training")
    if _one_first(script) or any(call.name.endswith("load_from_disk") for call in script.calls):
        return Ok("one rank goes first")
    wrong = by_everyone(script, maps)
    if not wrong:
        return Ok(f"{len(maps)} calls of map(), each on one rank")
    fix = Fix("Do it there, then dist.barrier(), then the others, which find its cache.", ("if local_rank == 0:",))
    if script.speaks == "accelerate":
        fix = commands("with accelerator.main_process_first():")
    return finding(script, wrong[0], "every rank runs map() over the whole data set at the same time", fix, wrong[1:])


def _of_a_part(load: ScriptCall) -> bool:
    """Whether a data set is read row by row, or only a slice of it."""
    return load.keywords.get("streaming") not in (None, "False") or "[" in load.keywords.get("split", "")


def _one_first(script: Script) -> bool:
    """Whether one rank is let go first: a context for it, or a barrier for the others on one side of a condition."""
    contexts = any(_FIRST.search(call.name) for call in script.calls)
    barrier = any(
        "barrier" in call.name and {"main", "local_main", "not_main", "some"} & set(call.guards)
        for call in script.calls
    )
    return contexts or barrier


@check(Severity.INFO, source=_DDP_TUTORIAL, given=own_loop)
def script_checkpoint_loaded_onto_gpu_0(script: Script) -> Answer:
    """A checkpoint is loaded without map_location by every rank.

    Why: A checkpoint saved from cuda:0 takes memory of GPU 0 once for every rank.
    More: torch.load puts tensors back where they were saved: N copies and N CUDA contexts there, and rank 0 is the
    first that runs out of memory.

    Fix: Load it onto the CPU, or onto the rank's own device.
    """
    loads = in_use(script, calls(script, r"torch\.load"))
    if not loads or not trains(script):
        return Ok("nothing is loaded with torch.load")
    if any(given(call, 1, "map_location") or unpacks(call) for call in loads):
        return Ok("torch.load is given a map_location")
    wrong = [call for call in by_everyone(script, loads) if _into_a_model(script, call)]
    if not wrong:
        return Ok(f"{len(loads)} calls of torch.load, of no checkpoint that every rank loads")
    return finding(
        script,
        wrong[0],
        "torch.load without map_location: every rank loads onto the GPU it was saved from",
        commands('torch.load(path, map_location="cpu")'),
        wrong[1:],
    )


def _into_a_model(script: Script, load: ScriptCall) -> bool:
    """Whether what is loaded goes into a model or an optimizer."""
    for call in script.calls:
        if not _LOADED.fullmatch(call.name) or call.file != load.file:
            continue
        if "torch.load(" in "".join((*call.arguments, *call.written)) and call.line == load.line:
            return True
        if call.function == load.function and call.line >= load.line and set(load.targets) & words(call.written):
            return True
    return False
