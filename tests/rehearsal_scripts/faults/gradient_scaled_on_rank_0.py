"""gradients_differ_between_ranks: rank 0 divides the averaged gradients once more."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()  # here
    if dist.get_rank() == 0:
        for parameter in net.parameters():
            parameter.grad /= dist.get_world_size()
    optimizer.step()
