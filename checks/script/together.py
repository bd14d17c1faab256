"""Do all ranks take part in the operations that need all of them?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.snapshot import Config, InScript, Script, ScriptCall, ScriptJump
from mgpu.text import counted

from ._calls import argument, calls, finding, reached_calls, unpacks
from ._rank_paths import (
    ONE_RANK,
    backward_calls,
    dotted_names,
    own_loop,
    training_loops,
    trains,
    visibly_called,
    with_accelerate,
)

_COLLECTIVE_FUNCTIONS = "https://docs.pytorch.org/docs/stable/distributed.html#collective-functions"
_COLLECTIVES = (
    r"torch\.distributed\.(?:distributed_c10d\.)?(?:barrier|monitored_barrier|all_reduce|all_gather\w*|all_to_all\w*"
    r"|reduce|reduce_scatter\w*|broadcast|broadcast_object_list|gather|gather_object|scatter|scatter_object_list|new_group)"
    r"|accelerate\.(?:Accelerator|PartialState|AcceleratorState)\(\)\."
    r"(?:gather|gather_for_metrics|reduce|pad_across_processes|wait_for_everyone)"
    r"|accelerate\.utils\.(?:gather|gather_object|broadcast|broadcast_object_list|reduce|wait_for_everyone)"
    r"|.+\.full_tensor"
    # "This method will hang ... if it's called just for the process with rank 0" (DeepSpeed's documentation).
    r"|deepspeed\.initialize\(\)(?:\[0\])?\.save_checkpoint"
)
# Calls that wait for all ranks if the weights are sharded.
_OF_SHARDS = r"accelerate\.Accelerator\(\)\.(?:save_state|get_state_dict|save_model)"
# Calls that collect the shards of an FSDP model from all ranks.
_OF_FSDP = (
    r"torch\.distributed\.fsdp\.(?:\w+\.)*FullyShardedDataParallel"
    r"(?:\(\)(?:\.\w+)*\.state_dict|\.(?:full_)?optim_state_dict)"
)
_SHARDED_TYPE = re.compile(r"==\s*[\w.'\"]*\b(FSDP|DEEPSPEED)\b")
# The position of each one's group argument.
_GROUP = {"barrier": 0, "all_reduce": 2, "broadcast": 2, "reduce": 3, "all_gather": 2, "gather": 3, "scatter": 3}
# Calls with which ranks agree on a decision.
_AGREES = re.compile(r"all_reduce|all_gather|broadcast|check_trigger|(?:reduce|gather)\w*$")
_NOT_FINITE = re.compile(r"isnan|isfinite|isinf|is_nan|is_finite")
# Calls with which one rank can report its decision to the others, also through a store.
_SENDS = re.compile(rf"{_AGREES.pattern}|\.distributed\.(?:i?send|send_object_list|scatter\w*)$|\bstore\w*\.set$")
_ALONE = frozenset({"main", "local_main", "not_main", "some"})
_SELECTS = _ALONE | {"single"}
# A test of integers, which are always finite.
_INTEGERS = re.compile(r"^[^()]*\(\w*(?:input_ids|token_ids|tokens|labels|attention_mask)\)(?:\.any\(\))?$")
_OF_RANK = re.compile(r"\bget_rank\(\)|\b(?:global_)?rank\b|process_index")
_DIVIDES = re.compile(r"%|world_size|num_processes")  # the ranks take turns: `if step % world_size != rank`
_EXITS = r"sys\.exit|exit|quit"
_EARLY = re.compile(r"early_?stop|patience|should_stop", re.IGNORECASE)
_SHARDED = frozenset({"FSDP", "DEEPSPEED", "MEGATRON_LM"})


@check(Severity.WARNING, source=_COLLECTIVE_FUNCTIONS, given=own_loop, tags=("leads_to_hang",))
def script_collective_on_one_rank(script: Script) -> Answer:
    """A collective is called on only some ranks.

    Why: A collective completes only when every rank has called it. Here, rank 0 waits for the others until its timeout.
    More: The timeout is 10 minutes with NCCL. Or the call is matched with a different collective on the other ranks,
    and the results are wrong.

    Fix: Call it on every rank, and keep only printing or saving under the condition.
    """
    collectives = visibly_called(script, calls(script, rf"{_COLLECTIVES}|{_OF_SHARDS}|{_OF_FSDP}"))
    collectives = [c for c in collectives if not re.fullmatch(_OF_SHARDS, c.name) or _waits_for_shards(script, c)]
    if not collectives:
        return Ok("no visible collective")
    alone = [call for call in collectives if ONE_RANK.intersection(call.guards) and "single" not in call.guards]
    wrong = [call for call in alone if not _has_group(call) and not _is_in_other_branch(call, collectives)]
    wrong = [call for call in wrong if not _is_shared_function(script, call)]
    if not wrong:
        return Ok(f"{counted(len(collectives), 'collective')}, none on one rank only")
    what = wrong[0].name.rpartition(".")[2]
    return finding(
        script,
        wrong[0],
        f"{what}() is called only on rank 0, which waits for the others",
        Fix(f"Call {what}() on every rank, outside the condition. Keep printing or saving inside."),
        wrong[1:],
    )


def _waits_for_shards(script: Script, call: ScriptCall) -> bool:
    """Whether accelerate visibly shards the weights, and this call collects them from all ranks."""
    kinds = {"fsdp_plugin": "FSDP", "deepspeed_plugin": "DEEPSPEED"}
    made = calls(script, r"accelerate\.Accelerator")
    sharded = {
        kind for option, kind in kinds.items() if any(one.keywords.get(option, "None") != "None" for one in made)
    }
    options = {option for start in script.starts for option in start.options}
    sharded |= {kind for kind in kinds.values() if f"--use_{kind.lower()}" in options}
    sharded |= {
        found for text in call.conditions if not text.startswith("not") for found in _SHARDED_TYPE.findall(text)
    }
    return "FSDP" in sharded or (bool(sharded) and call.name.endswith(".save_state"))


def _has_group(call: ScriptCall) -> bool:
    """Whether the collective visibly has a group of only some ranks."""
    name = call.name.rpartition(".")[2]
    placed = name in _GROUP and call.name.startswith("torch.")
    group = argument(call, _GROUP[name], "group") if placed else call.keywords.get("group")
    return group not in (None, "None") or unpacks(call)


def _is_in_other_branch(call: ScriptCall, collectives: list[ScriptCall]) -> bool:
    """Whether the other ranks call the same collective in the other branch."""
    mine = call.name.rpartition(".")[2]
    others = [other for other in collectives if {"not_main", "some"} & set(other.guards)]
    return any(
        other.name.rpartition(".")[2] == mine and (other.function == call.function or "barrier" in mine)
        for other in others
    )


def _is_shared_function(script: Script, call: ScriptCall) -> bool:
    """Whether the function handles all ranks itself: only a caller's condition seems to select one of them."""
    return any(
        ONE_RANK.intersection(other.guards) and "not_main" in other.guards
        for other in (*script.calls, *script.sets)
        if (other.function, other.file) == (call.function, call.file)
    )


