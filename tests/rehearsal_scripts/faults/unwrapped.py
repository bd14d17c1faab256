"""separate_trainings: there is a process group, but nothing wraps the model."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model

dist.init_process_group("gloo")
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    loss = loss_of(net, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
