"""No wrapper: the gradients are averaged by hand."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model

dist.init_process_group("gloo")
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