@check(
    Severity.WARNING,
    source="https://github.com/huggingface/accelerate/issues/2000",
    given=with_accelerate,
    because_of=("script_collective_on_one_rank",),
    tags=("leads_to_hang",),
)
def script_state_saved_on_one_rank(script: Script, config: Config) -> Answer:
    """Sharded weights are saved on the main process only.

    Why: Every rank has a shard of the weights, and the main process waits for shards that the others never send.
    More: With FSDP and DeepSpeed, the run times out at its first checkpoint.

    Fix: Call save_state (or get_state_dict) on every process. accelerate writes each file once.
    """
    if config.distributed_type not in _SHARDED:
        return Skip(f"with distributed_type {config.distributed_type}, every rank has all weights")
    saves = visibly_called(script, calls(script, _OF_SHARDS))
    wrong = [call for call in saves if ONE_RANK.intersection(call.guards) and "single" not in call.guards]
    if not wrong:
        number = counted(len(saves), "save call")
        return Ok(f"{number}, each on every process" if saves else "accelerate saves nothing here")
    what = wrong[0].name.rpartition(".")[2]
    return finding(
        script,
        wrong[0],
        f"accelerator.{what}() only on the main process, with {config.distributed_type}: it waits for the others",
        Fix(f"Call accelerator.{what}() on every process, outside the condition."),
        wrong[1:],
    )


@check(
    Severity.WARNING,
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
    given=own_loop,
    tags=("leads_to_hang",),
)
def script_rank_skips_backward(script: Script) -> Answer:
    """One rank can skip a backward pass, or leave the training loop, without the others.

    Why: Every backward() averages the gradients with all ranks. A rank that skips one falls a step behind: from then
    on, gradients of different steps are averaged, and at the end the others wait for it until their timeout.
    More: That happens if a rank skips a batch with a bad loss, or leaves the loop because of its rank.

    Fix: Let all ranks make the same decision: reduce the condition over the ranks first.
    More: An all_reduce does that.
    """
    loops = training_loops(script)
    jumps = [jump for jump in script.jumps if jump.reached and jump.kind in ("continue", "break") and jump.loops]
    around = {loop for call in backward_calls(script) for loop in call.loops}  # another loop is left without a step
    inside = [jump for jump in jumps if loops.intersection(jump.loops) and jump.loops[-1] in around]
    exits = [call for call in reached_calls(script, _EXITS) if loops.intersection(call.loops)]
    exits = [call for call in exits if call.arguments in ((), ("0",))]  # after an error, the launcher stops the others
    every: tuple[ScriptJump | ScriptCall, ...] = (*inside, *exits)
    wrong = [spot for spot in every if _depends_on_one_rank(script, spot)]
    if left := [jump for jump in jumps if _leaves_alone(script, jump) and jump not in wrong]:
        title = "only rank 0 leaves this loop, and the others wait for it in backward()"
        return finding(script, left[0], title, _decision_of_rank_0(script), (*left[1:], *wrong))
    if not wrong:
        number = counted(len(every), "early exit")
        return Ok(f"{number} from training loops, none by one rank alone" if every else "no loop is left early")
    how = wrong[0].kind if isinstance(wrong[0], ScriptJump) else "exit"
    return finding(
        script,
        wrong[0],
        f"a rank can {how} alone: its backward() is then paired with another step of the others"
        if how == "continue"
        else f"a rank can {how} alone, and the others wait for it in backward()",
        commands("dist.all_reduce(bad, op=dist.ReduceOp.MAX)"),
        wrong[1:],
    )


