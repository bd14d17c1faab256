"""The model and the data of the rehearsed scripts. Their loops are in the scripts themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset


def model(dropout: float = 0.0) -> Any:
    """Return a model with the same parameters everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))


def data(size: int = 96) -> Any:
    """Return samples that differ from each other."""
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(size, 8, generator=generator), torch.randint(0, 2, (size,), generator=generator))


def loader(dataset: Dataset[Any] | None = None, batch: int = 4) -> Any:
    """Return a loader that divides the data among the ranks."""
    chosen = data() if dataset is None else dataset
    return DataLoader(chosen, batch_size=batch, sampler=DistributedSampler(chosen, seed=3))


def loss_of(wrapped: Any, batch: Any) -> Any:
    """Return the loss of a batch."""
    return nn.functional.cross_entropy(wrapped(batch[0]), batch[1])
