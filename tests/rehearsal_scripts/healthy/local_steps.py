"""Local SGD: each rank steps alone, and the parameters are averaged from time to time."""

import torch
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
net, optimizer, batches = accelerator.prepare(net, optimizer, DataLoader(data(), batch_size=4, shuffle=True))
with LocalSGD(accelerator=accelerator, model=net, local_sgd_steps=3) as local:
    for batch in batches:
        with accelerator.accumulate(net):
            accelerator.backward(loss_of(net, batch))
            optimizer.step()
            optimizer.zero_grad()
            local.step()
