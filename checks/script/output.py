"""Does every rank save, write or report what only one rank should?"""

from __future__ import annotations

import re
from dataclasses import replace

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import python
from mgpu.snapshot import Script, ScriptCall
from mgpu.text import counted

from ._calls import INIT, argument, calls, finding, reached_calls, text_of
from ._rank_paths import (
    dotted_names,
    has_rank_argument,
    is_after_all,
    is_per_sample,
    is_ruled_out,
    own_loop,
    own_loop_or_trainer,
    reached_by_every_rank,
    trains,
    visibly_called,
)
from ._trainer_saves import saves_after_trainer

_DDP_TUTORIAL = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"
_DEFERRING_EXECUTION = "https://huggingface.co/docs/accelerate/main/en/concept_guides/deferring_execution"
_DISTRIBUTED_TRAINING = "https://docs.wandb.ai/models/track/log/distributed-training"
_SAVES = r"torch\.save|safetensors\.torch\.save_(?:file|model)|.+\.save_pretrained"
_TRACKERS = (
    r"wandb\.init|mlflow\.start_run|neptune\.init_run|comet_ml\.(?:Experiment|start)|aim\.Run|trackio\.init"
    r"|torch\.utils\.tensorboard\.(?:writer\.)?SummaryWriter|tensorboardX\.SummaryWriter"
)
_ADDS = r".+\.add_(?:scalars?|image|images|figure|histogram|text|video|audio|embedding|graph|hparams|pr_curve|mesh)"
_PLACE = re.compile(r"output|out_dir|save|path", re.IGNORECASE)
# Sharded weights, and a function that writes only on the main process.
_LEFT_TO_OTHERS = re.compile(r"get_state_dict|zero_?3|state_dict_type|DTensor|accelerator\.save\b")
# What starts the process group.
_STARTS = rf"{re.escape(INIT)}|deepspeed\.(?:init_distributed|initialize)"
# Settings of wandb that do not depend on the number of processes.
_PLAIN_SETTINGS = {"start_method", "code_dir", "save_code", "console", "init_timeout", "program"}
# Arguments that configure a tracker for several processes only with a value that is not constant.
_SWITCHES = {"mode", "write_to_disk", "job_type"}
_OFF = ("'disabled'", "False", "None")


@check(Severity.WARNING, source=_DDP_TUTORIAL, given=own_loop_or_trainer)
def script_saves_on_every_rank(script: Script) -> Answer:
    """Every rank saves a model or checkpoint to the same file.

    Why: N processes write one file at the same time. It may be truncated or corrupted, which shows only when it is
    loaded.
    More: Each rank runs the whole script. Even if it works, N times as much data is written.

    Fix: Save only on rank 0, and let the others wait if they need the file.
    """
    saves = visibly_called(script, calls(script, _SAVES))
    if script.speaks == "trainer":
        saves = saves_after_trainer(script, saves)
    elif not trains(script):
        saves = []
    if not saves:
        return Ok("no visible training and saving")
    own = [call for call in reached_by_every_rank(script, saves) if not _LEFT_TO_OTHERS.search(" ".join(call.written))]
    wrong = [call for call in own if not has_rank_argument(call) and not is_per_sample(script, call)]
    wrong = [call for call in wrong if not _is_cached_or_in_memory(call) and not _is_in_dataset(script, call)]
    wrong = [call for call in wrong if not is_ruled_out(script, call)]
    if wrong and script.speaks == "accelerate" and _shards_weights(script):
        return Skip("with sharded weights, every rank must save, and the library decides which rank writes")
    if not wrong:
        return Ok(f"{counted(len(saves), 'save call')}, each guarded or with a file per rank")
    what = wrong[0].name.rpartition(".")[2]
    fix = commands(_main_condition(script, wrong[0]))
    if script.speaks == "accelerate" and re.search(r"model|prepare", wrong[0].name, re.IGNORECASE):
        line = "{:dotted}(..., is_main_process=accelerator.is_main_process, save_function=accelerator.save)"
        fix = Fix("Pass it the process that writes.", (python(line, what),))
    elif script.speaks == "trainer":
        text = "Save only on rank 0. With sharded weights, call trainer.save_model on every rank instead."
        fix = Fix(text, ("if trainer.is_world_process_zero():",))
    return finding(script, wrong[0], f"every rank runs {what}() to the same file", fix, wrong[1:])


def _is_cached_or_in_memory(call: ScriptCall) -> bool:
    """Whether a call saves only a missing file, which the other ranks may then find, or writes to memory."""
    return any("BytesIO" in value for value in call.arguments) or any(
        re.search(r"\bexists\(|is_file\(|isfile\(", condition) for condition in call.conditions
    )


def _is_in_dataset(script: Script, call: ScriptCall) -> bool:
    """Whether a dataset saves its own cache, which its library requests only if the file is missing."""
    owner = call.function.rpartition(".")[0].rpartition(".")[2]
    return any(one.name == owner and "Dataset" in " ".join(one.bases) for one in script.classes if owner)


