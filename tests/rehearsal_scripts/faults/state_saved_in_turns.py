"""same_file_written: every rank calls save_pretrained-like code of its own with one path."""

import json

import torch
from accelerate import Accelerator
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
net, optimizer, batches = accelerator.prepare(net, optimizer, DataLoader(data(), batch_size=4, shuffle=True))
for number, batch in enumerate(batches):
    accelerator.backward(loss_of(net, batch))
    optimizer.step()
    optimizer.zero_grad()
    if number == 2:
        with open("state.json", "w") as state:  # here
            json.dump({"step": number}, state)
