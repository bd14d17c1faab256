"""script_failed: a layer is not used, and DDP does not look for unused parameters."""

import torch
import torch.distributed as dist
from setting import loader
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        return self.used(x)


dist.init_process_group("gloo")
net = DistributedDataParallel(Half())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(batch[0]), batch[1]).backward()  # here
    optimizer.step()
