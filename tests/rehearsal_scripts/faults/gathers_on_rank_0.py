"""collectives_differ: only the main process gathers the metric."""

import torch
from accelerate import Accelerator
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
net, optimizer, batches = accelerator.prepare(net, optimizer, DataLoader(data(), batch_size=4, shuffle=True))
for number, batch in enumerate(batches):
    loss = loss_of(net, batch)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if accelerator.is_main_process and number == 2:
        print(accelerator.gather(loss.detach()).mean())  # here
