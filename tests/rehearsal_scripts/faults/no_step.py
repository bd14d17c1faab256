"""script_never_stepped: it only evaluates."""

import torch
import torch.distributed as dist
from setting import loader, loss_of, model

dist.init_process_group("gloo")
with torch.no_grad():
    print(sum(loss_of(model(), batch) for batch in loader()))
