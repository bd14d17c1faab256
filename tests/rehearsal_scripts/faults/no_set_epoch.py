"""sampler_without_set_epoch: every epoch has one order."""

import torch
import torch.distributed as dist
from setting import data, loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batches = loader(data(24))
for _ in range(4):
    for batch in batches:  # here
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
