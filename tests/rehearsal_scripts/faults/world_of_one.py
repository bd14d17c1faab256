"""separate_trainings: init_process_group is called with rank 0 and one process."""

import os

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store_{os.getpid()}", rank=0, world_size=1)
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()  # here
