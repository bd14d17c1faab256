import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.cell = nn.GRUCell(size, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        state = torch.zeros(x.size(0), 8)
        if torch.cuda.is_available():
            state = state.cuda()
        return self.head(self.cell(x, state))


def build_model(size):
    return Net(size)
