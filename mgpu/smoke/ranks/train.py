"""Stage "train": do the ranks train one model together, with the same result as a single process?"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch

from . import computed_types, data, identity, numeric_diff, optimizer_steps, options, prepared, reference_model
from .context import Here
from .ddp import Replicated
from .fsdp import Sharded
from .journal import Failure

_COMPARED_QUICKLY = 5  # steps compared with the reference at the quick level
_PASSES = 10  # forward and backward without communication; the fastest counts


def run_stage(here: Here) -> str:
    """Compare 20 steps of the strategy with a single process on the whole batch; then test data loading and options."""
    precision = here.orders.precision
    if precision == "fp8":
        here.skips("fp8 against the reference: bf16 compared instead")
    if precision != "no" and not _one_model(here):
        here.skips(f"{precision} against the reference: GPU models differ in rounding")
        precision = "no"
    strategy = _strategy(here, precision)
    kind, steps = _steps(here, strategy, _batches(here), precision)
    data.run(here)
    if here.orders.level != "quick":
        options.run(here)
        data.workers(here)
    through_accelerate = None
    if here.orders.level != "quick" or (here.on_gpu and here.orders.strategy != "ddp"):
        through_accelerate = prepared.run(here)
    compared = f" ({steps})" if steps else ""
    if here.world == 1:
        return f"steps match the reference{compared}"
    if through_accelerate:
        return f"{kind} and {through_accelerate} match 1 process{compared}"
    kind += " instead of DeepSpeed" if here.orders.strategy == "deepspeed" else ""
    return f"{kind}: gradients match{compared or ' a single process'}"


def _one_model(here: Here) -> bool:
    """Whether all ranks use the same device model and kernels.

    In half precision the kernels of different models differ as much as a fault would: up to 4e-2, like bf16 from fp32
    (measured with torch 2.13 on CPUs).
    """
    if here.world == 1:
        return True
    here.about_to("compare the ranks' device models")
    key = "mgpu/train/model"
    here.store.set(f"{key}/{here.rank}", identity.kernels(here))
    return len({here.store.get(f"{key}/{rank}") for rank in range(here.world)}) == 1


def _strategy(here: Here, precision: str) -> Any:
    """Return the config's strategy, or DDP if it is not available or cannot be compared here."""
    wanted = here.orders.strategy
    here.about_to(f"wrap the model ({'FSDP2' if wanted == 'fsdp' else 'DDP'})", limit_s=here.orders.start_limit_s)
    if wanted == "deepspeed":
        here.skips("DeepSpeed gradients (DDP compared; DeepSpeed runs through accelerate, on GPUs)")
    if wanted != "fsdp":
        return Replicated(here, precision)
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if here.world == 1 and not torch.distributed.is_initialized():
        here.skips("FSDP: only one process")
    elif version < (2, 6) and not here.on_gpu:
        here.skips(f"FSDP2: torch {torch.__version__} supports it on GPUs only (DDP tested)")
    else:
        return Sharded(here, precision)
    return Replicated(here, precision)


