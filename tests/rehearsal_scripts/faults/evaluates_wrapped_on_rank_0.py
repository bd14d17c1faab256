"""collectives_differ: rank 0 evaluates the wrapped model, whose buffers DDP sends."""

import torch
import torch.distributed as dist
from setting import loader, loss_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader(batch=16)):
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
    if dist.get_rank() == 0 and number == 1:
        with torch.no_grad():
            print(nn.functional.cross_entropy(net(batch[0]), batch[1]))  # here
