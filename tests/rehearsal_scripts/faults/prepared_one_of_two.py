"""gradients_differ_between_ranks: of two models only one is prepared by accelerate."""

import torch
from accelerate import Accelerator
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator()
torch.manual_seed(0)
net, head = model(), torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=0.1)
batches = DataLoader(data(), batch_size=4, shuffle=True)
net, optimizer, batches = accelerator.prepare(net, optimizer, batches)
for batch in batches:
    loss = loss_of(lambda x: head(net(x)), batch)
    accelerator.backward(loss)  # here
    optimizer.step()
    optimizer.zero_grad()
