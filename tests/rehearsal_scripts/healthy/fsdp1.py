"""FullyShardedDataParallel: each rank has its part of the flat parameters."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
net = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    net.clip_grad_norm_(1.0)
    optimizer.step()
