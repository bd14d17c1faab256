"""How much memory do the weights, gradients and optimizer of a model need on one GPU? Pure arithmetic.

Counted is what stays allocated between two steps. Activations, the CUDA context and NCCL's buffers are not: they depend
on batch, sequence length and driver, and no formula of this kind knows them. Every figure is a named constant with its
source; the ones for DDP and FSDP2 are held against real models by tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mgpu import quantities

GIB: Final = 2**30
STRATEGY_NAMES: Final = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "fsdp2": "FSDP2"}
STRATEGIES: Final = tuple(STRATEGY_NAMES)
SPLITTING: Final = STRATEGIES[1:]  # all but DDP divide something by the ranks, and can offload it
OPTIMIZERS: Final = ("adamw", "adam8bit", "sgd", "adafactor")
PRECISIONS: Final = ("no", "fp16", "bf16", "fp8")
TRAIN: Final = ("full", "lora", "qlora")

# Bytes for each parameter that is trained.
FP32: Final = 4.0
HALF: Final = 2.0  # fp16 and bf16
# Adam keeps two fp32 averages; SGD one (with momentum); 8-bit Adam two of a byte (bitsandbytes; ml-engineering,
# "training/performance"). Adafactor keeps a row and a column of each matrix (Shazeer and Stern 2018, arXiv 1804.04235):
# next to nothing of a large one. Measured with torch 2.13: 0.01 to 0.04 bytes at widths of 1,024 down to 256.
STATES: Final = {"adamw": 8.0, "adam8bit": 2.0, "sgd": 4.0, "adafactor": 0.02}
# ZeRO keeps an fp32 copy of the weights with the optimizer, also when they are fp32 themselves: 12 = 4 + 8 with Adam
# (arXiv 1910.02054, K = 12). Measured with DeepSpeed 0.19.8 on two CPU ranks, bytes per parameter after a step, when
# stages 1 and 2 have let go of the gradients: bf16 8, 8, 8 (stages 1, 2, 3), fp32 10, 10, 10.
MASTER: Final = FP32
# nf4 holds a weight in 4 bits, and a 32-bit constant for each block of 64 (bitsandbytes; QLoRA, arXiv 2305.14314).
NF4: Final = 0.5 + 4 / 64
ADAPTER_SHARE: Final = 0.01  # LoRA of rank 16 on every linear layer of a 7B model is about 0.6 %: taken when not told
# DeepSpeed's own estimate for the host: half as much again for buffers (estimate_zero2_model_states_mem_needs).
DEEPSPEED_HOST_BUFFERS: Final = 1.5

# CUDA context 0.5 to 2 GiB, torch.distributed and NCCL 1 to 2 GiB (ml-engineering, "training/performance").
RESERVE_BYTES: Final = 3 * GIB
# The share of a GPU that weights, gradients and optimizer may take so that activations have room: a rule of thumb.
STATE_SHARE: Final = 0.70
MOST_GPUS: Final = 1024  # where the search for "k GPUs would do" stops

# fmt: off
_WHOLE: Final = {  # what each strategy keeps whole on every GPU; the rest is divided by the ranks
    "ddp": ("weights", "gradients", "optimizer"),
    "zero1": ("weights", "gradients"),
    "zero2": ("weights",),
    "zero3": (),
    "fsdp2": (),
}
# fmt: on
_OPTIMIZER_NAMES: Final = {
    "adamw": "AdamW",
    "adam8bit": "8-bit Adam",
    "sgd": "SGD with momentum",
    "adafactor": "Adafactor",
}
_NATIVE_SOURCE = "fp32 weights, gradients and optimizer, as accelerate's autocast keeps them; measured torch 2.13"
_ZERO_SOURCE = "ZeRO, arXiv 1910.02054"
_ALWAYS_OUT = ("activations (they grow with batch and sequence length)", "CUDA context and NCCL buffers")


@dataclass(frozen=True)
class Need:
    """Memory of one GPU between two steps, and of the host for all ranks together."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    host_bytes: int
    buckets_bytes: int  # DDP's own copy of the gradients (none with gradient_as_bucket_view=True, not its default)
    formula: str  # bytes for each parameter, in words
    not_counted: tuple[str, ...]
    source: str

    @property
    def total_bytes(self) -> int:
        """Weights, gradients and optimizer: what the formulas of the papers count."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def resident_bytes(self) -> int:
        """The same with DDP's gradient buckets, which are there as well: 3.8 of 4 bytes measured, torch 2.13."""
        return self.total_bytes + self.buckets_bytes


