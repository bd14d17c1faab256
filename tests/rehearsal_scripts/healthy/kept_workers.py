"""Workers of a loader that are kept for the next epoch."""

import torch
import torch.distributed as dist
from setting import data, loss_of, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
samples = data(24)
sampler = DistributedSampler(samples)
batches = DataLoader(samples, batch_size=4, sampler=sampler, num_workers=1, persistent_workers=True)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
