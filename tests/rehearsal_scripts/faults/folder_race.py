"""script_failed: every rank creates the folder of the run."""

import os

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
for rank in range(dist.get_world_size()):
    if rank == dist.get_rank():
        os.makedirs("run_1")  # here
    dist.barrier()
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
