"""collectives_differ: the ranks reduce tensors of different lengths."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
    found = [torch.zeros(3 + dist.get_rank()) for _ in range(2)]
    dist.all_gather(found, torch.zeros(3 + dist.get_rank()))  # here
