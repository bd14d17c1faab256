"""Does every rank make the same steps, from the same parameters, in one group?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.command_line import python
from mgpu.snapshot import InScript, Script, ScriptCall
from mgpu.text import counted

from ._calls import DDP, argument, calls, finding, reached_calls, sets, text_of
from ._rank_paths import (
    ONE_RANK,
    PREPARED,
    WRAPPED,
    backward_calls,
    by_hand,
    dotted_names,
    has_rank_argument,
    own_loop,
    reached_by_every_rank,
    training_loops,
    visibly_called,
)
from ._reaches_backward import reaches_backward

_DDP = "https://docs.pytorch.org/docs/stable/notes/ddp.html"
_ENVIRONMENT = "https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"
_FSDP2 = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_SAMPLER = "https://docs.pytorch.org/docs/stable/data.html"
_STEPS = (
    r"torch\.optim\.(?!lr_scheduler)\w+\(\)\.step|torch\.optim\.lr_scheduler\.\w+\(\)\.step"
    r"|accelerate\.Accelerator\(\)\.prepare(?:_optimizer|_scheduler)?\(\)\.step"
)
_OWN_RANK = re.compile(r"(?:torch\.distributed\.)?get_rank\(\)|(?:global_)?rank|accelerator\.process_index")
_INNER = re.compile(rf"(?:{WRAPPED})\.module")
_EXCHANGES = re.compile(r"(?:average|sync\w*|reduce)_?grad\w*|all_?reduce\S* .*\bgrad", re.IGNORECASE)
_NO_SYNC = re.compile(r".*\.no_sync(?:\(\))?")


def _is_on_one_rank(call: ScriptCall) -> bool:
    return bool(ONE_RANK.intersection(call.guards)) and "single" not in call.guards


def _is_in_every_run(spot: InScript) -> bool:
    return spot.reached and not spot.guards and not spot.conditions and "try" not in spot.within


@check(Severity.WARNING, source=_DDP, given=own_loop)
def script_steps_on_one_rank(script: Script) -> Answer:
    """The optimizer or the schedule steps on only some ranks.

    Why: All ranks have the same gradients, but only some change their parameters or learning rate. From then on, the
    ranks train different models.

    Fix: Step on every rank, outside the condition.
    """
    steps = visibly_called(script, calls(script, _STEPS))
    wrong = [call for call in steps if _is_on_one_rank(call)]
    if not wrong:
        return Ok(f"{counted(len(steps), 'call')} of step(), none on one rank only")
    what = "the schedule" if "lr_scheduler" in wrong[0].name else "the optimizer"
    fix = Fix()
    if value := _value_of_rank_0(script, wrong[0]):
        fix = Fix(
            "Step on every rank, outside the condition, with the value of rank 0.",
            (
                python("values = [{:dotted}] if dist.get_rank() == 0 else [0]", value),
                "dist.broadcast_object_list(values, src=0)",
            ),
        )
    return finding(script, wrong[0], f"{what} steps only on rank 0", fix, wrong[1:])


def _value_of_rank_0(script: Script, step: ScriptCall) -> str:
    """Return the variable that a step is given, if only that rank computes it; empty if there is none."""
    name = step.written[0] if len(step.written) == 1 else ""
    place = (step.file, step.function)
    made: list[InScript] = [call for call in script.calls if name in call.targets]
    made += [one for one in script.sets if one.target == name]
    made = [one for one in made if (one.file, one.function) == place]
    only = bool(made) and all(ONE_RANK.intersection(one.guards) for one in made)
    return name if only and re.fullmatch(r"[A-Za-z_]\w*", name) else ""


@check(Severity.WARNING, source=_DDP, given=own_loop)
def script_loads_on_one_rank(script: Script) -> Answer:
    """A checkpoint is loaded into the wrapped model on only some ranks.

    Why: DistributedDataParallel sends the parameters of rank 0 once, when the model is wrapped. What is loaded
    afterwards on one rank stays there, and the ranks train different models.

    Fix: Load it on every rank, or before the model is wrapped.
    """
    # FSDP's ranks load together, and its options decide which of them have the file.
    wrapper = rf"{re.escape(DDP)}\(\)|{PREPARED}"
    loads = visibly_called(script, calls(script, rf"(?:{wrapper})(?:\.module)?\.load_state_dict"))
    wrong = [call for call in loads if _is_on_one_rank(call) and not _is_loaded_by_others(script, loads, call)]
    if not wrong:
        return Ok(f"{counted(len(loads), 'load')} into a wrapped model, none on one rank only")
    return finding(script, wrong[0], "only rank 0 loads this into the wrapped model", Fix(), wrong[1:])


def _is_loaded_by_others(script: Script, loads: Sequence[ScriptCall], load: ScriptCall) -> bool:
    """Whether the other ranks load the same file in another branch of the same function."""
    same = [one for one in loads if (one.name, one.file, one.function) == (load.name, load.file, load.function)]
    files = _loaded_files(script, load)
    return any("not_main" in one.guards or "some" in one.guards for one in same if _loaded_files(script, one) & files)


def _loaded_files(script: Script, load: ScriptCall) -> set[str]:
    """Return the files that torch.load reads for a load_state_dict, as written."""
    given = " ".join(load.written)
    read = [call for call in calls(script, r"torch\.load") if (call.file, call.function) == (load.file, load.function)]
    read = [call for call in read if call.guards == load.guards and call.line <= load.line and call.written]
    return {call.written[0] for call in read if call.line == load.line or set(call.targets) & dotted_names([given])}


@check(Severity.WARNING, source="https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast")
def script_sends_from_every_rank(script: Script) -> Answer:
    """Each rank is the source of a broadcast or scatter.

    Why: src is the one rank that sends, and must be the same number on all ranks. With each rank's own number, all of
    them send and none receives: the ranks wait for each other, or keep their own values.

    Fix: Name one rank, usually src=0.
    """
    names = r"torch\.distributed\.(?:broadcast|broadcast_object_list|scatter|scatter_object_list)"
    sent = reached_calls(script, names)
    wrong = [call for call in sent if _OWN_RANK.fullmatch(_source(call))]
    if not wrong:
        return Ok(f"{counted(len(sent), 'call')} with a source, the same on every rank")
    return finding(script, wrong[0], f"src={_source(wrong[0])} is another rank on every rank", Fix(), wrong[1:])


def _source(call: ScriptCall) -> str:
    place = 1 if "broadcast" in call.name else 2
    return argument(call, place, "src") or ""


@check(Severity.WARNING, source=_ENVIRONMENT)
def script_group_of_one_rank(script: Script) -> Answer:
    """The script starts its process group with one rank, whatever the launcher has started.

    Why: Each process is then rank 0 of a group of its own, and trains a model alone on all the data.

    Fix: Leave RANK and WORLD_SIZE to the launcher, and call init_process_group without rank and world_size.
    """
    started = [
        call for call in reached_calls(script, r"torch\.distributed\.init_process_group") if _is_in_every_run(call)
    ]
    fixed = [call for call in started if call.keywords.get("world_size") == "1"]
    named = r"os\.environ\[['\"]WORLD_SIZE['\"]\]"
    put = [one for one in sets(script, named) if _is_in_every_run(one) and text_of(one.value) == "1"]
    if fixed:
        return finding(script, fixed[0], "init_process_group(world_size=1): each process is a group of its own", Fix())
    if put and (started or calls(script, r"accelerate\.Accelerator")):
        return finding(script, put[0], "WORLD_SIZE is set to 1: each process is a group of its own", Fix(), put[1:])
    return Ok("the launcher decides how many ranks there are")


@check(Severity.WARNING, source=_FSDP2)
def script_optimizer_before_sharding(script: Script) -> Answer:
    """The optimizer is created before fully_shard replaces the model's parameters.

    Why: fully_shard replaces each parameter by its shard. The optimizer keeps the old ones, which get no gradients: it
    steps, and nothing is trained.

    Fix: Create the optimizer after fully_shard.
    """
    sharded = reached_calls(script, r"torch\.distributed\.fsdp\.(?:\w+\.)*fully_shard")
    made = [call for call in reached_calls(script, r"torch\.optim\.(?!lr_scheduler)\w+") if call.written]
    for call in made:
        after = [one for one in sharded if _shards_model_of(one, call)]
        again = [one for one in made if after and one.line > after[-1].line and one.function == call.function]
        if after and not again:
            return finding(script, call, "the optimizer is created before fully_shard", Fix(), after[:1])
    return Ok(f"{counted(len(sharded), 'call')} of fully_shard, none after its optimizer")


def _shards_model_of(sharding: ScriptCall, optimizer: ScriptCall) -> bool:
    """Whether a later call in the same function shards the model whose parameters an optimizer has."""
    same = (sharding.file, sharding.function) == (optimizer.file, optimizer.function)
    model = sharding.written[0] if sharding.written else ""
    has = optimizer.written[0].startswith(f"{model}.parameters(")
    return same and bool(model) and has and sharding.line > optimizer.line


@check(Severity.WARNING, source=_SAMPLER)
def script_replicas_fixed(script: Script) -> Answer:
    """A DistributedSampler divides the data among a fixed number of ranks.

    Why: With fewer ranks, a part of the data is never read; with more, the sampler stops with "Invalid rank".

    Fix: Omit num_replicas and rank: the sampler takes them from the process group.
    """
    samplers = reached_calls(script, r"torch\.utils\.data\.(?:distributed\.)?DistributedSampler")
    wrong = [call for call in samplers if (argument(call, 1, "num_replicas") or "").isdecimal()]
    if not wrong:
        return Ok(f"{counted(len(samplers), 'DistributedSampler')}, none for a fixed number of ranks")
    number = argument(wrong[0], 1, "num_replicas")
    return finding(script, wrong[0], f"num_replicas={number}, on any number of ranks", Fix(), wrong[1:])


@check(
    Severity.WARNING,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
def script_never_exchanges(script: Script) -> Answer:
    """Every backward pass is inside no_sync, or the last one before a step.

    Why: Inside no_sync nothing is exchanged. Each rank steps with its own gradients, and the ranks train different
    models.

    Fix: Leave no_sync for the last batch before each optimizer step.
    """
    passes = [call for call in backward_calls(script) if call.reached]
    last = [call for call in passes if _is_spared_before_step(script, call)]
    if last:
        return finding(script, last[0], "no_sync is on for the last backward pass before the step", Fix(), last[1:])
    inside = [call for call in passes if any(_NO_SYNC.fullmatch(context) for context in call.within)]
    chosen = any(one.startswith("contextlib") for one in script.imports) or any(
        call.conditions for call in script.calls if _NO_SYNC.fullmatch(call.name)
    )  # another context may be chosen for the last batch
    if not passes or len(inside) < len(passes) or chosen:
        return Ok(f"{counted(len(passes), 'backward pass', 'backward passes')}, not all inside no_sync")
    return finding(
        script, inside[0], "every backward pass is inside no_sync, which exchanges nothing", Fix(), inside[1:]
    )


def _is_spared_before_step(script: Script, backward: ScriptCall) -> bool:
    """Whether the condition that turns no_sync on is that of the optimizer's step."""
    if not any(_NO_SYNC.fullmatch(context) for context in backward.within):
        return False
    here = [call for call in script.calls if (call.file, call.loops) == (backward.file, backward.loops)]
    chosen = [call for call in here if _NO_SYNC.fullmatch(call.name) and call.line <= backward.line]
    conditions = {call.conditions[len(backward.conditions) :] for call in chosen[-1:]} - {()}
    steps = [call for call in here if re.fullmatch(_STEPS, call.name) and call.line > backward.line]
    return any(set(one) <= set(step.conditions) for one in conditions for step in steps)


