"""Training steps like in a user's script: model, optimizer and loader through accelerate, with the config's plugins.

Only here FSDP1, FSDP2 and DeepSpeed run with the settings of the config.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from . import computed_types, reference_model, store_sync
from .context import Here
from .journal import Failure

_STEPS, _STEPS_ACCUMULATED = 5, 2
_RATE = 1e-2
# Largest relative difference of a loss from the single-process reference in fp32. Measured on 1 to 4 gloo CPU ranks,
# torch 2.13: see tests/test_smoke_training.py. In low precision the activations differ in the third digit.
_TOLERANCE = {"no": 1e-3}
_LOW_PRECISION_TOLERANCE = 0.1
_TYPES = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED"}
_NAMES = {"fsdp": "accelerate", "deepspeed": "DeepSpeed"}  # in the detail of the stage


def run(here: Here) -> str | None:
    """Train a few steps; every loss must match a single process on the whole batch.

    Returns a name for the detail of the stage if the config's FSDP or DeepSpeed was tested.
    """
    accelerator, wanted = here.accelerator, _TYPES.get(here.orders.strategy)
    if accelerator is None:
        here.skips("steps through accelerate: it did not start the ranks")
        return None
    found = str(accelerator.distributed_type.value)
    if reason := _skip_reason(here, accelerator, found):
        here.skips(f"steps through accelerate: {reason}")
        return None
    if wanted and found != wanted and here.on_gpu:
        raise Failure(
            f"the config asks for {wanted}, accelerate trains with {found}",
            "strategy_not_applied",
            wanted=wanted,
            found=found,
        )
    if wanted and found != wanted:
        here.skips(f"{wanted} through accelerate: GPUs only, these ranks use {found}")
        _steps(here, accelerator, "accelerate")
        return None
    _steps(here, accelerator, "accelerate" + (f", {wanted}" if wanted else ""))
    return _NAMES[here.orders.strategy] if wanted else None


def _skip_reason(here: Here, accelerator: Any, found: str) -> str | None:
    """Return why the test's own model cannot be trained with this config; None if it can."""
    if found == "MEGATRON_LM":
        return "Megatron-LM only trains its own models and data"
    if here.orders.precision == "fp8":
        return "fp8 kernels need blocks of 16 samples, more than the test has"
    parallel = getattr(accelerator, "parallelism_config", None)
    ways = ("tp", "cp", "sp")
    used = [f"{way}_size {size}" for way in ways if (size := getattr(parallel, f"{way}_size", 1) or 1) > 1]
    if used:
        return f"the test model does not support {', '.join(used)}"
    return None


def _micro_steps(accelerator: Any) -> int:
    """Return the gradient accumulation steps; DeepSpeed's own config has priority."""
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    steps = plugin.deepspeed_config.get("gradient_accumulation_steps") if plugin is not None else None
    return steps if isinstance(steps, int) else int(accelerator.gradient_accumulation_steps)


def _compiles(accelerator: Any) -> bool:
    """Whether the first step waits for a compiler."""
    plugin = getattr(accelerator.state, "dynamo_plugin", None)
    return plugin is not None and str(plugin.backend.value).upper() != "NO"


