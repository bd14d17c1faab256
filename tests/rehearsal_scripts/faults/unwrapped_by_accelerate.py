"""gradients_differ_between_ranks: the loop trains what unwrap_model returns."""

import torch
from accelerate import Accelerator
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
batches = DataLoader(data(), batch_size=4, shuffle=True)
net, optimizer, batches = accelerator.prepare(net, optimizer, batches)
inner = accelerator.unwrap_model(net)
for batch in batches:
    accelerator.backward(loss_of(inner, batch))  # here
    optimizer.step()
    optimizer.zero_grad()
