"""Rung "train": do the ranks train one model, and the same that one process would?"""

from __future__ import annotations

import hashlib
import time
from typing import Any

from .here import Here
from .journal import Failure

STEPS = 20  # training steps; enough for a wrong gradient to show in the parameters
MICRO_BATCH = 4
# Largest difference between a DDP gradient and the single-process reference in fp32, relative to the largest gradient
# of the parameter: the sums run in another order, nothing else differs. Measured on gloo CPU ranks: 7e-7 with 2 ranks,
# 8e-6 with 4 and 8; one rank of 2 that scales its gradient by 1.01 gives 1e-2, a wrong shard more.
GRADIENT_TOLERANCE = 1e-4


def climb(here: Here) -> str:
    """20 steps of DDP beside the same steps of one process on the whole batch: gradients and parameters must agree."""
    torch, device, rank, world = here.torch, here.device, here.rank, here.world
    from torch import nn

    def model() -> Any:
        torch.manual_seed(7)
        return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 10)).to(device)

    generator = torch.Generator().manual_seed(11)
    inputs = torch.randn(STEPS, world * MICRO_BATCH, 32, generator=generator).to(device)
    targets = torch.randint(0, 10, (1, world * MICRO_BATCH), generator=generator).expand(STEPS, -1).to(device)
    inputs = inputs * 0.1 + inputs[0]  # the same samples with noise, so that the loss has to fall
    reference, trained = model(), model()
    if world > 1:
        devices = [device.index] if here.on_gpu else None
        here.about_to("wrap the model in DDP")
        trained = nn.parallel.DistributedDataParallel(trained, device_ids=devices)
    loss_of = nn.CrossEntropyLoss()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.9) for m in (reference, trained)]
    losses, worst = [], 0.0
    mine = slice(rank * MICRO_BATCH, (rank + 1) * MICRO_BATCH)
    start = time.monotonic()
    for step in range(STEPS):
        here.about_to(f"step {step + 1} of {STEPS}")
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(reference(inputs[step]), targets[step])
        loss.backward()
        loss_of(trained(inputs[step, mine]), targets[step, mine]).backward()
        for ours, theirs in zip(trained.parameters(), reference.parameters(), strict=True):
            scale = max(float(theirs.grad.abs().max()), 1e-3)
            worst = max(worst, float((ours.grad - theirs.grad).abs().max()) / scale)
        if not worst <= GRADIENT_TOLERANCE:
            raise Failure(
                f"step {step + 1}: gradients differ from the single-process reference by {worst:.1e}",
                "gradients_differ", difference=worst, tolerance=GRADIENT_TOLERANCE, step=step + 1,
            )  # fmt: skip
        for optimizer in optimizers:
            optimizer.step()
        losses.append(float(loss))
    seconds = time.monotonic() - start
    state = b"".join(p.detach().cpu().numpy().tobytes() for p in trained.parameters())
    here.reports(parameters=hashlib.sha256(state).hexdigest()[:16])
    here.measured(steps_per_s=STEPS / seconds, gradient_difference=worst)
    if not losses[-1] < losses[0]:
        raise Failure(
            f"the loss did not fall in {STEPS} steps: {losses[0]:.3f} -> {losses[-1]:.3f}", "loss_did_not_fall"
        )
    kind = "DDP" if world > 1 else "one process"
    return f"{STEPS} steps ({kind}), loss {losses[0]:.2f} -> {losses[-1]:.2f}, gradients as on one process"
