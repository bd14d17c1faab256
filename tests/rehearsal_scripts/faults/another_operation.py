"""collectives_differ: rank 0 takes the sum, rank 1 the maximum."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss = loss_of(net, batch)
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach(), dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM)  # here
