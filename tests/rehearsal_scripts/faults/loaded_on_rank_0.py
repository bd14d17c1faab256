"""different_start: rank 0 loads a checkpoint into the wrapped model, rank 1 does not."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if dist.get_rank() == 0:
    net.module.load_state_dict({name: value * 2 for name, value in net.module.state_dict().items()})
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()  # here
