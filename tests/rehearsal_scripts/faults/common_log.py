"""same_file_appended: the logger of every rank appends to one file."""

import logging

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
logging.basicConfig(filename="train.log", level=logging.INFO)  # here
for batch in loader():
    optimizer.zero_grad()
    loss = loss_of(net, batch)
    loss.backward()
    optimizer.step()
    logging.info("loss %f", loss.item())