def _steps(here: Here, accelerator: Any, name: str) -> None:
    micros = _micro_steps(accelerator)
    steps = _STEPS if micros == 1 else _STEPS_ACCUMULATED
    taught = reference_model.batches(here, micros, steps)
    here.about_to(f"{name}: prepare", limit_s=here.orders.start_limit_s)  # DeepSpeed compiles what it needs
    loader = _loader(taught, steps)
    plain = reference_model.model(here).cpu()
    optimizer, known = _optimizer(accelerator, plain)
    _name_the_block(here, accelerator)
    model, optimizer, loader = accelerator.prepare(plain, optimizer, loader)
    samples: list[int] = []
    sums = [0.0] * steps
    batches = iter(loader)
    compiles = here.orders.start_limit_s if _compiles(accelerator) else None
    for number in range(steps * micros):
        part = f", part {number % micros + 1}" if micros > 1 else ""
        here.about_to(f"{name}: step {number // micros + 1} of {steps}{part}", compiles if number < micros else None)
        inputs, targets, numbers = next(batches)
        samples += numbers.tolist()
        with _observed(here, model, compiles is None and number == 0), accelerator.accumulate(model):
            _must_exchange(here, accelerator, number, micros)
            loss = reference_model.loss_of(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        sums[number // micros] += float(loss.detach()) / micros
    here.about_to(f"{name}: rest of the DataLoader")
    samples += [number for batch in batches for number in batch[2].tolist()]
    here.measured(prepared_samples=steps * micros * here.world * reference_model.MICRO_BATCH)
    here.reports(samples={**here.journal.report.get("samples", {}), "prepared": samples})
    _compare(here, taught, sums, known and not _clips(accelerator))
    accelerator.free_memory()


def _observed(here: Here, model: Any, wanted: bool) -> AbstractContextManager[None]:
    return computed_types.observe(here, "accelerate", model) if wanted else nullcontext()


def _must_exchange(here: Here, accelerator: Any, number: int, micros: int) -> None:
    """Raise Failure if accelerate would exchange the gradients of another micro-batch than the last of each step.

    DeepSpeed counts the micro-batches itself.
    """
    wanted, found = number % micros == micros - 1, bool(accelerator.sync_gradients)
    if found != wanted and getattr(accelerator.state, "deepspeed_plugin", None) is None:
        raise Failure(
            f"accelerate {'exchanges' if found else 'does not exchange'} gradients after micro-batch "
            f"{number % micros + 1} of {micros}",
            "accumulation_wrong",
            suspects=[here.rank],
        )


def _loader(taught: reference_model.Batches, steps: int) -> Any:
    """Return a loader of all ranks' samples and their numbers, in the order in which accelerate distributes batches."""
    inputs = taught.inputs.reshape(-1, reference_model.WIDTH).cpu()
    targets = taught.targets.expand(steps, *taught.targets.shape).reshape(-1).cpu()
    return DataLoader(TensorDataset(inputs, targets, torch.arange(len(inputs))), batch_size=reference_model.MICRO_BATCH)


def _optimizer(accelerator: Any, plain: Any) -> tuple[Any, bool]:
    """Return AdamW, or the optimizer of DeepSpeed's config, and whether its results are known."""
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    if plugin is not None and "optimizer" in plugin.deepspeed_config:
        from accelerate.utils import DummyOptim

        return DummyOptim(plain.parameters(), lr=_RATE), False
    return torch.optim.AdamW(plain.parameters(), lr=_RATE), True


def _clips(accelerator: Any) -> bool:
    """Whether DeepSpeed clips the gradients; accelerate uses 1.0 for "auto"."""
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    return bool(plugin is not None and plugin.deepspeed_config.get("gradient_clipping"))


def _name_the_block(here: Here, accelerator: Any) -> None:
    """Wrap the test model's blocks: the config names layers of the user's model."""
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    names = getattr(plugin, "transformer_cls_names_to_wrap", None)
    if plugin is not None and names and "Block" not in names:
        plugin.transformer_cls_names_to_wrap = ["Block"]
        here.skips(f"wrapping {', '.join(names)}: the test model has its own blocks")


def _compare(here: Here, taught: reference_model.Batches, found: list[float], known: bool) -> None:
    """Compare the losses with a single process. fp16 may skip a step while it adjusts its loss scale."""
    expected = _reference_losses(here, taught, len(found))
    tolerance = _TOLERANCE.get(here.orders.precision, _LOW_PRECISION_TOLERANCE)
    compared = len(found) if known and here.orders.precision != "fp16" else 1
    if compared < len(found):
        here.skips("losses through accelerate after step 1 (fp16 or DeepSpeed settings)")
    apart = [abs(ours - theirs) / max(theirs, 0.1) for ours, theirs in zip(found, expected, strict=True)]
    wrong = [
        step
        for step, ours in enumerate(found)
        if not math.isfinite(ours) or (step < compared and not apart[step] <= tolerance)
    ]
    if wrong:
        step = wrong[0]
        ours = found[step]
        # A rank with wrong parameters has a wrong loss at once, the others one step later.
        others = store_sync.reports_of_ranks(here, "prepared", str(step + 1))
        raise Failure(
            f"loss of step {step + 1} with accelerate: {ours:.4f}, on a single process: {expected[step]:.4f}",
            "prepared_differs",
            step=step + 1,
            found=ours if math.isfinite(ours) else str(ours),
            wanted=expected[step],
            first_wrong=others,
        )
    here.measured(prepared_difference=max(apart[:compared], default=0.0))


def _reference_losses(here: Here, taught: reference_model.Batches, steps: int) -> list[float]:
    """Return the losses of this rank's samples if a single process trains on all samples in fp32."""
    net = reference_model.model(here)
    optimizer = torch.optim.AdamW(net.parameters(), lr=_RATE)
    losses = []
    for step in range(steps):
        with torch.no_grad():
            scores = net(taught.inputs[step, :, here.rank].reshape(-1, reference_model.WIDTH))
            losses.append(float(reference_model.loss_of(scores, taught.targets[:, here.rank].reshape(-1))))
        optimizer.zero_grad()
        reference_model.loss_of(
            net(taught.inputs[step].reshape(-1, reference_model.WIDTH)), taught.targets.reshape(-1)
        ).backward()
        optimizer.step()
    return losses
