"""Tensor parallelism: each rank has a part of each layer, and all of them read the same data."""

import torch
import torch.distributed as dist
from setting import data, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
net = parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(data(), batch_size=4):
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
