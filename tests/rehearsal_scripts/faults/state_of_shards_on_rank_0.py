"""collectives_differ: only rank 0 collects the sharded parameters."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
net = model()
fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
for number, batch in enumerate(loader()):
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
    if dist.get_rank() == 0 and number == 2:
        whole = {name: value.full_tensor() for name, value in net.state_dict().items()}  # here
        torch.save(whole, "model.pt")
