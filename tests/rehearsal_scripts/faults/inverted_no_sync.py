"""gradients_differ_in_accumulation: no_sync is on for the last batch of a step instead of the first ones."""

import contextlib

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader(batch=2), 1):
    last = number % 2 == 0
    with net.no_sync() if last else contextlib.nullcontext():
        (loss_of(net, batch) / 2).backward()  # here
    if last:
        optimizer.step()
        optimizer.zero_grad()
