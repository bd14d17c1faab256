"""DeepSpeed is requested; accelerate trains with DDP on CPU ranks, and the report must say so."""

import os

import torch
from accelerate import Accelerator
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"  # as Accelerator(deepspeed_plugin=...) does, which imports DeepSpeed
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer, batches = accelerator.prepare(net, optimizer, DataLoader(data(), batch_size=4))
for batch in batches:
    optimizer.zero_grad()
    accelerator.backward(loss_of(net, batch))
    optimizer.step()
