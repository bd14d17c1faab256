"""same_data: the loader is not prepared by accelerate, and all ranks have one seed."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
set_seed(3)
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
net, optimizer = accelerator.prepare(net, optimizer)
for batch in DataLoader(data(), batch_size=4, shuffle=True):  # here
    accelerator.backward(loss_of(net, batch))
    optimizer.step()
    optimizer.zero_grad()
