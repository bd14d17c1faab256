"""collectives_differ: each rank decides by its own loss what it exchanges."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader()):
    optimizer.zero_grad()
    loss = loss_of(net, batch)
    loss.backward()
    optimizer.step()
    if loss.item() < 100 * dist.get_rank() and number == 3:
        dist.all_reduce(torch.zeros(5))  # here
