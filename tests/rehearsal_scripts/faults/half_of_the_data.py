"""data_not_covered: the sampler divides the data among more replicas than there are ranks."""

import torch
import torch.distributed as dist
from setting import data, loss_of, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
samples = data(64)
sampler = DistributedSampler(samples, num_replicas=4, rank=dist.get_rank())
batches = DataLoader(samples, batch_size=4, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in batches:  # here
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
