"""Run as `python -m pixels.train`: a package, with a Trainer class of its own."""
import torch
from pixels.core import Trainer
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from . import nets

OPTIMIZERS = {"sgd": optim.SGD, "adam": optim.Adam}


def main(kind="sgd"):
    torch.manual_seed(3)
    x = torch.randn(96, 4)
    y = x[:, :1] - x[:, 1:2]
    train = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True, drop_last=True)
    valid = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=16)
    model = nets.build(4)
    optimizer = OPTIMIZERS[kind](model.parameters(), lr=0.05)
    trainer = Trainer(model, nn.MSELoss(), optimizer, 2, train, valid)
    trainer.train()


if __name__ == "__main__":
    main()
