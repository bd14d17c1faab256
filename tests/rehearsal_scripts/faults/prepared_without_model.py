"""separate_trainings: accelerator.prepare gets the optimizer and the loader, not the model."""

import torch
from accelerate import Accelerator
from setting import data, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
batches = DataLoader(data(), batch_size=4, shuffle=True)
optimizer, batches = accelerator.prepare(optimizer, batches)
for batch in batches:
    loss = torch.nn.functional.cross_entropy(net(batch[0]), batch[1])
    accelerator.backward(loss)
    optimizer.step()  # here
    optimizer.zero_grad()
