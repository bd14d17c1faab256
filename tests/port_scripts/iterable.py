"""A stream of samples, read with next() for a number of steps; logs and a checkpoint every few steps."""
import logging
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger(__name__)


class Stream(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(9)
        while True:
            x = torch.randn(4, generator=g)
            yield x, x.sum()[None]


def train(steps=8):
    torch.manual_seed(0)
    device = torch.device("cuda")  if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(4, 1)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    loader = DataLoader(Stream(), batch_size=8)
    batches = iter(loader)
    os.makedirs("checkpoints", exist_ok=True)
    for step in range(steps):
        x, y = next(batches)
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        warmup.step()
        if step % 4 == 3:
            print("step", step, "weight %.6f" % model.weight.sum().item())
            torch.save(dict(step=step, model=model.state_dict()), os.path.join("checkpoints", "last.pt"))


if __name__ == '__main__':
    train()
