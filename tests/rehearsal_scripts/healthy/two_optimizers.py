"""A generator and a discriminator, each with an optimizer, stepped alternately."""

import torch
import torch.distributed as dist
from setting import loader
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
generator, judge = (DistributedDataParallel(nn.Linear(8, outputs)) for outputs in (8, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
torch.manual_seed(1 + dist.get_rank())
for real, _ in loader():
    noise = torch.randn(len(real), 8)
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    both = torch.cat([real, generator(noise).detach()])
    loss = criterion(judge(both), torch.cat([ones, zeros]))
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    loss = criterion(judge(generator(noise)), ones)
    of_generator.zero_grad()
    loss.backward()
    of_generator.step()
