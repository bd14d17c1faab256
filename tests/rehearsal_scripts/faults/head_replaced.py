"""optimizer_without_gradients: the optimizer has the parameters of a head that was replaced."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = model()
optimizer = torch.optim.SGD(net[3].parameters(), lr=0.1)
net[3] = torch.nn.Linear(16, 2)
net = DistributedDataParallel(net)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()  # here