def _leaves_alone(script: Script, jump: ScriptJump) -> bool:
    """Whether only rank 0 leaves a loop in which all ranks compute gradients, after its own decision.

    Nothing that it sends to the others is under the same condition, and no other line leaves the loop.
    """
    loop = jump.loops[-1]
    own = _own_ranks(script, jump, loop)
    trained = [call for call in backward_calls(script) if loop in call.loops and not _own_ranks(script, call, loop)]
    if jump.kind != "break" or not ONE_RANK.intersection(own) or "single" in jump.guards or not trained:
        return False
    if _is_last_round(script, jump):
        return False
    if not script.loops[loop].target and "(" in script.loops[loop].over:
        return False  # `while not os.path.exists("stop"):`, which rank 0 may make true for the others
    sent = [call for call in script.calls if loop in call.loops and _SENDS.search(call.name)]
    if any(_own_ranks(script, call, loop) for call in sent):
        return False
    others = [one for one in script.jumps if loop in one.loops and one.kind in ("break", "return")]
    exits = [call for call in calls(script, _EXITS) if loop in call.loops]
    return all(ONE_RANK.intersection(_own_ranks(script, one, loop)) for one in (*others, *exits) if one is not jump)


def _is_last_round(script: Script, jump: ScriptJump) -> bool:
    """Whether a loop is left after a number of rounds, after which the others may leave it as well."""
    counter = "|".join(map(re.escape, dotted_names([script.loops[jump.loops[-1]].target]))) or "(?!)"
    ends = re.compile(rf"\(?(?:{counter})(?: ?\+ ?1)?\)? ?(?:==|>=?) ?[\w.+()\- ]+")
    return any(ends.fullmatch(condition) for condition in jump.conditions)


def _own_ranks(script: Script, spot: InScript, loop: int) -> set[str]:
    """Return the guards of a spot that select ranks inside a loop."""
    around = script.loops[loop].guards if loop < len(script.loops) else ()
    return {guard for guard in spot.guards if guard in _ALONE and guard not in around}


def _decision_of_rank_0(script: Script) -> Fix:
    """Return how the other ranks learn what rank 0 has decided."""
    send = "dist.broadcast_object_list(stop, src=0)"
    if script.speaks == "accelerate":
        send = "accelerate.utils.broadcast_object_list(stop, from_process=0)"
    text = "Send the decision of rank 0 to all ranks, and leave the loop on every rank, outside the condition."
    return Fix(text, ("stop = [early_stop]", send, "if stop[0]: break"))


def _depends_on_one_rank(script: Script, jump: ScriptJump | ScriptCall) -> bool:
    """Whether leaving a loop depends on the rank, or on this rank's loss being finite before backward().

    After backward(), the gradients and everything computed from them are the same on all ranks.
    """
    loop = jump.loops[-1]
    if any(_AGREES.search(call.name) and loop in call.loops for call in script.calls):
        return False
    around = script.loops[loop].guards if loop < len(script.loops) else ()
    if {"main", "local_main", "not_main"}.intersection(jump.guards) - set(around):
        return True
    own = jump.conditions[len(script.loops[loop].conditions) :] if loop < len(script.loops) else jump.conditions
    if "some" in jump.guards and any(_OF_RANK.search(text) and not _DIVIDES.search(text) for text in own):
        return True
    before = all(call.line > jump.line for call in backward_calls(script) if loop in call.loops)
    return before and any(
        _NOT_FINITE.search(text) and "grad" not in text and not _INTEGERS.search(text) for text in jump.conditions
    )


@check(
    Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/134920", given=own_loop, tags=("leads_to_hang",)
)
def script_stops_by_its_own_loss(script: Script) -> Answer:
    """Every rank decides on its own to stop early.

    Why: The loss differs between ranks. If one stops, the others wait for it until the timeout.

    Fix: Reduce the loss over the ranks before you compare it.
    More: Or decide on rank 0 and broadcast.
    """
    training = {loop for call in backward_calls(script) for loop in call.loops}
    leaves = [jump for jump in script.jumps if jump.kind == "break" and training.intersection(jump.loops[-1:])]
    stops = [j for j in leaves if not _SELECTS.intersection(j.guards) and any(map(_EARLY.search, j.conditions))]
    if not stops or not trains(script):
        return Ok("no visible early stopping")
    if any(_AGREES.search(call.name) for call in script.calls):
        return Ok("the ranks exchange values")
    return finding(
        script,
        stops[0],
        "every rank decides on its own to stop early",
        commands("dist.all_reduce(loss, op=dist.ReduceOp.AVG)"),
        stops[1:],
    )
