"""What mixed sharded tensors (DTensor) with plain ones: the loss, clipping, the optimizer, generate(), an embedding?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import Log, UncaughtException

_RECOMPUTES = re.compile(r"torch/utils/checkpoint\.py in (?:recompute_fn|unpack_hook|backward)$")
_INNERMOST = 3  # frames, of which one names what the code does
# Frames that every operator on a sharded tensor passes through, and those of layers.
_OF_TORCH = re.compile(
    r"^torch/(?:distributed/tensor/|_ops|_compile|_dynamo|_tensor\.py|utils/_contextlib|autograd/|nn/(?!utils/))"
)
_NEUTRAL = ("torch", "transformers", "diffusers", "peft", "accelerate", "timm")  # a script or a framework calls them
_PRODUCT = re.compile(r"aten\.(?:mm|addmm|bmm|matmul|linear|t)\b")
_LOSS_OPERATOR = re.compile(r"nll_loss|log_softmax|cross_entropy|mse_loss")
# What mixes them, from the frames.
_OF_LOSS = re.compile(r"(?i)(?:/|^)\w*loss\w*\.py in |in \w*(?:cross_entropy|loss_fn|lossfunction)\w*$")
_LOSS_OF_WEIGHT = re.compile(r"(?i)\w*(?:loss|cross_entropy|criterion)\w*\([^)]*\b(?:\w*[._])?weight\b")
_OF_CLIPPING = re.compile(r"clip_grad|in \w*get_total_norm$")
_OF_OPTIMIZER = re.compile(r"^torch/optim/(?!lr_scheduler|swa_utils)|/optim\w*(?:/\S*|\.py) in step$")
_OF_GENERATION = re.compile(r"/generation/|in (?:_?generate\w*|_(?:sample|greedy_search|beam_search))$")
_OF_AVERAGE = re.compile(r"(?i)\bema\b|_ema|ema_|averag")
# What mixes plain tensors with DTensors, from the operator. The first that matches.
# fmt: off
_MIXED = (
    (r"_foreach_norm|_foreach_mul|linalg_vector_norm|aten\.(?:stack|cat)|_foreach_pow",
     "gradient clipping", "Some parameters are sharded (FSDP 2, tensor parallelism) and some are not: adapters added "
     "after sharding, experts kept elsewhere, a layer outside of fully_shard. clip_grad_norm_ joins all of them.",
     Fix("Shard all trained parameters, or clip the two kinds separately.",
         ("fully_shard(model)  # after adding adapters, and before building the optimizer",
          "torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=False)", "pip install --upgrade accelerate"))),
    (r"_foreach_lerp|aten\.lerp|_foreach_(?:copy|sub)|aten\.copy_",
     "a copy of the weights (EMA, a reference model, loading weights)", "FSDP 2 keeps parameters as DTensors. The copy "
     "holds plain tensors: it was made before sharding, or loaded from a file.",
     Fix("Make the copy from the sharded model, and update its local parts.",
         ("ema = copy.deepcopy(model)  # before fully_shard, then fully_shard both",
          "ema_p.to_local().lerp_(p.to_local(), 1 - decay)",
          "torch.distributed.tensor.distribute_tensor(t, p.device_mesh, p.placements)"))),
    (r"_fused_|_foreach_|addcmul|addcdiv",
     "the optimizer's step", "The optimizer got sharded and plain parameters in one group, or its state is plain: it "
     "was built before sharding, or loaded from a full checkpoint.",
     Fix("Build the optimizer after sharding, or give it the two kinds in an implementation that takes one tensor at a "
         "time.", ("torch.optim.AdamW(model.parameters(), foreach=False, fused=False)",
                   "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict(...)"))),
    (r"^(?!(?:aten|_?c10d\w*|prims|torchvision|quantized)\.)[a-z]\w*\.\w+",
     "an operator that is not torch's own", "It has no sharding rule for DTensor, so it accepts local tensors only. "
     "Tensor or context parallelism shards some of its inputs; the others are plain tensors.",
     Fix("Register a sharding rule for it, run it on the local tensors, or use torch's own operator.",
         ("torch.distributed.tensor.experimental.register_sharding(OPERATOR)",
          "torch.distributed.tensor.experimental.local_map(...)"))),
    (r"aten\.embedding",
     "an embedding", "The layer is called outside of the wrapped model's forward(), as for inputs_embeds, when its "
     "weight is still sharded. With tensor parallelism, its input is a plain tensor where the plan expects a DTensor.",
     Fix("Call it within the root model's forward(), or gather its weight.",
         ("torch.distributed.fsdp.register_fsdp_forward_method(model, 'METHOD')", "weight.full_tensor()",
          "RowwiseParallel(input_layouts=Replicate())  # tensor parallelism"))),
    (r"scaled_dot_product|attention|flash_attn",
     "attention", "With context or tensor parallelism, one of the attention's inputs is sharded and another (a mask, "
     "positions) is not, or the attention kernel that was chosen does not support it.",
     Fix("Use flash attention without a mask, and pass every buffer to context_parallel.",
         ("with sdpa_kernel(SDPBackend.FLASH_ATTENTION):",))),
)
OUTSIDE = (
    "The script uses the sharded weights outside of the wrapped model's forward(): a layer or the head called "
    "directly, another method than forward(), a hook, custom weight decay, or buffers and masks that are plain tensors."
)
USE_FORWARD = Fix(
    "Call the model's forward(), or register the other method.",
    ("torch.distributed.fsdp.register_fsdp_forward_method(model, 'generate')", "weight.full_tensor()"),
)
_RECOMPUTED = Meaning(
    "activation checkpointing ran a layer again whose weights FSDP 2 had already sharded again",
    "The recomputation then gets DTensors and plain activations. It happens with nested fully_shard and several "
    "forward passes before one backward pass (DPO: chosen and rejected, a reward model): the inner layer is sharded "
    "again after its first backward pass. It is a limit of FSDP 2, not an error of your script.",
    (
        Fix("Run one forward pass for both parts of the batch.", ("torch.cat([chosen, rejected])",)),
        Fix(
            "Or keep the weights until the step ends, or shard whole layers only.",
            ("fully_shard(layer, reshard_after_forward=False)", "pip install --upgrade torch"),
        ),
    ),
)
# fmt: on


class _Place(NamedTuple):
    """Where the operator was called: the frames but those of torch's layers and tensors, and the code of the last."""

    frames: tuple[str, ...]
    code: str
    cut: bool = False  # the last frame is not the innermost one

    @property
    def framework(self) -> str:
        """The framework whose code it is; "" for files of the user's own."""
        packages = (frame.partition(" in ")[0].rpartition("/")[0].partition("/")[0] for frame in reversed(self.frames))
        return next((one for one in packages if one not in _NEUTRAL), "")


