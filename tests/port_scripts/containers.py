"""Models in a dict, optimizers in a list, a weighted sampler and one of its own."""
import itertools
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Sampler, TensorDataset, WeightedRandomSampler

device = "cuda" if torch.cuda.is_available() else "cpu"


def seed_everything(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class EverySecond(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        n = len(self.data)
        return iter([*range(0, n, 2), *range(1, n, 2)])

    def __len__(self):
        return len(self.data)


seed_everything(4)
x = torch.randn(80, 4)
y = (x[:, 0] > 0.5).long()
weights = torch.where(y == 1, 3.0, 1.0)
data = TensorDataset(x, y)
order = torch.Generator().manual_seed(9)
loader = DataLoader(data, batch_size=16, sampler=WeightedRandomSampler(weights, 64, replacement=True, generator=order))
ordered = DataLoader(data, batch_size=16, sampler=EverySecond(data))
models = {"body": nn.Linear(4, 6), "head": nn.Linear(6, 2)}
for name in models:
    models[name] = models[name].to(device)
optimizers = [optim.SGD(m.parameters(), lr=0.1) for m in models.values()]
for epoch in range(2):
    for batch in (loader, ordered):
        for xb, yb in batch:
            xb, yb = xb.to(device), yb.to(device)
            out = models["head"](torch.tanh(models["body"](xb)))
            loss = F.cross_entropy(out, yb)
            for opt in optimizers:
                opt.zero_grad()
            loss.backward()
            for opt in optimizers:
                opt.step()
        print(epoch, f"{loss.item():.6f}")
torch.save({k: m.state_dict() for k, m in models.items()}, "models.pt")
