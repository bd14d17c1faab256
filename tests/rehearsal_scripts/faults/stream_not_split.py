"""same_data: an IterableDataset that every rank reads from its start."""

import torch
import torch.distributed as dist
from setting import data, loss_of, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        yield from data()


dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(Stream(), batch_size=4):  # here
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
