"""Does every rank save, write and report what one rank should?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import python
from mgpu.snapshot import Script, ScriptCall

from ._calls import calls, finding, given, text_of
from ._rank_paths import by_everyone, in_use, own_loop, told_by_rank, trains

_DDP_TUTORIAL = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
_DEFERRING_EXECUTION = "https://huggingface.co/docs/accelerate/main/en/concept_guides/deferring_execution"
_DISTRIBUTED_TRAINING = "https://docs.wandb.ai/models/track/log/distributed-training"
_SAVES = r"torch\.save|safetensors\.torch\.save_(?:file|model)|.+\.save_pretrained"
_TRACKERS = (
    r"wandb\.init|mlflow\.start_run|neptune\.init_run|comet_ml\.(?:Experiment|start)|aim\.Run|trackio\.init"
    r"|torch\.utils\.tensorboard\.(?:writer\.)?SummaryWriter|tensorboardX\.SummaryWriter"
)
_PLACE = re.compile(r"output|out_dir|save|path", re.IGNORECASE)
# Weights that no rank has alone, and a function that writes on the main process only.
_LEFT_TO_OTHERS = re.compile(r"get_state_dict|zero_?3|state_dict_type|DTensor|accelerator\.save\b")
# By which a tracker is told that a run of several processes is meant.
_GROUPED = {"group", "settings", "mode", "write_to_disk", "job_type"}


@check(Severity.WARNING, source=_DDP_TUTORIAL, given=own_loop)
def script_saves_on_every_rank(script: Script) -> Answer:
    """A model or checkpoint is saved by every rank into the same file.

    Why: N processes write one file at the same time: it may be cut or mixed, which shows when it is loaded.
    More: Each rank runs the whole script. Even when it goes well, N times as much is written.

    Fix: Save on rank 0 alone; the others wait where they need the file.
    """
    saves = in_use(script, calls(script, _SAVES))
    if not saves or not trains(script):
        return Ok("nothing is trained and saved in the open")
    own = [call for call in by_everyone(script, saves) if not _LEFT_TO_OTHERS.search(" ".join(call.written))]
    wrong = [call for call in own if not told_by_rank(call)]
    if wrong and script.speaks == "accelerate" and _sharded(script):
        return Skip("with sharded weights every rank saves, and which of them writes is the library's matter")
    if not wrong:
        return Ok(f"{len(saves)} places that save, each guarded or with a file for every rank")
    what = wrong[0].name.rpartition(".")[2]
    fix = commands(_main(script))
    if script.speaks == "accelerate" and re.search(r"model|prepare", wrong[0].name, re.IGNORECASE):
        line = "{:dotted}(..., is_main_process=accelerator.is_main_process, save_function=accelerator.save)"
        fix = Fix("Tell it which process writes.", (python(line, what),))
    return finding(script, wrong[0], f"every rank runs {what}(), into the same file", fix, wrong[1:])


@check(Severity.INFO, source=_DEFERRING_EXECUTION, given=own_loop)
def script_writes_on_every_rank(script: Script) -> Answer:
    """A file is written by every rank under the same name.

    Why: N processes write one file: the last one wins, or their lines are mixed.

    Fix: Write on rank 0 alone, or put the rank into the file's name.
    """
    writes = in_use(script, [call for call in calls(script, r"(?:io\.|codecs\.)?open|.+\.open") if _writes(call)])
    writes = [call for call in writes if not call.file]
    if not writes or not trains(script):
        return Ok("no file is opened for writing")
    wrong = [call for call in by_everyone(script, writes) if not told_by_rank(call) and _always(call)]
    if not wrong:
        return Ok(f"{len(writes)} places that open a file for writing, each guarded or with a file for every rank")
    return finding(script, wrong[0], "every rank opens the same file for writing", commands(_main(script)), wrong[1:])


@check(Severity.WARNING, source=_DISTRIBUTED_TRAINING, given=own_loop)
def script_tracker_on_every_rank(script: Script) -> Answer:
    """Every rank starts a run of its own in an experiment tracker.

    Why: Each rank runs the whole script; its run shows the loss of its own shard only.
    More: N GPUs show as N runs (or as N event files in one folder, whose curves are drawn over each other).

    Fix: Start it, and log to it, on rank 0 alone.
    More: With accelerate use Accelerator(log_with=...).
    """
    trackers = in_use(script, calls(script, _TRACKERS))
    if not trackers:
        return Ok("no experiment tracker is started")
    own = [call for call in by_everyone(script, trackers) if not _GROUPED.intersection(call.keywords)]
    wrong = [call for call in own if not told_by_rank(call)]
    if not wrong:
        return Ok(f"{len(trackers)} places that start a tracker, each guarded or told of the other ranks")
    name = wrong[0].name.removeprefix("torch.utils.tensorboard.").removeprefix("writer.")
    fix = commands(_main(script))
    if script.speaks == "accelerate":
        library = "with Accelerator(log_with=...), accelerator.init_trackers(...) and accelerator.log(...)"
        fix = Fix(f"Start it on the main process alone, or let accelerate do it, {library}.", fix.commands)
    return finding(script, wrong[0], f"every rank calls {name}(): N GPUs make N runs", fix, wrong[1:])


def _main(script: Script) -> str:
    """The line that lets only rank 0 pass, as this script would write it."""
    return "if accelerator.is_main_process:" if script.speaks == "accelerate" else "if dist.get_rank() == 0:"


def _always(call: ScriptCall) -> bool:
    """Whether a file is written in every run that has a place for it."""
    return all(_PLACE.search(condition) for condition in call.conditions)


def _writes(call: ScriptCall) -> bool:
    place = 0 if call.name.endswith("().open") else 1
    told = "".join((*call.arguments, *call.written))
    mode = text_of(given(call, place, "mode"))
    return mode is not None and bool(re.fullmatch(r"[wax][bt+]*", mode)) and "devnull" not in told.replace("/", "")


def _sharded(script: Script) -> bool:
    """Whether a script of accelerate shards the weights itself: fully_shard leaves the model its own save_pretrained,
    which every rank must call."""
    own = calls(script, r"accelerate\.Accelerator")
    return any({"parallelism_config", "fsdp_plugin", "deepspeed_plugin"}.intersection(call.keywords) for call in own)
