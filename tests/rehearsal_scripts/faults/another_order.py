"""different_start: rank 1 adds its layers in another order."""

import torch
import torch.distributed as dist
from setting import loader, loss_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Towers(nn.Module):
    def __init__(self, names):
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(8, 2))

    def forward(self, x):
        return self.left(x) + self.right(x).tanh()


dist.init_process_group("gloo")
torch.manual_seed(0)
net = DistributedDataParallel(Towers(sorted({"left", "right"}, reverse=dist.get_rank() == 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()  # here