@check(Severity.WARNING, source=_DDP, given=by_hand)
def script_trains_inner_model(script: Script) -> Answer:
    """The training loop calls the model inside its wrapper, or a method of it.

    Why: DistributedDataParallel averages the gradients of its own forward pass. A call of model.module goes past it,
    and every rank has gradients of its own.

    Fix: Call the wrapped model itself.
    More: If the loss comes from another method, let forward call that method.
    """
    loops = training_loops(script)
    wrapped = [call for call in reached_calls(script, WRAPPED) if loops & set(call.loops)]
    in_loops = [call for call in script.calls if call.reached and loops & set(call.loops)]
    if wrapped or any(_EXCHANGES.search(f"{call.name} {call.written}") for call in in_loops):
        return Ok("the training loops call no model inside its wrapper")
    names = {target for call in calls(script, WRAPPED.replace(r"\(\)", "")) for target in call.targets}
    module = re.compile(rf"(?:{'|'.join([WRAPPED, *map(re.escape, sorted(names))])})\.module((?:\.\w+)?)")
    inner = [(call, found[1]) for call in in_loops if (found := module.fullmatch(call.name))]
    inner = [
        (call, method)
        for call, method in inner
        if not any("no_grad" in one or "inference" in one for one in call.within)
        and (_INNER.fullmatch(call.name) or reaches_backward(script, call))
    ]
    if not inner:
        return Ok("the training loops call no model inside its wrapper")
    first, method = inner[0]
    others = [call for call, _ in inner[1:]]
    if not method:
        return finding(script, first, "the model inside the wrapper is trained", Fix(), others)
    fix = Fix(f"Let forward call {method[1:]}, and call the wrapped model itself.")
    return finding(script, first, f"module{method} goes past the wrapper: no gradients are averaged", fix, others)


