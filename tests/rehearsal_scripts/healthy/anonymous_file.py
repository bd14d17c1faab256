"""Every rank makes a file without a name in one folder, as filelock 4 does to see whether the file system has locks."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
Path("locks").mkdir(exist_ok=True)
os.close(os.open("locks", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600))
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
