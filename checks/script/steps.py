"""Are gradients, accumulation and optimizer steps right on N ranks?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Ok, Severity, check, commands
from mgpu.command_line import python, shell
from mgpu.snapshot import Script, ScriptCall, ScriptSet
from mgpu.text import counted, listed

from ._calls import ACCELERATOR, DDP, DDP_DOC, OPTIMIZERS, calls, finding, reached_calls, unpacks
from ._prepared_objects import prepared_without_model
from ._rank_paths import backward_calls, dotted_names, requires_kind, training_loops, with_accelerate

_GRADIENT_CLIPPING = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping"
_MIGRATION = "https://huggingface.co/docs/accelerate/main/en/basic_tutorials/migration"
_GRADIENT_ACCUMULATION = "https://huggingface.co/docs/accelerate/main/en/usage_guides/gradient_accumulation"
_CLIPS = r"torch\.nn\.utils\.(?:clip_grad\.)?clip_grad_(?:norm|value)_"
_SCALER = r"torch\.(?:cuda\.)?amp\.(?:grad_scaler\.)?GradScaler"
_EVERY_NTH = re.compile(r"%.*(?:accum|grad)|(?:accum|grad)\w*.*%|\baccum", re.IGNORECASE)
# A loop over the micro steps of one optimizer step: `for micro in range(grad_accum_steps):`.
_MICRO_STEPS = re.compile(r"range\(\s*[\w.]*accum\w*\s*\)", re.IGNORECASE)
# Functions that get an optimizer or a model, but do not prepare it.
_KEEPS_NOTHING = re.compile(r"torch\.|transformers\.get_\w+scheduler|print$|len$|.*\.prepare")
_DIVIDED = re.compile(r"/\s*[\w.]*(?:grad\w*_accum|accum)\w*", re.IGNORECASE)


@check(Severity.INFO, source=f"{DDP_DOC}#torch.nn.parallel.DistributedDataParallel.no_sync", given=requires_kind("ddp"))
def script_accumulates_with_exchange(script: Script) -> Answer:
    """Gradients are accumulated over several batches, but synchronized in each of them.

    Why: DistributedDataParallel averages gradients in each backward(), but only the last one before step() needs it.
    More: The results are correct, but N times as much data is sent.

    Fix: Run forward() and backward() of all micro steps except the last under no_sync().
    """
    if not calls(script, re.escape(DDP)):
        return Ok("no model is wrapped in DistributedDataParallel")
    every = [call for call in reached_calls(script, r".*\.step") if call.loops]
    steps = [call for call in every if _is_every_nth(call)]
    inner = [call for call in backward_calls(script) if _is_in_micro_steps(script, call, every)]
    if not steps and not inner:
        return Ok("the optimizer steps after every batch")
    spared = any(call.name.endswith(".no_sync") for call in script.calls)
    spared = spared or any("require_backward_grad_sync" in one.target for one in script.sets)
    loops = {loop for step in steps for loop in step.loops[-1:]}
    wrong = [call for call in backward_calls(script) if loops.intersection(call.loops[-1:]) and not _is_every_nth(call)]
    wrong = wrong or inner
    if spared or not wrong:
        return Ok("the gradients of micro steps are not synchronized")
    return finding(
        script,
        wrong[0],
        "gradients are synchronized in every micro step of an accumulation",
        commands("with contextlib.nullcontext() if last else model.no_sync():"),
        wrong[1:],
    )


def _is_in_micro_steps(script: Script, backward: ScriptCall, steps: list[ScriptCall]) -> bool:
    """Whether a backward pass is in a loop over the micro steps of one optimizer step, which follows the loop."""
    loop = script.loops[backward.loops[-1]] if backward.loops and backward.loops[-1] < len(script.loops) else None
    if loop is None or not _MICRO_STEPS.fullmatch(loop.over):
        return False
    place = (backward.file, backward.function, backward.loops[:-1])
    return any((one.file, one.function, one.loops) == place and one.line > backward.line for one in steps)


def _is_every_nth(call: ScriptCall) -> bool:
    return any(_EVERY_NTH.search(condition) for condition in call.conditions)


@check(Severity.WARNING, source=_GRADIENT_ACCUMULATION, given=with_accelerate)
def script_loss_divided_twice(script: Script) -> Answer:
    """The loss is divided by the accumulation steps, although accelerate already does it.

    Why: Inside accelerator.accumulate(), the gradients become too small by that factor.
    More: accelerator.backward() already divides the loss by gradient_accumulation_steps, without a message.

    Fix: Remove the division.
    """
    accumulating = [call for call in calls(script, ACCELERATOR[: -len(r"\(\)")]) if _accumulates(call)]
    inside: list[ScriptSet | ScriptCall] = [*script.sets, *calls(script, rf"{ACCELERATOR}\.backward")]
    inside = [spot for spot in inside if any(context.endswith(".accumulate") for context in spot.within)]
    if not inside or not accumulating:
        return Ok("accelerator.accumulate is not used")
    losses = {call.written[0] for call in inside if isinstance(call, ScriptCall) and call.written}
    wrong = [spot for spot in inside if _DIVIDED.search(_loss_expression(spot, losses))]
    if not wrong:
        return Ok("only accelerate divides the loss")
    return finding(
        script,
        wrong[0],
        "the loss is divided by the accumulation steps, and again by accelerator.backward",
        others=wrong[1:],
    )


def _accumulates(call: ScriptCall) -> bool:
    steps = call.keywords.get("gradient_accumulation_steps")
    return steps not in (None, "1") or "gradient_accumulation_plugin" in call.keywords


def _loss_expression(spot: ScriptSet | ScriptCall, losses: set[str]) -> str:
    """Return the expression passed to accelerator.backward, or assigned to the name that is passed."""
    if isinstance(spot, ScriptCall):
        return spot.written[0] if spot.written else ""
    return spot.value if spot.target in losses else ""


@check(Severity.WARNING, source=_GRADIENT_CLIPPING, given=requires_kind("ddp", "deepspeed", "nothing"))
def script_clips_scaled_gradients(script: Script) -> Answer:
    """Gradients are clipped while they are still multiplied by the loss scale.

    Why: Before unscale_(), they are larger by the loss scale (initially 65536), so clipping reduces them to almost
    zero.
    More: The loss hardly changes.

    Fix: Unscale them before clipping.
    More: scaler.unscale_(optimizer).
    """
    clips = reached_calls(script, _CLIPS)
    scales = calls(script, rf"(?:{_SCALER}\(\)|.*scaler)\.scale")
    if not clips or not scales or not calls(script, _SCALER):
        return Ok("no gradients are clipped with a loss scale")
    if calls(script, r".*\.unscale_"):
        return Ok("the gradients are unscaled before they are clipped")
    places = {(call.function, call.loops[-1:], call.conditions) for call in scales}
    wrong = [call for call in clips if (call.function, call.loops[-1:], call.conditions) in places]
    if not wrong:
        return Ok("clipping and scaling are in different parts of the script")
    return finding(
        script,
        wrong[0],
        "scaled gradients are clipped: scaler.unscale_ is missing",
        commands("scaler.unscale_(optimizer)"),
        wrong[1:],
    )


@check(Severity.WARNING, source=_MIGRATION, given=with_accelerate)
def script_backward_past_accelerate(script: Script) -> Answer:
    """The script calls loss.backward() instead of accelerator.backward(loss).

    Why: accelerator.backward scales the loss for fp16, divides it for accumulation, and passes it to DeepSpeed.
    More: Without it, fp16 gradients vanish, accumulated gradients are too large, and DeepSpeed does not train at all.

    Fix: Let accelerate compute the gradients.
    More: accelerator.backward(loss).
    """
    prepared = calls(script, rf"{ACCELERATOR}\.prepare")
    if not prepared or script.cut:
        return Ok("no visible accelerator.prepare")
    if calls(script, rf"{ACCELERATOR}\.backward|.*accelerator\.backward"):
        return Ok("gradients are computed by accelerator.backward")
    optimizers = [call for call in prepared if "optim" in " ".join((*call.arguments, *call.written)).lower()]
    wrong = [call for call in backward_calls(script) if not call.arguments and call.loops and optimizers]
    if not wrong:
        return Ok("no gradients are visibly computed")
    loss = wrong[0].name.rpartition(".")[0]
    loss = loss if loss.isidentifier() else "loss"
    return finding(
        script,
        wrong[0],
        f"{loss}.backward() bypasses accelerate",
        commands(python("accelerator.backward({:dotted})", loss)),
        wrong[1:],
    )


@check(Severity.INFO, source=_GRADIENT_ACCUMULATION, given=with_accelerate)
def script_clips_past_accelerate(script: Script) -> Answer:
    """Gradients are clipped by torch instead of accelerator.clip_grad_norm_.

    Why: With fp16, the gradients are still scaled. With FSDP, a rank has only its shard of them.
    More: accelerate's own clipping unscales first, waits for the end of an accumulation, and handles FSDP's shards.

    Fix: Let accelerate clip at the end of an accumulation.
    More: if accelerator.sync_gradients: accelerator.clip_grad_norm_(model.parameters(), 1.0).
    """
    loops = training_loops(script)
    clips = [call for call in reached_calls(script, _CLIPS) if loops.intersection(call.loops)]
    if not calls(script, rf"{ACCELERATOR}\.backward") or not clips:
        return Ok("no clipping by torch")
    what = clips[0].name.rpartition(".")[2]
    return finding(
        script,
        clips[0],
        f"torch's {what} clips gradients that accelerate may have scaled or sharded",
        commands(python("if accelerator.sync_gradients: accelerator.{:dotted}(model.parameters(), ...)", what)),
        clips[1:],
    )


@check(Severity.WARNING, source=_MIGRATION, given=with_accelerate)
def script_optimizer_not_prepared(script: Script) -> Answer:
    """The optimizer that steps is not passed to accelerator.prepare.

    Why: It steps after every batch, on gradients that fp16 has scaled, or on weights that FSDP has replaced.
    More: A prepared optimizer unscales gradients and steps only at the end of an accumulation. DeepSpeed and FSDP
    rebuild it for the sharded weights.

    Fix: Prepare it together with the model.
    """
    made = [call for call in reached_calls(script, OPTIMIZERS) if len(call.targets) == 1]
    wrong = [call for call in made if _is_not_prepared(script, call.targets[0], call)]
    stepping = [call for call in wrong if calls(script, rf"{re.escape(call.name)}\(\)\.step")]
    if not stepping:
        if not made:
            return Ok("no optimizer of torch.optim is created")
        return Ok(f"{counted(len(made), 'optimizer')}, none steps unprepared")
    name = stepping[0].targets[0]
    return finding(
        script,
        stepping[0],
        f"{name} is not passed to accelerator.prepare",
        commands(python("model, {:dotted}, loader = accelerator.prepare(model, {:dotted}, loader)", name, name)),
        stepping[1:],
    )


@check(Severity.WARNING, source=_MIGRATION, given=with_accelerate)
def script_model_not_prepared(script: Script) -> Answer:
    """The model that is trained is not passed to accelerator.prepare.

    Why: Nothing averages the gradients, so every rank trains its own model.
    More: accelerator.prepare wraps the model so that gradients are averaged. Without it, the saved model is that of
    rank 0, trained on its shard of the data.

    Fix: Prepare it together with the optimizer.
    """
    made = [call for call in reached_calls(script, OPTIMIZERS) if call.written]
    trained = [
        (call, name) for call in made for name in re.findall(r"(?<![\w.])(\w+)\.parameters\(\)", call.written[0])
    ]
    for optimizer, name in trained:
        makers = [call for call in script.calls if call.targets == (name,) and call.function == optimizer.function]
        if makers and _is_not_prepared(script, name, optimizer) and calls(script, rf"{ACCELERATOR}\.backward"):
            return finding(
                script,
                makers[-1],
                f"{name} is trained but not passed to accelerator.prepare",
                commands(
                    shell(
                        "{:dotted}, optimizer, loader = accelerator.prepare({:dotted}, optimizer, loader)", name, name
                    )
                ),
            )
    if without := prepared_without_model(script):
        return finding(
            script,
            without,
            f"prepare gets {listed(without.written)}, and no model",
            commands(python("model = {:dotted}.prepare(model)", without.on or "accelerator")),
        )
    if not trained:
        return Ok("no optimizer is visibly created for a model's parameters")
    return Ok(f"{counted(len(trained), 'trained model')}, none certainly unprepared")


def _is_not_prepared(script: Script, name: str, near: ScriptCall) -> bool:
    """Whether something is not passed to prepare, although others in the same function are."""
    preparing = calls(script, rf"(?:{ACCELERATOR}|.*accelerator)\.prepare\w*")
    if script.cut or any(unpacks(call) for call in preparing):
        return False
    here = [call for call in preparing if call.function == near.function and call.file == near.file]
    passed_on = any(
        name in call.written and call is not near and not _KEEPS_NOTHING.match(call.name) for call in script.calls
    )
    return (
        bool(here) and not passed_on and name not in dotted_names(text for call in preparing for text in call.written)
    )
