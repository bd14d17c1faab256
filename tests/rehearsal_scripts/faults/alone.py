"""separate_trainings: the script trains as on one GPU."""

import torch
from setting import data, loss_of, model
from torch.utils.data import DataLoader

net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(data(), batch_size=4, shuffle=True):
    loss = loss_of(net, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