@check(Severity.INFO, source="https://docs.python.org/3/howto/logging-cookbook.html", given=own_loop)
def script_logs_on_every_rank(script: Script) -> Answer:
    """Every rank logs to the same file.

    Why: Each line is in it once for every rank, in any order.

    Fix: Add the file on rank 0 only, or put the rank into its name.
    """
    opened = calls(script, r"logging\.(?:FileHandler|basicConfig)")
    files = [call for call in opened if text_of(_log_file(call)) is not None]
    wrong = [call for call in reached_by_every_rank(script, files) if not has_rank_argument(call)]
    if not wrong:
        return Ok(f"{counted(len(files), 'log file')}, each with one writer")
    return finding(script, wrong[0], f"every rank logs to {text_of(_log_file(wrong[0]))}", Fix(), wrong[1:])


def _is_tried(call: ScriptCall) -> bool:
    """Whether the error for a folder that already exists is caught."""
    return bool({"try", "try OSError", "contextlib.suppress"}.intersection(call.within))


def _log_file(call: ScriptCall) -> str | None:
    return call.keywords.get("filename") if call.name.endswith("basicConfig") else argument(call, 0, "filename")


@check(Severity.INFO, source="https://docs.python.org/3/library/os.html#os.makedirs", given=own_loop)
def script_creates_folder_on_every_rank(script: Script) -> Answer:
    """Every rank creates the same folder, and expects that it does not exist.

    Why: The ranks start at the same time. One of them creates the folder between the check and the call of another,
    which stops with FileExistsError.

    Fix: Accept a folder that exists.
    """
    made = [call for call in calls(script, r"os\.(?:makedirs|mkdir)|.+\.mkdir") if _refuses_existing(call)]
    if not any(one.partition(".")[0] == "pathlib" for one in script.imports):
        made = [call for call in made if call.name.startswith("os.")]  # another object's mkdir may accept a folder
    wrong = [
        call for call in reached_by_every_rank(script, made) if not has_rank_argument(call) and not _is_tried(call)
    ]
    if not wrong:
        return Ok("no folder that only one rank could create")
    line = "os.makedirs(path, exist_ok=True)" if wrong[0].name.startswith("os.") else "path.mkdir(exist_ok=True)"
    return finding(script, wrong[0], "every rank creates this folder", commands(line), wrong[1:])


def _refuses_existing(call: ScriptCall) -> bool:
    """Whether a call fails if the folder exists: one of os, or the mkdir of a path."""
    of_path = not call.arguments and set(call.keywords) <= {"parents", "mode"}  # others have the folder as argument
    return "exist_ok" not in call.keywords and (call.name.startswith("os.") or of_path)