def need(
    params: int,
    *,
    strategy: str,
    ranks: int,
    optimizer: str = "adamw",
    precision: str = "bf16",
    train: str = "full",
    trainable: int | None = None,
    offload: bool = False,
) -> Need:
    """What one of `ranks` GPUs holds. Raises ValueError with a sentence for what cannot be."""
    _refuse(params, strategy, ranks, optimizer, precision, train, trainable, offload)
    zero = strategy.startswith("zero")
    half = zero and precision != "no"  # with fp8, accelerate has DeepSpeed train in bf16
    weight = HALF if half else FP32
    states = STATES[optimizer] + (MASTER if zero else 0.0)
    trained, assumed = _trained(params, train, trainable)
    frozen = params if train != "full" else params - trained
    base = {"full": weight, "lora": FP32 if precision == "no" else HALF, "qlora": NF4}[train]

    weights, gradients, optimum = frozen * base + trained * weight, trained * weight, trained * states
    host = 0.0
    if offload:  # only sharding strategies can
        stays = weights if strategy in ("zero1", "zero2") else 0.0
        # DeepSpeed adds gradients up in fp32 on the host.
        host = weights - stays + (trained * FP32 if zero else gradients) + optimum
        host *= DEEPSPEED_HOST_BUFFERS if zero else 1.0
        weights, gradients, optimum = stays, 0.0, 0.0
    whole = _WHOLE[strategy]
    share = {part: 1 if part in whole else ranks for part in ("weights", "gradients", "optimizer")}
    return Need(
        weights_bytes=round(weights / share["weights"]),
        gradients_bytes=round(gradients / share["gradients"]),
        optimizer_bytes=round(optimum / share["optimizer"]),
        host_bytes=round(host),
        buckets_bytes=round(gradients) if strategy == "ddp" and ranks > 1 else 0,
        formula=_formula(weight, states, _OPTIMIZER_NAMES[optimizer], base if frozen else None)
        + _divided(whole, ranks),
        not_counted=_left_out(strategy, assumed, offload),
        source=_ZERO_SOURCE if zero else _NATIVE_SOURCE,
    )


def _formula(weight: float, states: float, optimizer: str, frozen: float | None) -> str:
    """Bytes per trained parameter, with a gradient as large as its weight, and per frozen one (None: there is none)."""
    formula = (
        f"{weight:g} + {weight:g} + {states:.3g} = {weight + weight + states:.3g} bytes per trained parameter "
        f"(weights + gradients + {optimizer})"
    )
    return formula if frozen is None else f"{formula}, {frozen:.3g} per frozen one"


def fits(need: Need, free_bytes: int) -> bool:
    """Whether weights, gradients, optimizer and RESERVE_BYTES stand in the free memory; nothing is left for sure."""
    return need.resident_bytes + RESERVE_BYTES <= free_bytes


def roomy(need: Need, free_bytes: int) -> bool:
    """Whether they take at most STATE_SHARE of the free memory, so that activations have room."""
    return need.resident_bytes + RESERVE_BYTES <= free_bytes * STATE_SHARE


def gpus_needed(
    params: int,
    free_bytes: int,
    *,
    strategy: str,
    optimizer: str = "adamw",
    precision: str = "bf16",
    train: str = "full",
    trainable: int | None = None,
    offload: bool = False,
) -> int | None:
    """The smallest number of such GPUs on which the model fits; None when no number up to MOST_GPUS would do."""
    for ranks in range(1, MOST_GPUS + 1):
        one = need(
            params,
            strategy=strategy,
            ranks=ranks,
            optimizer=optimizer,
            precision=precision,
            train=train,
            trainable=trainable,
            offload=offload,
        )
        if fits(one, free_bytes):
            return ranks
        if strategy == "ddp":  # more copies do not make one smaller
            return None
    return None


def gib(count: float) -> str:
    """Bytes for people: "135 GiB", "4.2 GiB", "310 MiB"."""
    return quantities.gib(count, tenths=True, grouped=True)


def _refuse(
    params: int,
    strategy: str,
    ranks: int,
    optimizer: str,
    precision: str,
    train: str,
    trainable: int | None,
    offload: bool,
) -> None:
    if params < 1:
        raise ValueError(f"{params} parameters: a model has at least one")
    if ranks < 1:
        raise ValueError(f"{ranks} ranks: a run has at least one")
    for what, given, allowed in (
        ("strategy", strategy, STRATEGIES),
        ("optimizer", optimizer, OPTIMIZERS),
        ("precision", precision, PRECISIONS),
        ("train", train, TRAIN),
    ):
        if given not in allowed:
            raise ValueError(f"{what} {given}: choose one of {', '.join(allowed)}")
    if trainable is not None and not 1 <= trainable <= params:
        raise ValueError(f"{trainable:,} trained parameters of {params:,}: choose between 1 and all of them")
    if offload and strategy == "ddp":
        raise ValueError("DDP keeps everything on the GPU: only FSDP2 and ZeRO can offload to the host")


def _trained(params: int, train: str, trainable: int | None) -> tuple[int, bool]:
    """How many parameters get gradients, and whether that is an assumption of ours."""
    if trainable is not None:
        return trainable, False
    if train == "full":
        return params, False
    return max(1, round(params * ADAPTER_SHARE)), True


def _divided(whole: tuple[str, ...], ranks: int) -> str:
    parts = [part for part in ("weights", "gradients", "optimizer") if part not in whole]
    if ranks == 1 or not parts:
        return ", whole on each" if ranks > 1 else ""
    return f", {' and '.join(parts) if len(parts) < 3 else 'all'} divided by {ranks}"


def _left_out(strategy: str, assumed: bool, offload: bool) -> tuple[str, ...]:
    out: tuple[str, ...] = _ALWAYS_OUT
    if strategy in ("zero3", "fsdp2"):
        out += ("the layers gathered for computing",)
    elif strategy != "ddp":
        out += ("DeepSpeed's communication buckets",)
    if strategy.startswith("zero"):  # stage_1_and_2.py: step; DeepSpeed's own estimate counts 4 bytes for it
        out += ("DeepSpeed's fp32 gradients while its optimizer steps (4 bytes per parameter, divided)",)
    if offload:  # estimate_zero2_model_states_mem_needs takes 4 bytes for each rank where that is more
        out += ("copies of the whole model that ranks load into RAM before they split it",)
    if assumed:
        out += (f"how many parameters the adapters have: taken as {ADAPTER_SHARE:.0%} of the model",)
    return out