@check(Severity.INFO, source=_DEFERRING_EXECUTION, given=own_loop)
def script_writes_on_every_rank(script: Script) -> Answer:
    """Every rank writes a file with the same name.

    Why: N processes write one file: the last one wins, or their lines are mixed.

    Fix: Write only on rank 0, or add the rank to the file name.
    """
    writes = visibly_called(
        script, [call for call in calls(script, r"(?:io\.|codecs\.)?open|.+\.open") if _opens_for_writing(call)]
    )
    writes = [call for call in writes if not call.file]
    if not writes or not trains(script):
        return Ok("no file is opened for writing")
    wrong = [
        call
        for call in reached_by_every_rank(script, writes)
        if not has_rank_argument(call) and _always_writes(script, call)
    ]
    if not wrong:
        return Ok(f"{counted(len(writes), 'file')} opened for writing, each guarded or with a file per rank")
    return finding(
        script,
        wrong[0],
        "every rank opens the same file for writing",
        commands(_main_condition(script, wrong[0])),
        wrong[1:],
    )


@check(Severity.WARNING, source=_DISTRIBUTED_TRAINING, given=own_loop_or_trainer)
def script_tracker_on_every_rank(script: Script) -> Answer:
    """Every rank starts its own run in an experiment tracker.

    Why: Each rank runs the whole script, and its tracker run shows only the loss of its own shard.
    More: N GPUs appear as N runs (or as N event files in one folder, whose curves overlap).

    Fix: Start the tracker and log to it only on rank 0.
    More: With accelerate, use Accelerator(log_with=...).
    """
    trackers = visibly_called(script, calls(script, _TRACKERS))
    if not trackers:
        return Ok("no experiment tracker is started")
    own = [call for call in reached_by_every_rank(script, trackers) if not _is_for_ranks(script, call)]
    own = [call for call in own if not (call.name.endswith("SummaryWriter") and _writes_on_one_rank(script))]
    wrong = [call for call in own if not has_rank_argument(replace(call, unique=call.unique and not call.timed))]
    if not wrong:
        return Ok(f"{counted(len(trackers), 'tracker')}, each guarded or configured for several ranks")
    name = wrong[0].name.removeprefix("torch.utils.tensorboard.").removeprefix("writer.")
    fix = commands(_main_condition(script, wrong[0]))
    if script.speaks == "accelerate":
        library = "with Accelerator(log_with=...), accelerator.init_trackers(...) and accelerator.log(...)"
        fix = Fix(f"Start it only on the main process, or let accelerate do it, {library}.", fix.commands)
    elif script.speaks == "trainer":
        fix = Fix("Start it only on rank 0, or leave it to the Trainer's report_to, which does so.", fix.commands)
    return finding(script, wrong[0], f"every rank calls {name}(): N GPUs create N runs", fix, wrong[1:])


def _is_for_ranks(script: Script, call: ScriptCall) -> bool:
    """Whether a tracker is configured for several processes, or switched off."""
    values = [call.keywords[name] for name in _SWITCHES & set(call.keywords)]
    grouped = "group" in call.keywords or ("settings" in call.keywords and not _has_plain_settings(script))
    return grouped or any(value in _OFF or (text_of(value) is None and value != "True") for value in values)


def _has_plain_settings(script: Script) -> bool:
    """Whether no visible settings of wandb are for several processes."""
    made = calls(script, r"wandb\.(?:\w+\.)*Settings")
    return bool(made) and all(set(call.keywords) <= _PLAIN_SETTINGS and not call.arguments for call in made)


def _writes_on_one_rank(script: Script) -> bool:
    """Whether the script writes to its event files, and no visible line does so on every rank.

    The writers of the other ranks then leave empty files.
    """
    written = visibly_called(script, calls(script, _ADDS))
    return bool(written) and not reached_by_every_rank(script, written)


def _main_condition(script: Script, spot: ScriptCall) -> str:
    """Return the condition that is true only on rank 0, in the style of this script, and that holds at this spot."""
    if script.speaks == "accelerate":
        return "if accelerator.is_main_process:"
    starts = [call for call in reached_calls(script, _STARTS) if "single" not in call.guards]
    # A process that the script spawns gets no RANK.
    early = bool(starts) and not script.spawns and all(is_after_all(script, one, [spot]) for one in starts)
    if script.speaks == "trainer" or early:  # whose process group has not started yet
        return "if int(os.environ.get('RANK', 0)) == 0:"
    before = [one for one in starts if is_after_all(script, spot, [one])]
    if before and not any("distributed" not in one.guards or "distributed" in spot.guards for one in before):
        return "if not dist.is_initialized() or dist.get_rank() == 0:"  # a run with one process starts no group
    return "if dist.get_rank() == 0:"


def _always_writes(script: Script, call: ScriptCall) -> bool:
    """Whether a file is written in every run that sets an output path, in some rounds of a loop or in all."""
    around = [script.loops[number] for number in call.loops if number < len(script.loops)]
    counters = dotted_names(loop.target for loop in around)
    return all(_PLACE.search(text) or dotted_names([text]) <= counters for text in call.conditions)


def _opens_for_writing(call: ScriptCall) -> bool:
    place = 0 if call.name.endswith("().open") else 1
    texts = "".join((*call.arguments, *call.written))
    mode = text_of(argument(call, place, "mode"))
    return mode is not None and bool(re.fullmatch(r"[wax][bt+]*", mode)) and "devnull" not in texts.replace("/", "")


def _shards_weights(script: Script) -> bool:
    """Whether an accelerate script shards the weights itself.

    fully_shard keeps the model's own save_pretrained, which every rank must call.
    """
    own = calls(script, r"accelerate\.Accelerator")
    return any({"parallelism_config", "fsdp_plugin", "deepspeed_plugin"}.intersection(call.keywords) for call in own)
