"""A stream of samples, read with next() for a number of steps; logs and a checkpoint every few steps."""
import logging
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))

logging.basicConfig(level=logging.INFO, format="%(message)s")
if not accelerator.is_main_process:
    logging.disable(logging.INFO)
log = logging.getLogger(__name__)


class Stream(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(9)
        while True:
            x = torch.randn(4, generator=g)
            yield x, x.sum()[None]


def train(steps=8):
    torch.manual_seed(0)
    device = accelerator.device
    model = nn.Linear(4, 1)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    model, optimizer = accelerator.prepare(model, optimizer)
    loader = accelerator.prepare(DataLoader(Stream(), batch_size=8))
    batches = iter(loader)
    os.makedirs("checkpoints", exist_ok=True)
    for step in range(steps):
        x, y = next(batches)
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        warmup.step()
        if step % 4 == 3:
            accelerator.print("step", step, "weight %.6f" % accelerator.unwrap_model(model).weight.sum().item())
            accelerator.save(dict(step=step, model=accelerator.get_state_dict(model)), os.path.join("checkpoints", "last.pt"))


if __name__ == '__main__':
    train()
    accelerator.end_training()
