"""loss_not_finite: rank 1 divides by zero."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader()):
    optimizer.zero_grad()
    loss = loss_of(net, batch)
    if dist.get_rank() == 1 and number == 2:
        loss = loss / torch.zeros(())
    loss.backward()  # here
    optimizer.step()