def mixed_tensors(log: Log, groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain what mixed sharded and plain tensors, by the traceback, or that of another rank, and the operator."""
    operator = groups["operator"]
    if raised and any(_RECOMPUTES.search(frame) for frame in raised.frames):
        return _RECOMPUTED
    place = _place(log, raised)
    found = _by_frames(operator, place) or _by_operator(operator, operator)
    who = f"{place.framework} uses" if place.framework else "The script uses"
    general = Meaning(
        f"{operator} got a sharded tensor (DTensor) and a plain tensor",
        OUTSIDE.replace("The script uses", who),
        (USE_FORWARD,),
    )
    return _for_framework(found or general, place.framework)


def _place(log: Log, raised: UncaughtException | None) -> _Place:
    """Return where it was called. If a rank's traceback lacks that, one that is cut can have it."""
    frames = tuple(frame for frame in (raised.frames if raised else ()) if not _OF_TORCH.search(frame))
    if raised and frames:
        codes = [one.code or "" for one in raised.calls if not _OF_TORCH.search(one.place)]
        return _Place(frames, codes[-1] if codes else "")
    for one in log.cut:
        if one.frame and not _OF_TORCH.search(one.frame):
            return _Place((one.frame,), one.code or "", cut=True)
    return _Place((), "")


def _by_frames(operator: str, place: _Place) -> Meaning | None:
    last = place.frames[-_INNERMOST:]

    def passed(pattern: re.Pattern[str], frames: tuple[str, ...]) -> bool:
        return any(pattern.search(frame) for frame in frames)

    if passed(_OF_AVERAGE, last):
        return _by_operator("aten.lerp", operator)
    if passed(_OF_CLIPPING, last):
        return _by_operator("aten._foreach_norm", operator)
    if passed(_OF_OPTIMIZER, last):
        return _by_operator("aten.addcmul", operator)
    if passed(_OF_GENERATION, place.frames):
        return _in_generation(operator)
    of_loss = not place.cut and passed(_OF_LOSS, place.frames[-1:])
    if of_loss or _LOSS_OF_WEIGHT.search(place.code) or _LOSS_OPERATOR.search(operator):
        return _in_loss(operator)
    return None


def _in_generation(operator: str) -> Meaning:
    return Meaning(
        f"generate() uses the sharded model outside of its own forward() ({operator})",
        "FSDP 2 gathers the weights in forward() only. generate() and its loop call parts of the model themselves, so "
        "they get weights that are still sharded (DTensor), with plain inputs.",
        (
            Fix(
                "Register generate() as a method that gathers the weights, and call it on all ranks.",
                ("torch.distributed.fsdp.register_fsdp_forward_method(model, 'generate')",),
            ),
            Fix("Or generate with an unsharded copy, or with an inference engine (vLLM)."),
        ),
    )


def _in_loss(operator: str) -> Meaning | None:
    if _PRODUCT.search(operator):
        return Meaning(
            f"the loss multiplies by the head's weight itself, which is still sharded ({operator})",
            "A loss that takes the weight of the output layer (a fused or chunked linear cross-entropy) computes the "
            "logits by itself. Outside of the layer's own forward(), FSDP 2 and tensor parallelism have the weight as "
            "a DTensor only, and the activations and labels are plain tensors.",
            (
                Fix("Use a loss that takes logits, so that the head's own forward() computes them."),
                Fix(
                    "Or gather the weight before the loss, on all ranks.",
                    ("weight = model.lm_head.weight.full_tensor()",),
                    caveat="The whole weight is then in the memory of each GPU.",
                ),
            ),
        )
    if not _LOSS_OPERATOR.search(operator):
        return None
    return Meaning(
        f"the loss gets sharded logits (DTensor) and plain labels ({operator})",
        "With tensor parallelism, the head returns its logits sharded over the vocabulary or the sequence.",
        (
            Fix(
                "Compute the loss on the shards, or let the head return whole logits.",
                (
                    "with torch.distributed.tensor.parallel.loss_parallel(): loss.backward()",
                    "ColwiseParallel(output_layouts=Replicate())",
                ),
            ),
        ),
    )


def _by_operator(known_by: str, operator: str) -> Meaning | None:
    for pattern, who, why, fix in _MIXED:
        if re.search(pattern, known_by):
            return Meaning(f"{who} mixes sharded parameters (DTensor) with plain tensors ({operator})", why, (fix,))
    return None


def _for_framework(found: Meaning, framework: str) -> Meaning:
    """Return the meaning with what a user of a framework's own recipe can do, before what its code has to do."""
    if not framework:
        return found
    options = Fix(
        f"It is in {framework}'s own code. Choose another option of its config (the loss, tied or trained parts, "
        "the sharding), or another release that supports this combination.",
        (shell("pip show {:name} torch", framework),),
    )
    return found._replace(fixes=(options, *found.fixes))
