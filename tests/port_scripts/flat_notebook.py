#!/usr/bin/env python
# coding: utf-8
"""A notebook exported to a script: no functions, no main guard, early stopping, the best model reloaded."""
# In[1]:
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH_SIZE = 8
# In[2]:
features = torch.randn(80, 6)
labels = (features.sum(1) > 0).long()
train_set, valid_set = random_split(TensorDataset(features, labels), [64, 16])
train_dl = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
valid_dl = DataLoader(valid_set, batch_size=BATCH_SIZE)
# In[3]:
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.0), nn.Linear(12, 2)).to(DEVICE)
loss_fn = nn.CrossEntropyLoss()
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
best, bad = float("inf"), 0
# In[4]:
if not os.path.exists("runs"):
    os.makedirs("runs")
for epoch in range(4):
    model.train()
    running, hits, seen = 0.0, 0, 0
    for xb, yb in train_dl:
        xb, yb = xb.to(DEVICE), yb.to(DEVICE)
        out = model(xb)
        loss = loss_fn(out, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item() * xb.size(0)  # weighted by the batch
        hits += (out.argmax(1) == yb).sum().item()
        seen += yb.size(0)
    model.eval()
    total, right = 0.0, 0
    with torch.no_grad():
        for xb, yb in valid_dl:
            xb, yb = xb.to(DEVICE), yb.to(DEVICE)
            out = model(xb)
            total += loss_fn(out, yb).item() * len(xb)
            right += (out.argmax(1) == yb).sum().item()
    valid = total / len(valid_dl.dataset)
    sched.step(valid)
    print(f"epoch {epoch} train {running / seen:.5f} acc {hits / seen:.4f} valid {valid:.5f} {right / len(valid_set):.4f}")
    if valid < best:
        best, bad = valid, 0
        torch.save(model.state_dict(), "runs/best.pt")
    else:
        bad += 1
        if bad >= 2:
            print("stopped early")
            break
model.load_state_dict(torch.load("runs/best.pt"))
print("best", best)
