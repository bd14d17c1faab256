"""same_data: the loader has no sampler, and all ranks have one seed."""

import torch
import torch.distributed as dist
from setting import data, loss_of, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(data(), batch_size=4, shuffle=True):  # here
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
