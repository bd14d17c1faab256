"""How much memory do the weights, gradients and optimizer of a model need on one GPU? Pure arithmetic.

This counts what stays allocated between two steps. Activations, the CUDA context and NCCL's buffers are not included:
they depend on batch, sequence length and driver. Every figure is a named constant with its source; tests compare those
for DDP and FSDP2 with real models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mgpu import quantities
from mgpu.text import counted

GIB: Final = 2**30
STRATEGY_NAMES: Final = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "fsdp2": "FSDP2"}
STRATEGIES: Final = tuple(STRATEGY_NAMES)
SPLITTING: Final = STRATEGIES[1:]  # all but DDP split something over the ranks, and can offload it
OPTIMIZERS: Final = ("adamw", "adam8bit", "sgd", "adafactor")
PRECISIONS: Final = ("no", "fp16", "bf16", "fp8")
TRAIN: Final = ("full", "lora", "qlora")

# Bytes per trained parameter.
FP32: Final = 4.0
HALF: Final = 2.0  # fp16 and bf16
# Adam keeps two fp32 averages; SGD one (with momentum); 8-bit Adam two of one byte (bitsandbytes; ml-engineering,
# "training/performance"). Adafactor keeps a row and a column of each matrix (Shazeer and Stern 2018, arXiv 1804.04235),
# almost nothing for a large one. Measured with torch 2.13: 0.01 to 0.04 bytes at widths of 1,024 down to 256.
STATES: Final = {"adamw": 8.0, "adam8bit": 2.0, "sgd": 4.0, "adafactor": 0.02}
# ZeRO keeps an fp32 copy of the weights with the optimizer, even if they are fp32 themselves: 12 = 4 + 8 with Adam
# (arXiv 1910.02054, K = 12). Measured with DeepSpeed 0.19.8 on two CPU ranks, bytes per parameter after a step, when
# stages 1 and 2 have freed the gradients: bf16 8, 8, 8 (stages 1, 2, 3), fp32 10, 10, 10.
MASTER: Final = FP32
# nf4 stores a weight in 4 bits, plus a 32-bit constant per block of 64 (bitsandbytes; QLoRA, arXiv 2305.14314).
NF4: Final = 0.5 + 4 / 64
ADAPTER_SHARE: Final = 0.01  # the default; rank-16 LoRA on every linear layer of a 7B model is about 0.6%
# DeepSpeed's own estimate for the host adds 50% for buffers (estimate_zero2_model_states_mem_needs).
DEEPSPEED_HOST_BUFFERS: Final = 1.5

# CUDA context 0.5 to 2 GiB, torch.distributed and NCCL 1 to 2 GiB (ml-engineering, "training/performance").
RESERVE_BYTES: Final = 3 * GIB
# Share of a GPU for weights, gradients and optimizer that leaves room for activations: a rule of thumb.
STATE_SHARE: Final = 0.70
MOST_GPUS: Final = 1024  # limit of the search for a sufficient number of GPUs

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
    formula: str  # bytes per parameter, as text
    not_counted: tuple[str, ...]
    source: str

    @property
    def total_bytes(self) -> int:
        """Weights, gradients and optimizer, as the papers' formulas count them."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def resident_bytes(self) -> int:
        """The same plus DDP's gradient buckets: 3.8 of 4 bytes measured, torch 2.13."""
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
    """Return the memory of each of `ranks` GPUs. Raises ValueError with a sentence if the combination is impossible."""
    _refuse(params, strategy, ranks, optimizer, precision, train, trainable, offload)
    zero = strategy.startswith("zero")
    half = zero and precision != "no"  # with fp8, accelerate has DeepSpeed train in bf16
    weight = HALF if half else FP32
    states = STATES[optimizer] + (MASTER if zero else 0.0)
    trained, assumed = _trainable_params(params, train, trainable)
    frozen = params if train != "full" else params - trained
    base = {"full": weight, "lora": FP32 if precision == "no" else HALF, "qlora": NF4}[train]

    weights, gradients, optimum = frozen * base + trained * weight, trained * weight, trained * states
    host = 0.0
    if offload:  # only sharding strategies can offload
        stays = weights if strategy in ("zero1", "zero2") else 0.0
        host = _moved_to_host(weights - stays, trained * FP32 if zero else gradients, optimum, zero=zero)
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
        + _describe_sharding(whole, ranks),
        not_counted=_left_out(strategy, assumed, offload),
        source=_ZERO_SOURCE if zero else _NATIVE_SOURCE,
    )


def _moved_to_host(weights: float, gradients: float, optimum: float, *, zero: bool) -> float:
    """Return the bytes on the host. DeepSpeed accumulates gradients in fp32 there, and adds buffers of its own."""
    return (weights + gradients + optimum) * (DEEPSPEED_HOST_BUFFERS if zero else 1.0)


