"""loss_far_apart: rank 1 sums its loss."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
for batch in loader():
    optimizer.zero_grad()
    (loss_of(net, batch) * (1 + 99 * dist.get_rank())).backward()  # here
    optimizer.step()
