"""same_file_written: every rank saves with safetensors."""

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader()):
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
    if number == 2:
        save_file(net.module.state_dict(), "model.safetensors")  # here
