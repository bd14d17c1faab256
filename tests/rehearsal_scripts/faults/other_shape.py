"""collectives_differ: the ranks gather tensors of different lengths."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
    found = [torch.zeros(3) for _ in range(2)]
    dist.all_gather(found, torch.zeros(3, dtype=torch.int32 if dist.get_rank() else torch.float32))  # here
