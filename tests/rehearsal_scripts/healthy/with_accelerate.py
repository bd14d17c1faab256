"""An accelerate loop with accumulation, gathered metrics and a validation with larger batches."""

import torch
from accelerate import Accelerator
from setting import data, loss_of, model
from torch.utils.data import DataLoader

accelerator = Accelerator(gradient_accumulation_steps=2)
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
batches = DataLoader(data(), batch_size=4, shuffle=True)
validation = DataLoader(data(), batch_size=16)
net, optimizer, batches, validation = accelerator.prepare(net, optimizer, batches, validation)
for epoch in range(4):
    for batch in batches:
        with accelerator.accumulate(net):
            loss = loss_of(net, batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.gather(loss.detach())
    with torch.no_grad():
        for batch in validation:
            loss_of(net, batch)
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(net).state_dict(), "model.pt")
accelerator.end_training()
