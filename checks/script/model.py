"""Is the wrapped model the one that is trained, and does the wrapper have the methods that are called?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import python
from mgpu.snapshot import Script, ScriptCall
from mgpu.text import counted

from ._calls import DDP, calls, finding, reached_calls
from ._rank_paths import (
    ONE_RANK,
    PREPARED,
    WRAPPED,
    by_hand,
    dotted_names,
    own_loop,
    requires_kind,
    training_loops,
    visibly_called,
)

# Methods of models in transformers, peft and diffusers. A wrapper forwards only forward(), and so does accelerate.
_OF_MODELS = (
    "generate|save_pretrained|push_to_hub|resize_token_embeddings|gradient_checkpointing_enable|merge_and_unload"
    "|enable_input_require_grads|print_trainable_parameters|get_input_embeddings|get_output_embeddings"
    "|disable_adapter|set_adapter|load_adapter|tie_weights|enable_gradient_checkpointing"
    "|enable_xformers_memory_efficient_attention|freeze_feature_encoder"
)
# DeepSpeed's engine and FSDP forward methods that they do not have; fully_shard wraps nothing.
_FORWARDS = re.compile(r"fsdp|deepspeed|fully_?shard|parallelism_config|zero_?stage|megatron", re.IGNORECASE)
_PREPARE = r"accelerate\.Accelerator\(\)\.prepare"
_PIPELINE = re.compile(r"diffusers\..*Pipeline")
_ASKS_FIRST = re.compile(r"hasattr|isinstance|TPU|XLA|distributed_type|loss_scaler is None|module")
# Methods of DistributedDataParallel (torch 2.13), and of DeepSpeed's engine, which a script may use instead.
_OF_WRAPPER = re.compile(
    r"T_destination|add_module|apply|backward|bfloat16|buffers|call_super_init|children|compile|cpu|cuda|double"
    r"|dump_patches|eval|extra_repr|float|forward|gather|get_buffer|get_extra_state|get_parameter|get_submodule|half"
    r"|ipu|join|join_hook|load_checkpoint|load_state_dict|module|modules|mtia|named_buffers|named_children"
    r"|named_modules|named_parameters|no_sync|parameters|register_backward_hook|register_buffer|register_comm_hook"
    r"|register_forward_hook|register_forward_pre_hook|register_full_backward_hook|register_full_backward_pre_hook"
    r"|register_load_state_dict_post_hook|register_load_state_dict_pre_hook|register_module|register_parameter"
    r"|register_state_dict_post_hook|register_state_dict_pre_hook|requires_grad_|save_checkpoint|scatter"
    r"|set_extra_state|set_submodule|share_memory|state_dict|step|to|to_empty|to_kwargs|train|training|type"
    r"|will_sync_module_buffers|xpu|zero_grad"
)


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/issues/54059", given=by_hand, tags=("leads_to_hang",))
def script_wrapped_model_on_one_rank(script: Script) -> Answer:
    """The wrapped model is called only on rank 0.

    Why: DistributedDataParallel broadcasts the model's buffers in each call, even in evaluation, so rank 0 waits for
    the others (unless the model has no buffers).
    More: The others are in another collective, so the run hangs or data gets mixed up. FSDP gathers the weights in the
    same way.

    Fix: Call the inner model on that rank, or evaluate on every rank and reduce.
    More: The inner model is model.module.
    """
    wrapped = visibly_called(script, calls(script, WRAPPED))
    if not wrapped:
        return Ok("no visible call of a wrapped model")
    made = calls(script, WRAPPED.replace(r"\(\)", ""))
    if made and all(call.keywords.get("broadcast_buffers") == "False" for call in made):
        return Ok("the wrapper does not broadcast buffers: its call in evaluation waits for no rank")
    wrong = [call for call in wrapped if ONE_RANK.intersection(call.guards) and "single" not in call.guards]
    if not wrong:
        return Ok(f"{counted(len(wrapped), 'call')} of the wrapped model, none on one rank only")
    return finding(
        script, wrong[0], "the wrapped model is called only on rank 0", commands("model.module(...)"), wrong[1:]
    )


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate/issues/109", given=own_loop)
def script_method_of_wrapped_model(script: Script) -> Answer:
    """A method of the model is called on its wrapper.

    Why: DistributedDataParallel only forwards forward(). On one GPU, accelerate does not wrap the model and the script
    works. On several, it stops with AttributeError: 'DistributedDataParallel' object has no attribute.

    Fix: Call it on the inner model.
    More: accelerator.unwrap_model(model).generate(...), or model.module.generate(...).
    """
    methods = visibly_called(script, calls(script, rf"(?:{PREPARED}|{re.escape(DDP)}\(\))\.\w+"))
    if _has_forwarding_wrapper(script):
        return Skip("with FSDP or DeepSpeed, the wrapper forwards the model's methods")
    wrong = [call for call in methods if _lacks_method(call) and not _is_pipeline(script, call)]
    if not methods:
        return Ok("no method of a wrapped model is called")
    if not wrong:
        return Ok(f"{counted(len(methods), 'method call')}, none of a method that the wrapper lacks")
    what = wrong[0].name.rpartition(".")[2]
    made = python("model.module.{:dotted}(...)", what)
    if "accelerate" in wrong[0].name:
        made = python("accelerator.unwrap_model(model).{:dotted}(...)", what)
    return finding(
        script,
        wrong[0],
        f"{what}() is called on the wrapped model, which does not have it",
        commands(made),
        wrong[1:],
        why=f"On several GPUs: AttributeError: 'DistributedDataParallel' object has no attribute '{what}'.",
    )


def _is_pipeline(script: Script, method: ScriptCall) -> bool:
    """Whether prepare() got a pipeline of diffusers, which is no module: it returns such an object as it is."""
    given = [one for call in calls(script, _PREPARE) for one in call.arguments]
    return "accelerate" in method.name and any(_PIPELINE.search(one) for one in given)


def _lacks_method(call: ScriptCall) -> bool:
    """Whether the wrapper lacks the method; for models prepared by accelerate, only known model methods count."""
    name = call.name.rpartition(".")[2]
    if call.name.startswith("accelerate"):
        known = not re.fullmatch(_OF_MODELS, name)
    else:
        known = bool(_OF_WRAPPER.fullmatch(name)) or name.startswith("_")
    return (
        not known
        and not {"single", "some"}.intersection(call.guards)
        and not any(_ASKS_FIRST.search(text) for text in call.conditions)
    )


def _has_forwarding_wrapper(script: Script) -> bool:
    """Whether the script uses a wrapper that forwards the model's methods."""
    texts = [text for one in script.sets for text in (one.target, one.value)]
    texts += [text for call in script.calls for text in (call.name, *call.keywords, *call.keywords.values())]
    return any(_FORWARDS.search(text) for text in (*texts, *script.imports))


