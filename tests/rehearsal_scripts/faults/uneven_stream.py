"""batches_differ: the stream of rank 0 ends later than that of rank 1."""

import torch
import torch.distributed as dist
from setting import data, loss_of, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        begin, end = ((0, 20), (20, 32))[dist.get_rank()]
        yield from [data()[number] for number in range(begin, end)]


dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for batch in DataLoader(Stream(), batch_size=4):  # here
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
    dist.barrier()
