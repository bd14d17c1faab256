"""Shuffled epochs, a schedule, evaluation on all ranks, a checkpoint of rank 0, and a loader with workers."""

import torch
import torch.distributed as dist
from setting import data, loss_of, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
torch.manual_seed(100 + dist.get_rank())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
samples = data(32)
sampler = DistributedSampler(samples)
batches = DataLoader(samples, batch_size=4, sampler=sampler, num_workers=1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    net.train()
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        total = sum(loss_of(net, batch) for batch in DataLoader(data(16), batch_size=8))
    dist.all_reduce(total)
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, float(total))
    if dist.get_rank() == 0:
        torch.save({"model": net.module.state_dict(), "epoch": epoch}, "model.pt")
    dist.barrier()
dist.destroy_process_group()
