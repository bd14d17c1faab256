"""same_file_written: every rank prepares the data into one file."""

import os

import torch
import torch.distributed as dist
from setting import data, loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
missing = not os.path.exists("tokens.pt")
dist.barrier()
if missing:
    torch.save(data().tensors, "tokens.pt")  # here
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