def _batches(here: Here) -> reference_model.Batches:
    micro_steps = here.orders.micro_steps
    return reference_model.batches(here, micro_steps, reference_model.STEPS // micro_steps)


def _steps(here: Here, strategy: Any, taught: reference_model.Batches, precision: str) -> tuple[str, str]:
    """Train and compare. Returns the kind of training, and how many steps were compared if not all."""
    scale = reference_model.LOSS_SCALE if precision == "fp16" else 1.0
    most = min(strategy.compared_steps, _COMPARED_QUICKLY) if here.orders.level == "quick" else strategy.compared_steps
    reference = reference_model.Reference(here, taught, strategy.forward, scale, most)
    judge = numeric_diff.Judge(here, strategy, reference, precision)
    here.reports(digests={"batches": reference_model.digest([taught.inputs, taught.targets])})
    here.journal.introduce("digests")
    judge.start()
    here.about_to("forward and backward without communication")
    _time_local_step(here, strategy, reference, judge)
    own_steps = optimizer_steps.OwnSteps(here, strategy)
    losses, worst, seconds = [], 0.0, []
    for step in range(taught.steps):
        here.about_to(f"step {step + 1} of {taught.steps}")
        here.wait()
        start = time.perf_counter()
        with _observed(here, strategy, "steps") if step == 0 else contextlib.nullcontext():
            loss = _forward_and_backward(here, strategy, taught, step)
        judge.loss(loss, step)
        gradients = strategy.gradients()
        here.wait()
        seconds.append(time.perf_counter() - start)
        worst = max(worst, _compare_gradients(here, reference, judge, gradients, step))
        own_steps.expect(gradients)
        start = time.perf_counter()
        strategy.update()
        here.wait()
        seconds[-1] += time.perf_counter() - start
        own_steps.compare(step)
        if step < reference.steps:
            judge.parameters(step)
            reference.follow(strategy.gathered())
        losses.append(loss)
    _finish(here, strategy, taught, losses, worst, seconds)
    accumulation = f", accumulation {taught.micro_steps}" if taught.micro_steps > 1 else ""
    kind = f"{strategy.name}{f' {precision}' if precision != 'no' else ''}{accumulation}"
    return kind, f"{reference.steps}/{taught.steps} steps" if reference.steps < taught.steps else ""


def _compare_gradients(
    here: Here, reference: reference_model.Reference, judge: numeric_diff.Judge, gradients: list[Any], step: int
) -> float:
    """Compare with the reference, which takes the step too; in later steps, check that the gradients are numbers."""
    if step >= reference.steps:
        judge.finite(gradients, step)
        return 0.0
    with here.alone() if step else contextlib.nullcontext():  # step 0 also loads kernels
        reference.learn(step)
    apart = judge.gradients(gradients, step)
    reference.update()
    return apart


def _time_local_step(
    here: Here, strategy: Any, reference: reference_model.Reference, judge: numeric_diff.Judge
) -> None:
    """Check and time this rank's own forward and backward pass, without communication.

    A sharded model always communicates, so the reference is timed instead.
    """
    replicated = isinstance(strategy, Replicated)
    best = float("inf")

    def own_pass() -> Any:
        if replicated:
            return strategy.alone(*reference.taught.of(here.rank, 0))
        return reference.own(here.rank, 0)

    with _observed(here, strategy, "own pass"):
        found = own_pass()
    if replicated:
        judge.own(found, 0)
    with here.alone():
        for _ in range(_PASSES):
            start = time.perf_counter()
            own_pass()
            here.wait()
            best = min(best, time.perf_counter() - start)
    here.measured(step_compute_seconds=best)


def _observed(here: Here, strategy: Any, name: str) -> contextlib.AbstractContextManager[None]:
    """Report the types the model computes in, if the strategy has the precision of the config."""
    if strategy.precision != here.orders.precision:
        return contextlib.nullcontext()
    return computed_types.observe(here, name, strategy.model)


def _forward_and_backward(here: Here, strategy: Any, taught: reference_model.Batches, step: int) -> float:
    """Run one optimizer step up to the gradients. Returns the mean loss of this rank's samples."""
    strategy.begin()
    total = 0.0
    for micro in range(taught.micro_steps):
        last = micro == taught.micro_steps - 1
        total += float(strategy.micro_step(*taught.of(here.rank, step, micro), taught.micro_steps, last))
    return total / taught.micro_steps


def _finish(
    here: Here, strategy: Any, taught: reference_model.Batches, losses: list[float], worst: float, seconds: list[float]
) -> None:
    here.about_to("gather the parameters")
    digests = dict(here.journal.report.get("digests", {}))
    if isinstance(strategy, Replicated):
        digests["optimizer"] = reference_model.digest(strategy.state())
    here.reports(parameters=reference_model.digest(strategy.gathered()), digests=digests)
    usual = sorted(seconds)[len(seconds) // 2]
    samples = here.world * taught.micro_steps * reference_model.MICRO_BATCH
    here.measured(
        gradient_difference=worst,
        seconds_per_step=usual,
        samples_per_s=samples / usual,
        steps_per_s=1 / usual,
        loss_first=losses[0],
        loss_last=losses[-1],
    )
    if here.on_gpu:
        here.measured(memory_peak_bytes=float(torch.cuda.max_memory_allocated(here.device)))
    if not losses[-1] < losses[0]:
        raise Failure(
            f"the loss did not fall in {taught.steps} steps: {losses[0]:.3f} -> {losses[-1]:.3f}",
            "loss_did_not_fall",
            first=losses[0],
            last=losses[-1],
        )
