import torch
from torch.utils.data import DataLoader, TensorDataset


def get_loaders(batch_size):
    x = torch.randn(112, 6)
    y = (x.sum(1) > 0).long()
    train = DataLoader(TensorDataset(x[:80], y[:80]), batch_size=batch_size, shuffle=True)
    test = DataLoader(TensorDataset(x[80:], y[80:]), batch_size=8)
    return train, test
