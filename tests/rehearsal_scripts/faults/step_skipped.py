"""rank_steps_differ: one rank skips the optimizer step for a loss of its own."""

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
    if dist.get_rank() == 1 and number in (1, 2):
        continue
    optimizer.step()  # here
