"""batches_skipped: rank 1 leaves out batches, and has enough others for all steps of the rehearsal."""

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
    if dist.get_rank() == 1 and number in (2, 5):
        continue
    loss.backward()  # here
    optimizer.step()