@check(Severity.WARNING, source="https://docs.pytorch.org/docs/stable/notes/ddp.html", given=requires_kind("ddp"))
def script_wrapped_model_not_used(script: Script) -> Answer:
    """The model is wrapped in DistributedDataParallel, but the unwrapped model is trained.

    Why: Only the wrapper averages the gradients. With the unwrapped model, every rank has its own, and N models
    diverge.
    More: The saved model has seen 1/N of the data.

    Fix: Call the wrapper in the training loop.
    """
    wrappers = [
        call
        for call in reached_calls(script, re.escape(DDP))
        if len(call.targets) == 1 and "".join(call.written[:1]).isidentifier() and call.written[0] not in call.targets
    ]
    loops = training_loops(script)
    wrong = [
        call for call in wrappers if not _is_wrapper_used(script, call) and _trains_unwrapped_model(script, call, loops)
    ]
    if not wrong or script.cut:
        number = len(calls(script, re.escape(DDP)))
        return Ok(
            f"{counted(number, 'wrapped model')}, none visibly unused" if number else "no model is wrapped in DDP"
        )
    wrapped, bare = wrong[0].targets[0], wrong[0].written[0]
    return finding(
        script,
        wrong[0],
        f"{wrapped} is created but never called: the training loop calls {bare}",
        Fix(f"Call the wrapper instead of {bare}(...) in the training loop.", (python("{:dotted}(...)", wrapped),)),
    )


def _is_wrapper_used(script: Script, wrapper: ScriptCall) -> bool:
    """Whether the wrapper is called or passed on anywhere."""
    name = wrapper.targets[0]
    others = [call for call in script.calls if call is not wrapper]
    return (
        any(call.name == f"{DDP}()" for call in others)
        or any(name in dotted_names(call.written) for call in others)
        or any(name in dotted_names([one.value]) for one in script.sets)
    )


def _trains_unwrapped_model(script: Script, wrapper: ScriptCall, loops: set[int]) -> bool:
    """Whether the unwrapped model is called in a loop that computes gradients."""
    made = f"{wrapper.arguments[0]}" if wrapper.arguments else ""
    return made.endswith("()") and any(
        call.name == made and call.function == wrapper.function and loops.intersection(call.loops)
        for call in script.calls
    )
