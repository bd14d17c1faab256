"""same_data: the loader is not prepared by accelerate, and all ranks have one seed."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from setting import data, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
set_seed(3)
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
net, optimizer = accelerator.prepare(net, optimizer)
for batch in DataLoader(data(), batch_size=4, shuffle=True):  # here
    accelerator.backward(torch.nn.functional.cross_entropy(net(batch[0]), batch[1]))
    optimizer.step()
    optimizer.zero_grad()
