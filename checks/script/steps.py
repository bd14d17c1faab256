"""Is the step of the optimizer the one that was meant, on N ranks?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Ok, Severity, check, commands
from mgpu.command_line import python, shell
from mgpu.snapshot import Script, ScriptCall, ScriptSet

from ._calls import DDP, DDP_DOC, calls, finding, unpacks
from ._rank_paths import backward as backward_of
from ._rank_paths import speaking, training_loops, with_accelerate, words

_GRADIENT_CLIPPING = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping"
_MIGRATION = "https://huggingface.co/docs/accelerate/main/en/basic_tutorials/migration"
_ACCELERATOR = r"accelerate\.Accelerator\(\)"
_GRADIENT_ACCUMULATION = "https://huggingface.co/docs/accelerate/main/en/usage_guides/gradient_accumulation"
_CLIPS = r"torch\.nn\.utils\.(?:clip_grad\.)?clip_grad_(?:norm|value)_"
_SCALER = r"torch\.(?:cuda\.)?amp\.(?:grad_scaler\.)?GradScaler"
_EVERY_NTH = re.compile(r"%.*(?:accum|grad)|(?:accum|grad)\w*.*%|\baccum", re.IGNORECASE)
# What is given an optimizer or a model, and does not prepare it.
_KEEPS_NOTHING = re.compile(r"torch\.|transformers\.get_\w+scheduler|print$|len$|.*\.prepare")
_DIVIDED = re.compile(r"/\s*[\w.]*(?:grad\w*_accum|accum)\w*", re.IGNORECASE)


@check(Severity.INFO, source=f"{DDP_DOC}#torch.nn.parallel.DistributedDataParallel.no_sync", given=speaking("ddp"))
def script_accumulates_with_exchange(script: Script) -> Answer:
    """Gradients are accumulated over several batches, and exchanged in each of them.

    Why: DistributedDataParallel averages them in each backward(); only the last one before step() needs it.
    More: The numbers are right, but the links carry N times as much.

    Fix: Put forward and backward() of all micro steps but the last under no_sync().
    """
    if not calls(script, re.escape(DDP)):
        return Ok("no model is wrapped in DistributedDataParallel")
    steps = [call for call in calls(script, r".*\.step") if call.loops and _every_nth(call)]
    if not steps:
        return Ok("the optimizer steps after every batch")
    spared = any(call.name.endswith(".no_sync") for call in script.calls)
    spared = spared or any("require_backward_grad_sync" in one.target for one in script.sets)
    loops = {loop for step in steps for loop in step.loops[-1:]}
    wrong = [call for call in backward_of(script) if loops.intersection(call.loops[-1:]) and not _every_nth(call)]
    if spared or not wrong:
        return Ok("the gradients of micro steps are not exchanged")
    return finding(
        script,
        wrong[0],
        "gradients are exchanged in every micro step of an accumulation",
        commands("with contextlib.nullcontext() if last else model.no_sync():"),
        wrong[1:],
    )


def _every_nth(call: ScriptCall) -> bool:
    return any(_EVERY_NTH.search(condition) for condition in call.conditions)


@check(Severity.WARNING, source=_GRADIENT_ACCUMULATION, given=with_accelerate)
def script_loss_divided_twice(script: Script) -> Answer:
    """The loss is divided by the accumulation steps although accelerate does it.

    Why: Inside accelerator.accumulate() the gradients become too small by that factor.
    More: accelerator.backward() divides the loss by gradient_accumulation_steps already, and nothing says so.

    Fix: Leave the division out.
    """
    told = [call for call in calls(script, _ACCELERATOR[: -len(r"\(\)")]) if _accumulates(call)]
    inside: list[ScriptSet | ScriptCall] = [*script.sets, *calls(script, rf"{_ACCELERATOR}\.backward")]
    inside = [spot for spot in inside if any(context.endswith(".accumulate") for context in spot.within)]
    if not inside or not told:
        return Ok("accelerator.accumulate is not used")
    losses = {call.written[0] for call in inside if isinstance(call, ScriptCall) and call.written}
    wrong = [spot for spot in inside if _DIVIDED.search(_loss(spot, losses))]
    if not wrong:
        return Ok("the loss is divided by accelerate alone")
    return finding(
        script,
        wrong[0],
        "the loss is divided by the accumulation steps, and accelerator.backward does it again",
        others=wrong[1:],
    )


def _accumulates(call: ScriptCall) -> bool:
    steps = call.keywords.get("gradient_accumulation_steps")
    return steps not in (None, "1") or "gradient_accumulation_plugin" in call.keywords


def _loss(spot: ScriptSet | ScriptCall, losses: set[str]) -> str:
    """What is handed to accelerator.backward, or assigned to the name that is."""
    if isinstance(spot, ScriptCall):
        return spot.written[0] if spot.written else ""
    return spot.value if spot.target in losses else ""


@check(Severity.WARNING, source=_GRADIENT_CLIPPING, given=speaking("ddp", "deepspeed", "nothing"))
def script_clips_scaled_gradients(script: Script) -> Answer:
    """Gradients are clipped while they are still multiplied by the loss scale.

    Why: Until unscale_() they are larger by the loss scale (65536 at first); clipping leaves almost nothing of them.
    More: The loss hardly moves.

    Fix: Unscale them before the clipping.
    More: scaler.unscale_(optimizer).
    """
    clips = calls(script, _CLIPS)
    scales = calls(script, rf"(?:{_SCALER}\(\)|.*scaler)\.scale")
    if not clips or not scales or not calls(script, _SCALER):
        return Ok("no gradients are clipped under a loss scale")
    if calls(script, r".*\.unscale_"):
        return Ok("the gradients are unscaled before they are clipped")
    places = {(call.function, call.loops[-1:], call.conditions) for call in scales}
    wrong = [call for call in clips if (call.function, call.loops[-1:], call.conditions) in places]
    if not wrong:
        return Ok("what is clipped stands in another place than what is scaled")
    return finding(
        script,
        wrong[0],
        "scaled gradients are clipped: scaler.unscale_ is missing",
        commands("scaler.unscale_(optimizer)"),
        wrong[1:],
    )


@check(Severity.WARNING, source=_MIGRATION, given=with_accelerate)
def script_backward_past_accelerate(script: Script) -> Answer:
    """loss.backward() is called in place of accelerator.backward(loss).

    Why: Its own backward scales the loss for fp16, divides it for accumulation, hands it to DeepSpeed.
    More: Without it fp16 gradients vanish, an accumulation is too large, and with DeepSpeed nothing is trained.

    Fix: Let accelerate compute the gradients.
    More: accelerator.backward(loss).
    """
    prepared = calls(script, rf"{_ACCELERATOR}\.prepare")
    if not prepared or script.cut:
        return Ok("nothing is prepared by accelerate in the open")
    if calls(script, rf"{_ACCELERATOR}\.backward|.*accelerator\.backward"):
        return Ok("gradients are computed by accelerator.backward")
    optimizers = [call for call in prepared if "optim" in " ".join((*call.arguments, *call.written)).lower()]
    wrong = [call for call in backward_of(script) if not call.arguments and call.loops and optimizers]
    if not wrong:
        return Ok("no gradients are computed in the open")
    loss = wrong[0].name.rpartition(".")[0]
    loss = loss if loss.isidentifier() else "loss"
    return finding(
        script,
        wrong[0],
        f"{loss}.backward() passes accelerate by",
        commands(python("accelerator.backward({:dotted})", loss)),
        wrong[1:],
    )


@check(Severity.INFO, source=_GRADIENT_ACCUMULATION, given=with_accelerate)
def script_clips_past_accelerate(script: Script) -> Answer:
    """Gradients are clipped by torch in place of accelerator.clip_grad_norm_.

    Why: With fp16 the gradients still carry the loss scale, with FSDP a rank sees only its part of them.
    More: accelerate's own clipping undoes the scale first, waits for the end of an accumulation and knows that a rank
    of FSDP holds only a part.

    Fix: Let accelerate clip, at the end of an accumulation.
    More: if accelerator.sync_gradients: accelerator.clip_grad_norm_(model.parameters(), 1.0).
    """
    loops = training_loops(script)
    clips = [call for call in calls(script, _CLIPS) if loops.intersection(call.loops)]
    if not calls(script, rf"{_ACCELERATOR}\.backward") or not clips:
        return Ok("torch clips nothing here")
    what = clips[0].name.rpartition(".")[2]
    return finding(
        script,
        clips[0],
        f"torch's {what} clips what accelerate may have scaled or sharded",
        commands(python("if accelerator.sync_gradients: accelerator.{:dotted}(model.parameters(), ...)", what)),
        clips[1:],
    )


@check(Severity.WARNING, source=_MIGRATION, given=with_accelerate)
def script_optimizer_not_prepared(script: Script) -> Answer:
    """The optimizer that steps is not given to accelerator.prepare.

    Why: It steps after every batch, on gradients that fp16 has scaled, or on weights that FSDP has replaced.
    More: A prepared optimizer undoes the scale, steps only at the end of an accumulation, and is the one that DeepSpeed
    and FSDP rebuild around the sharded weights.

    Fix: Prepare it together with the model.
    """
    made = [call for call in calls(script, r"torch\.optim\.(?:\w+\.)?[A-Z]\w+") if len(call.targets) == 1]
    wrong = [call for call in made if _left_out(script, call.targets[0], call)]
    stepping = [call for call in wrong if calls(script, rf"{re.escape(call.name)}\(\)\.step")]
    if not stepping:
        return Ok(f"{len(made)} optimizers, none that steps unprepared")
    name = stepping[0].targets[0]
    return finding(
        script,
        stepping[0],
        f"{name} is not given to accelerator.prepare",
        commands(python("model, {:dotted}, loader = accelerator.prepare(model, {:dotted}, loader)", name, name)),
        stepping[1:],
    )


@check(Severity.WARNING, source=_MIGRATION, given=with_accelerate)
def script_model_not_prepared(script: Script) -> Answer:
    """The model that is trained is not given to accelerator.prepare.

    Why: Nothing averages the gradients: every rank trains a model of its own.
    More: accelerator.prepare wraps the model so that they are averaged. What is saved is the model of rank 0, trained
    on its share of the data.

    Fix: Prepare it together with the optimizer.
    """
    made = [call for call in calls(script, r"torch\.optim\.(?:\w+\.)?[A-Z]\w+") if call.written]
    trained = [(call, found[1]) for call in made if (found := re.fullmatch(r"(\w+)\.parameters\(\)", call.written[0]))]
    for optimizer, name in trained:
        makers = [call for call in script.calls if call.targets == (name,) and call.function == optimizer.function]
        if makers and _left_out(script, name, optimizer) and calls(script, rf"{_ACCELERATOR}\.backward"):
            return finding(
                script,
                makers[-1],
                f"{name} is trained and not given to accelerator.prepare",
                commands(
                    shell(
                        "{:dotted}, optimizer, loader = accelerator.prepare({:dotted}, optimizer, loader)", name, name
                    )
                ),
            )
    return Ok(f"{len(trained)} models are trained, each prepared")


def _left_out(script: Script, name: str, near: ScriptCall) -> bool:
    """Whether something is given to no prepare, though others of the same function are."""
    preparing = calls(script, rf"(?:{_ACCELERATOR}|.*accelerator)\.prepare\w*")
    if script.cut or any(unpacks(call) for call in preparing):
        return False
    here = [call for call in preparing if call.function == near.function and call.file == near.file]
    handed_on = any(
        name in call.written and call is not near and not _KEEPS_NOTHING.match(call.name) for call in script.calls
    )
    return bool(here) and not handed_on and name not in words(text for call in preparing for text in call.written)