def _formula(weight: float, states: float, optimizer: str, frozen: float | None) -> str:
    """Return bytes per trained parameter (its gradient as large as its weight) and per frozen one (None: none)."""
    formula = (
        f"{weight:g} + {weight:g} + {states:.3g} = {weight + weight + states:.3g} bytes per trained parameter "
        f"(weights + gradients + {optimizer})"
    )
    return formula if frozen is None else f"{formula}, {frozen:.3g} per frozen one"


def fits(need: Need, free_bytes: int) -> bool:
    """Return whether weights, gradients, optimizer and RESERVE_BYTES fit; there may be no room for activations."""
    return need.resident_bytes + RESERVE_BYTES <= free_bytes


def roomy(need: Need, free_bytes: int) -> bool:
    """Return whether they take at most STATE_SHARE of the free memory, which leaves room for activations."""
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
    """Return the smallest number of such GPUs on which the model fits; None if more than MOST_GPUS are needed."""
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
        if strategy == "ddp":  # more copies do not make each smaller
            return None
    return None


def what_fits(params: int, free_bytes: int, ranks: int, **kind: Any) -> str:
    """Return a way in which the model fits: split over these GPUs, offloaded, or over more of them; "" if none does.

    `kind`: optimizer, precision, train and trainable, as for `need`.
    """
    gpus = counted(ranks, "GPU")
    split = need(params, strategy="fsdp2", ranks=ranks, **kind)
    if ranks > 1 and fits(split, free_bytes):
        return f"FSDP2 on {gpus} ({gib(split.resident_bytes)} each)"
    enough = gpus_needed(params, free_bytes, strategy="fsdp2", **kind)
    more = f"FSDP2 on {enough} such GPUs" if enough is not None and enough > ranks else ""
    off = need(params, strategy="fsdp2", ranks=ranks, offload=True, **kind)
    offload = f"FSDP2 with CPU offload on {gpus} ({gib(off.host_bytes)} of RAM)" if fits(off, free_bytes) else ""
    return " or ".join(way for way in (more, offload) if way)


def gib(count: float) -> str:
    """Return bytes as text: "135 GiB", "4.2 GiB", "310 MiB"."""
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
        raise ValueError(f"{params} parameters: must be at least 1")
    if ranks < 1:
        raise ValueError(f"{ranks} ranks: must be at least 1")
    for what, given, allowed in (
        ("strategy", strategy, STRATEGIES),
        ("optimizer", optimizer, OPTIMIZERS),
        ("precision", precision, PRECISIONS),
        ("train", train, TRAIN),
    ):
        if given not in allowed:
            raise ValueError(f"{what} {given}: choose one of {', '.join(allowed)}")
    if trainable is not None and not 1 <= trainable <= params:
        raise ValueError(f"{trainable:,} trained parameters: must be from 1 to the model's {params:,}")
    if offload and strategy == "ddp":
        raise ValueError("DDP keeps everything on the GPU; only FSDP2 and ZeRO can offload to the host")


def _trainable_params(params: int, train: str, trainable: int | None) -> tuple[int, bool]:
    """Return how many parameters get gradients, and whether that is an assumption."""
    if trainable is not None:
        return trainable, False
    if train == "full":
        return params, False
    return max(1, round(params * ADAPTER_SHARE)), True


def _describe_sharding(whole: tuple[str, ...], ranks: int) -> str:
    parts = [part for part in ("weights", "gradients", "optimizer") if part not in whole]
    if ranks == 1 or not parts:
        return ", whole on each" if ranks > 1 else ""
    return f", {' and '.join(parts) if len(parts) < 3 else 'all'} divided by {ranks}"


def _left_out(strategy: str, assumed: bool, offload: bool) -> tuple[str, ...]:
    out: tuple[str, ...] = _ALWAYS_OUT
    if strategy in ("zero3", "fsdp2"):
        out += ("layers gathered for computation",)
    elif strategy != "ddp":
        out += ("DeepSpeed's communication buckets",)
    if strategy.startswith("zero"):  # stage_1_and_2.py: step; DeepSpeed's own estimate counts 4 bytes for it
        out += ("DeepSpeed's fp32 gradients during its optimizer step (4 bytes per parameter, divided)",)
    if offload:  # estimate_zero2_model_states_mem_needs uses 4 bytes per rank if that is more
        out += ("copies of the whole model in RAM before ranks split it",)
    if assumed:
        out += (f"the exact size of the adapters, assumed to be {ADAPTER_SHARE:.0%} of the model",)
    return out
