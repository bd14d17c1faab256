"""gradients_differ_between_ranks: of two models only one is wrapped."""

import itertools

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net, head = DistributedDataParallel(model()), torch.nn.Linear(2, 2)
with torch.no_grad():
    head.weight.copy_(torch.eye(2))
    head.bias.zero_()
optimizer = torch.optim.SGD(itertools.chain(net.parameters(), head.parameters()), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss = loss_of(lambda x: head(net(x)), batch)
    loss.backward()  # here
    optimizer.step()
