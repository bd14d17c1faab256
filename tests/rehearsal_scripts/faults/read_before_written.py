"""script_failed: rank 1 loads a checkpoint that rank 0 has not saved yet."""

import time

import torch
import torch.distributed as dist
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
        if dist.get_rank() == 0:
            time.sleep(0.5)
            torch.save(net.module.state_dict(), "model.pt")
        net.module.load_state_dict(torch.load("model.pt"))  # here
