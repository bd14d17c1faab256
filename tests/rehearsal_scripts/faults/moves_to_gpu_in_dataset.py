"""script_failed: the dataset moves each sample to the GPU, also where there is none."""

import torch
import torch.distributed as dist
from setting import data, loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset


class OnGpu(Dataset):
    def __init__(self):
        self.samples = data()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return [one.cuda() for one in self.samples[index]]  # here


dist.init_process_group("gloo")
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader(OnGpu()):
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
