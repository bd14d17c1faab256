"""Do all ranks exchange the same kind of values, read what was written, and train what their optimizer has?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.command_line import python
from mgpu.snapshot import Script, ScriptCall
from mgpu.text import counted

from ._calls import DDP_DOC, DISTRIBUTED, OPTIMIZERS, finding, reached_calls
from ._rank_paths import ONE_RANK, WRAPPED, has_rank_argument, own_loop, requires_kind, training_loops

_PLATEAU = "https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html"
_SAVING = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints"
_PARAMETERS = "https://docs.pytorch.org/docs/stable/optim.html#constructing-it"
_TRAINED = re.compile(r"([A-Za-z_][\w.]*(?:\[\w+\])*)\.parameters\(\)")
_EXCHANGES = re.compile(r".*(?:all_reduce\w*|all_gather\w*|broadcast\w*|gather\w*|reduce)")
_REDUCES = r"torch\.distributed\.(?:all_reduce|all_gather|all_gather_into_tensor|reduce|broadcast|reduce_scatter\w*)"
_OPERATION_BY_RANK = re.compile(r"ReduceOp.*\bif\b.*(?:get_rank\(|\brank\b)")
# The size or type of a new tensor. Its device may be that of the rank.
_TENSOR_BY_RANK = re.compile(r"\b(?:zeros|ones|empty|randn?)\((?:(?!device)[^)])*?(?:get_rank\(|\brank\b)")
_WAITS = re.compile(r".*(?:barrier|wait_for_everyone|all_reduce\w*|all_gather\w*|broadcast\w*|gather\w*|\.backward)")
_LAYER = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?[A-Z]\w+")


@check(
    Severity.WARNING,
    source=f"{DISTRIBUTED}#collective-functions",
    tags=("leads_to_hang",),
)
def script_collective_by_rank(script: Script) -> Answer:
    """A collective has another operation, size or type on each rank.

    Why: All ranks must call it with tensors of one size and type, and with one operation. Otherwise it fails, waits
    forever, or returns values that are wrong.

    Fix: Pass the same size, type and operation on all ranks; pad shorter tensors first.
    """
    collectives = reached_calls(script, _REDUCES)
    wrong = [call for call in collectives if any(_is_by_rank(text) for text in call.written)]
    if not wrong:
        return Ok(f"{counted(len(collectives), 'collective')}, none visibly different on each rank")
    what = wrong[0].name.rpartition(".")[2]
    return finding(script, wrong[0], f"{what}() gets another operation, size or type on each rank", Fix(), wrong[1:])


def _is_by_rank(text: str) -> bool:
    return bool(_OPERATION_BY_RANK.search(text) or _TENSOR_BY_RANK.search(text))


@check(Severity.WARNING, source=_SAVING, given=own_loop)
def script_reads_before_written(script: Script) -> Answer:
    """All ranks load a file that rank 0 has just begun to save.

    Why: The other ranks do not wait for rank 0: the file is missing, old, or written in part.

    Fix: Call a barrier between saving and loading.
    """
    saves = [call for call in reached_calls(script, r"torch\.save") if ONE_RANK.intersection(call.guards)]
    loads = [call for call in reached_calls(script, r"torch\.load") if not call.guards]
    for save in saves:
        path = save.keywords.get("f") or (save.written[1] if len(save.written) > 1 else "")
        for load in loads:
            if path and load.written[:1] == (path,) and _follows(script, save, load):
                return finding(
                    script,
                    load,
                    f"the other ranks load {path} while rank 0 saves it",
                    commands("accelerator.wait_for_everyone()" if script.speaks == "accelerate" else "dist.barrier()"),
                )
    return Ok(f"{counted(len(loads), 'file')} loaded, none right after rank 0 saves it")


def _follows(script: Script, save: ScriptCall, load: ScriptCall) -> bool:
    """Whether a load comes after a save in the same block of code, and nothing between them waits for other ranks."""
    same = (save.file, save.function, save.loops, save.conditions)
    if same != (load.file, load.function, load.loops, load.conditions) or load.line <= save.line:
        return False
    between = [
        call
        for call in script.calls
        if (call.file, call.function) == (save.file, save.function) and save.line < call.line < load.line
    ]
    return not any(_WAITS.fullmatch(call.name) for call in between)


@check(Severity.WARNING, source=_PARAMETERS)
def script_replaces_trained_layer(script: Script) -> Answer:
    """A layer is replaced after the optimizer got its parameters.

    Why: The optimizer keeps the parameters of the old layer, which get no gradients. The new layer is never trained.

    Fix: Replace the layer first, then create the optimizer.
    """
    made = [call for call in reached_calls(script, OPTIMIZERS) if call.written]
    for optimizer in made:
        later = [one for one in script.calls if _same_place(one, optimizer) and one.line > optimizer.line]
        if any(re.fullmatch(OPTIMIZERS, one.name) or one.name.endswith("add_param_group") for one in later):
            continue
        trained = _TRAINED.findall(optimizer.written[0])
        wrong = [one for one in later if one.reached and _LAYER.fullmatch(one.name) and _replaces(one, trained)]
        if wrong:
            title = f"the optimizer of line {optimizer.line} has the parameters of the old {wrong[0].targets[0]}"
            return finding(script, wrong[0], title, Fix(), wrong[1:])
    return Ok(f"{counted(len(made), 'optimizer')}, none with parameters of a layer that is replaced later")


def _same_place(one: ScriptCall, other: ScriptCall) -> bool:
    mine = (one.file, one.function, one.loops, one.conditions, one.guards)
    return mine == (other.file, other.function, other.loops, other.conditions, other.guards)


def _replaces(call: ScriptCall, trained: list[str]) -> bool:
    """Whether a call makes a new layer for a place inside a trained model: `net.fc` or `net[3]` of `net`."""
    if len(call.targets) != 1 or call.targets[0].isidentifier():
        return False
    place = call.targets[0]
    return any(place == one or place.startswith((f"{one}.", f"{one}[")) for one in trained)


@check(Severity.WARNING, source=_PLATEAU, given=own_loop)
def script_schedule_by_own_loss(script: Script) -> Answer:
    """ReduceLROnPlateau gets the training loss of each rank.

    Why: Each rank has another loss, so each rank lowers its learning rate at another step. The ranks then train
    different models.

    Fix: Average the loss over the ranks before the schedule gets it.
    """
    loops = training_loops(script)
    steps = reached_calls(script, r"torch\.optim\.lr_scheduler\.ReduceLROnPlateau\(\)\.step")
    wrong = [call for call in steps if loops & set(call.loops) and call.arguments]
    if not wrong or any(_EXCHANGES.fullmatch(call.name) for call in script.calls):
        return Ok(f"{counted(len(steps), 'step')} of ReduceLROnPlateau, none with the loss of one rank")
    return finding(
        script,
        wrong[0],
        "each rank steps ReduceLROnPlateau with its own loss",
        commands("dist.all_reduce(loss, op=dist.ReduceOp.AVG)"),
        wrong[1:],
    )


@check(Severity.WARNING, source=DDP_DOC, given=requires_kind("ddp"))
def script_model_not_wrapped(script: Script) -> Answer:
    """One optimizer trains a wrapped model and another one that is not wrapped.

    Why: Nothing averages the gradients of the model that is not wrapped, so it becomes another one on each rank.

    Fix: Wrap it too, or make it a part of the wrapped model.
    """
    made = [call for call in reached_calls(script, OPTIMIZERS) if call.written]
    exchanged = any(_EXCHANGES.fullmatch(call.name) for call in script.calls)
    for optimizer in made:
        names = dict.fromkeys(_TRAINED.findall(optimizer.written[0]))
        makers = {name: _maker(script, name, optimizer) for name in names}
        wrapped = [
            name for name, call in makers.items() if call is not None and re.fullmatch(WRAPPED, f"{call.name}()")
        ]
        bare = [call for call in makers.values() if call is not None and _LAYER.fullmatch(call.name)]
        if wrapped and bare and not exchanged and not script.cut:
            name = bare[0].targets[0]
            return finding(
                script,
                bare[0],
                f"{name} is trained, but not wrapped as {wrapped[0]} is",
                commands(python("{:dotted} = DistributedDataParallel({:dotted})", name, name)),
                bare[1:],
            )
    return Ok(f"{counted(len(made), 'optimizer')}, none with a wrapped model and another one")


def _maker(script: Script, name: str, optimizer: ScriptCall) -> ScriptCall | None:
    """Return the last call before the optimizer, in the same function, that makes this variable."""
    found = [
        call
        for call in script.calls
        if call.targets == (name,) and (call.file, call.function) == (optimizer.file, optimizer.function)
    ]
    before = [call for call in found if call.line <= optimizer.line and not has_rank_argument(call)]
    return before[-1] if before and len(found) == len(before) else None
