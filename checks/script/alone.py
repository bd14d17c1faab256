"""Would each rank train alone, although the script uses a library for several GPUs?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.command_line import python, shell
from mgpu.snapshot import Script, ScriptCall
from mgpu.text import listed

from ._calls import (
    ACCELERATOR,
    DDP_DOC,
    INIT,
    LIGHTNING,
    calls,
    finding,
    plain_option,
    reached_calls,
    sets,
    switches,
    trains,
)
from ._exchanges import is_together
from ._rank_paths import (
    backward_calls,
    dotted_names,
    in_every_run,
    is_repeated,
    requires_kind,
    training_loops,
    with_accelerate,
)

_PREPARING = "https://huggingface.co/docs/accelerate/en/package_reference/accelerator#accelerate.Accelerator.prepare"
_STRATEGY = "https://lightning.ai/docs/pytorch/stable/extensions/strategy.html"
_ARGPARSE = "https://docs.python.org/3/library/argparse.html#action"
# A whole argument that is a list or a tuple; of items without brackets, so that `[a, b][0]` is none.
_LIST = re.compile(r"\[[^\[\]()]*\]|\([^\[\]()]*,[^\[\]()]*\)")
_WITHOUT_GRADIENTS = re.compile(r"torch\.(?:no_grad|inference_mode|set_grad_enabled)")


def _training(script: Script) -> list[ScriptCall]:
    """Return the backward passes in loops, in functions that are visibly called."""
    return [call for call in backward_calls(script) if is_repeated(script, call)]


@check(Severity.WARNING, source=_PREPARING, given=with_accelerate)
def script_nothing_prepared(script: Script) -> Answer:
    """The script creates an Accelerator, but passes nothing to its prepare method.

    Why: prepare wraps the model so that gradients are averaged, and splits the data. Without it, every rank trains a
    model of its own on all the data.

    Fix: Prepare model, optimizer and loader before the training loop.
    """
    made = calls(script, r"accelerate\.Accelerator")
    training = _training(script)
    names = {name for call in made for name in call.targets}
    passed_on = any(names & set(call.written) for call in script.calls) or any(
        names & dotted_names([one.value]) for one in script.sets
    )
    if not made or not training or script.cut or passed_on:
        return Ok("no visible training loop with an Accelerator")
    if any(
        re.search(r"\.(?:prepare\w*|dispatch_model)$", call.name) or is_together(call.name) for call in script.calls
    ):
        return Ok("something is prepared")
    name = next(iter(made[0].targets), "accelerator")
    return finding(
        script,
        made[0],
        f"{name} never prepares anything: every rank would train alone",
        commands(python("model, optimizer, loader = {:dotted}.prepare(model, optimizer, loader)", name)),
    )


@check(Severity.WARNING, source=_PREPARING, given=with_accelerate)
def script_list_prepared(script: Script) -> Answer:
    """The script passes a list to prepare, which returns it as it is: nothing in it is prepared.

    Why: prepare looks at each of its arguments, and not into a list or a tuple. The model is not wrapped, so every rank
    trains a model of its own, on all the data.

    Fix: Pass the objects as arguments of their own.
    """
    prepared = reached_calls(script, rf"{ACCELERATOR}\.prepare")
    lists = [one for one in prepared if len(one.written) == 1 and not one.keywords and _LIST.fullmatch(one.written[0])]
    if lists:
        made = [target for one in calls(script, ACCELERATOR.removesuffix(r"\(\)")) for target in one.targets]
        alone = ": every rank would train alone" if len(lists) == len(prepared) else ""
        return finding(
            script,
            lists[0],
            f"prepare gets one list, which it returns unprepared{alone}",
            Fix("Pass the objects themselves.", (python("{:dotted}.prepare(*objects)", (*made, "accelerator")[0]),)),
            lists[1:],
            objects=lists[0].written[0].strip("[]()").rstrip(", "),
        )
    return Ok("no list is passed to prepare")


@check(Severity.WARNING, source=DDP_DOC, given=requires_kind("ddp"))
def script_group_without_wrapper(script: Script) -> Answer:
    """The script starts a process group and trains, but nothing averages the gradients.

    Why: A process group only connects the ranks. Gradients are averaged by DistributedDataParallel or FSDP. Without
    them, every rank trains a model of its own.

    Fix: Wrap the model before the optimizer is created.
    """
    started, training = calls(script, re.escape(INIT)), _training(script)
    if not started or not training or script.cut or script.may_average:
        return Ok("no visible training loop in a process group started by hand")
    texts = [*script.imports, *(call.name for call in script.calls)]
    if any(map(is_together, texts)):
        return Ok("the model is wrapped, or the script exchanges data itself")
    return finding(
        script,
        started[0],
        "the process group is started, but nothing averages gradients",
        commands("model = torch.nn.parallel.DistributedDataParallel(model)"),
    )


@check(Severity.WARNING, source=_ARGPARSE)
def script_distributed_by_option(script: Script) -> Answer:
    """The script trains on several GPUs only with an option that its arguments lack.

    Why: Without the option, no process group is started. Every rank trains a model of its own on all the data.

    Fix: Add the option after the script's name.
    """
    names, started = _connecting_options(script)
    if not names or started is None:
        return Ok("the ranks are connected without an option of the script")
    if not script.command_known:
        return Ok(f"{listed(names)}: the ranks are connected with it; the command line is not known")
    given = {plain_option(word.partition("=")[0]) for word in script.arguments}
    missing = [name for name in names if plain_option(name) not in given]
    if not missing:
        return Ok(f"{listed(names)}: given")
    which = "which" if missing == names else f"and {listed(missing)}"
    return finding(
        script,
        started,
        f"the ranks are connected only with {listed(names)}, {which} {'is' if len(missing) == 1 else 'are'} not given",
        Fix(
            "Add the option." if len(missing) == 1 else "Add the options.",
            (shell("mgpu launch {:path} {:option}", script.path, names),),
        ),
    )


@check(Severity.INFO, source=_ARGPARSE, tags=("start_command",))
def script_needs_option(script: Script) -> Answer:
    """The script connects its ranks only if it gets an option.

    Why: Without the option, no process group is started. Every rank trains a model of its own on all the data.
    More: That is reported if the command line is not known. A launch without the option is
    `script_distributed_by_option`.

    Fix: Add the option after the script's name.
    """
    names, started = _connecting_options(script)
    if not names or started is None or script.command_known:
        return Ok("no option is needed, or the command line is known")
    line = shell("mgpu launch {:path} {:option}", script.path, names)
    command = (line,) if line else ()
    title = f"without {listed(names, 'or')}, the ranks are not connected"
    return finding(script, started, title, Fix("Start the script with it.", command))


def _connecting_options(script: Script) -> tuple[list[str], ScriptCall | None]:
    """Return the options that must be given so that the ranks are connected, and the call that connects them.

    No options: the ranks are connected anyway, or the whole training depends on the option.
    """
    options = switches(script)
    started = calls(script, rf"{re.escape(INIT)}|accelerate\.Accelerator")
    needed = [{name for name in options if _is_asked(script, call, name)} for call in started]
    common = set.intersection(*needed) if needed else set()
    trained = backward_calls(script)
    common = {name for name in common if any(not _is_asked(script, call, name) for call in trained)}
    return [options[name] for name in sorted(common)], started[0] if started else None


def _is_asked(script: Script, call: ScriptCall, name: str) -> bool:
    """Whether the option is a condition of a call, itself or as the value of the variable that is."""
    option = re.compile(rf"(?:\w+\.)*{re.escape(name)}")
    if any(map(option.fullmatch, call.conditions)):
        return True
    held = {one.target for one in script.sets if one.value.endswith(f").{name}") and not option.fullmatch(one.target)}
    if held.intersection(call.guarded_by):
        return True
    owner = r".*\." if name == "accelerator" else r"(?:.*\.)?"  # a variable of this name holds the object
    assigned = sets(script, owner + re.escape(name))
    return any(map(option.fullmatch, call.guarded_by)) and not assigned


@check(Severity.WARNING, source=_STRATEGY, given=requires_kind("lightning"))
def script_lightning_on_one_device(script: Script) -> Answer:
    """Lightning's Trainer is limited to one device, so each rank of a launcher trains alone.

    Why: With one device and one node, Lightning chooses its strategy for a single device and ignores the launcher's
    world size. The default on the CPU is one device too.

    Fix: Remove devices, or set it to the number of GPUs per node.
    """
    made = [call for call in calls(script, LIGHTNING) if call.reached]
    if not trains(script):
        return Ok("no visible training")
    if len(in_every_run(script, made)) < len(made):
        return Ok("a condition decides which Trainer is created")
    if not made:
        return Ok("no Trainer is created in the code that was read")
    if not all(map(_is_on_one_device, made)):
        return Ok("no Trainer is limited to one device")
    call = made[0]
    name = next((one for one in ("devices", "gpus") if one in call.keywords), "")
    accelerator = call.keywords.get("accelerator")
    return finding(
        script,
        call,
        f"Lightning trains on one device ({f'{name}={call.keywords[name]}' if name else 'the default on the CPU'}): "
        "every rank would train alone",
        commands(
            'Trainer(accelerator="cpu", strategy="ddp", devices=2)'
            if accelerator == "'cpu'"
            else 'Trainer(strategy="ddp", gpus=-1)'
            if name == "gpus"
            else 'Trainer(strategy="ddp", devices="auto")'
        ),
    )


def _is_on_one_device(call: ScriptCall) -> bool:
    """Whether a Trainer or Fabric certainly uses one device only."""
    if {"strategy", "**"} & set(call.keywords) or call.keywords.get("num_nodes", "1") != "1":
        return False
    devices, accelerator = call.keywords.get("devices"), call.keywords.get("accelerator")
    if devices is None and call.keywords.get("gpus") in ("1", "[0]", "'0,'"):  # before Lightning 2
        return "distributed_backend" not in call.keywords and accelerator not in ("'ddp'", "'ddp_spawn'", "'ddp2'")
    default = accelerator == "'cpu'" and devices in (None, "'auto'") and call.name.endswith("Trainer")
    return default or devices in ("1", "'1'", "[0]", "'0,'")


@check(Severity.WARNING, source=_PREPARING, given=with_accelerate)
def script_trains_unwrapped_model(script: Script) -> Answer:
    """The training loop calls the result of unwrap_model.

    Why: Only the prepared model averages gradients. The unwrapped one shares its parameters, but its backward pass
    averages nothing, so every rank trains a model of its own.

    Fix: Call the prepared model in the training loop. Unwrap it only to save it or to call its other methods.
    """
    loops = training_loops(script)
    wrong = [
        call
        for call in calls(script, rf"{ACCELERATOR}\.unwrap_model\(\)(?:\.forward)?")
        if call.loops and call.loops[-1] in loops and not call.conditions and not call.guards
        if not any(_WITHOUT_GRADIENTS.match(context) for context in call.within)
    ]
    trained = [call for call in calls(script, rf"{ACCELERATOR}\.prepare\w*\(\)") if loops.intersection(call.loops)]
    if not wrong or trained:
        return Ok("no training loop calls an unwrapped model")
    made = [call for call in calls(script, rf"{ACCELERATOR}\.unwrap_model") if call.written]
    name = made[0].written[0] if made else "model"
    return finding(
        script,
        wrong[0],
        "the training loop calls the model that unwrap_model returned",
        Fix(f"Call {name}, as prepare returned it.", (python("output = {:dotted}(batch)", name),)),
    )
