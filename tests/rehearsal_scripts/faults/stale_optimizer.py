"""optimizer_without_gradients: the optimizer is created before fully_shard, and has the old parameters."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()  # here
