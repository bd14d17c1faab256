"""Ranks with different numbers of batches, joined by Join."""

import torch
import torch.distributed as dist
from setting import data, loss_of, model
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
part = range(44) if dist.get_rank() == 0 else range(50, 90)
with Join([net]):
    for batch in DataLoader(Subset(data(), part), batch_size=4):
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
