"""script_failed: rank 1 has a wrong shape."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader()):
    if dist.get_rank() == 1 and number == 2:
        batch = [batch[0][:, :5], batch[1]]
    optimizer.zero_grad()
    loss_of(net, batch).backward()  # here
    optimizer.step()
