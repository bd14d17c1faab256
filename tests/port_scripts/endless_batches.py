# An endless generator over a loader, parameter groups from a function, a global model made in a function, an optimizer
# that exists only in the branch that trains, and code that compares the size of a batch with the one it asked for.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch_size = 8
train = True


def endless(loader):
    while True:
        for batch in loader:
            yield batch


def groups(net, decay):
    matrices = [p for p in net.parameters() if p.dim() > 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": [p for p in net.parameters() if p.dim() <= 1]}]


def main():
    global model
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    batches = endless(DataLoader(data, batch_size=batch_size, shuffle=True))
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    if train:
        optimizer = torch.optim.AdamW(groups(model, 0.1), lr=0.01)
        for step in range(10):
            x, y = next(batches)
            if x.size(0) != batch_size:
                continue
            shift = torch.full((batch_size, 6), 0.1)
            loss = (model(x + shift) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(step, loss.item())


main()
