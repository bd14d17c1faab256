"""same_random_state: all ranks drop the same values."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model(dropout=0.5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
