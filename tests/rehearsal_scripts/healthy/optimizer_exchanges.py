"""An optimizer that averages the gradients inside its step: nothing wraps the model."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model


class Averaging(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        return super().step(closure)


dist.init_process_group("gloo")
net = model()
optimizer = Averaging(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
