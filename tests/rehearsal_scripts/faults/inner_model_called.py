"""gradients_differ_between_ranks: the loop calls the model inside the wrapper."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net.module, batch).backward()  # here
    optimizer.step()
