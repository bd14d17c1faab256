"""gradients_differ_in_accumulation: also the last backward pass before a step is inside no_sync."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader(batch=2), 1):
    with net.no_sync():
        (loss_of(net, batch) / 2).backward()  # here
    if number % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()
