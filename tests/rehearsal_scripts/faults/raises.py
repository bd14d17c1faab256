"""script_failed: rank 1 has a wrong shape."""

import torch
import torch.distributed as dist
from setting import loader, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number, batch in enumerate(loader()):
    if dist.get_rank() == 1 and number == 2:
        batch = [batch[0][:, :5], batch[1]]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(batch[0]), batch[1]).backward()  # here
    optimizer.step()
