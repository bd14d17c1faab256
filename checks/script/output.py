"""Does every rank save, write and report what one rank should?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check
from mgpu.command_line import python
from mgpu.snapshot import Script, ScriptCall

from ._ranks import LOOPS_OF_ITS_OWN, by_everyone, in_use, not_asked, told_by_rank, trains
from ._reading import calls, finding, given, text_of

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


@check(Severity.WARNING, source="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html")
def script_saves_on_every_rank(script: Script) -> Answer:
    """A model or checkpoint is saved by every rank into the same file.

    Why: Each rank runs the whole script. N processes that write one file at the same time leave a file that is cut or
    mixed, which shows only when it is loaded; even when it goes well, N times as much is written.

    Fix: Save on rank 0 alone, and let the others wait before they read the file.
    """
    if skip := not_asked(script, *LOOPS_OF_ITS_OWN):
        return skip
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
    fix = Fix("Save on rank 0 alone; the others wait where they need the file.", (_main(script),))
    if script.speaks == "accelerate" and re.search(r"model|prepare", wrong[0].name, re.IGNORECASE):
        line = "{:dotted}(..., is_main_process=accelerator.is_main_process, save_function=accelerator.save)"
        fix = Fix("Tell it which process writes.", (python(line, what),))
    return finding(
        script,
        wrong[0],
        f"every rank runs {what}(), into the same file",
        "N processes write one file at the same time: it may be cut or mixed, which shows when it is loaded.",
        fix,
        wrong[1:],
    )


@check(Severity.INFO, source="https://huggingface.co/docs/accelerate/main/en/concept_guides/deferring_execution")
def script_writes_on_every_rank(script: Script) -> Answer:
    """A file is written by every rank under the same name.

    Why: Each rank runs the whole script. Of N processes that open one file for writing the last one wins, or their
    lines are mixed.

    Fix: Write on rank 0 alone, or put the rank into the file's name.
    """
    if skip := not_asked(script, *LOOPS_OF_ITS_OWN):
        return skip
    writes = in_use(script, [call for call in calls(script, r"(?:io\.|codecs\.)?open|.+\.open") if _writes(call)])
    writes = [call for call in writes if not call.file]
    if not writes or not trains(script):
        return Ok("no file is opened for writing")
    wrong = [call for call in by_everyone(script, writes) if not told_by_rank(call) and _always(call)]
    if not wrong:
        return Ok(f"{len(writes)} places that open a file for writing, each guarded or with a file for every rank")
    return finding(
        script,
        wrong[0],
        "every rank opens the same file for writing",
        "N processes write one file: the last one wins, or their lines are mixed.",
        Fix("Write on rank 0 alone, or put the rank into the file's name.", (_main(script),)),
        wrong[1:],
    )


@check(Severity.WARNING, source="https://docs.wandb.ai/models/track/log/distributed-training")
def script_tracker_on_every_rank(script: Script) -> Answer:
    """Every rank starts a run of its own in an experiment tracker.

    Why: Each rank runs the whole script, so that N GPUs show as N runs (or as N event files in one folder, whose curves
    are drawn over each other), and each rank logs the loss of its own shard only.

    Fix: Start the tracker and log on rank 0 alone; with accelerate use Accelerator(log_with=...).
    """
    if skip := not_asked(script, *LOOPS_OF_ITS_OWN):
        return skip
    trackers = in_use(script, calls(script, _TRACKERS))
    if not trackers:
        return Ok("no experiment tracker is started")
    own = [call for call in by_everyone(script, trackers) if not _GROUPED.intersection(call.keywords)]
    wrong = [call for call in own if not told_by_rank(call)]
    if not wrong:
        return Ok(f"{len(trackers)} places that start a tracker, each guarded or told of the other ranks")
    name = wrong[0].name.removeprefix("torch.utils.tensorboard.").removeprefix("writer.")
    fix = Fix("Start it, and log to it, on rank 0 alone.", (_main(script),))
    if script.speaks == "accelerate":
        library = "with Accelerator(log_with=...), accelerator.init_trackers(...) and accelerator.log(...)"
        fix = Fix(f"Start it on the main process alone, or let accelerate do it, {library}.", fix.commands)
    return finding(
        script,
        wrong[0],
        f"every rank calls {name}(): N GPUs make N runs",
        "Each rank runs the whole script; its run shows the loss of its own shard only.",
        fix,
        wrong[1:],
    )


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
