import torch
import torch.nn.functional as F
from helpers import AverageMeter


def train_one_epoch(model, optimizer, loader, device):
    model.train()
    losses = AverageMeter()
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.update(loss.item(), x.size(0))
        if step % 2 == 0:
            print(f"  step {step} loss {loss.item():.6f}")
    return losses.average


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct, total = 0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        output = model(x)
        correct += (output.argmax(1) == y).sum().item()
        total += y.size(0)
    return correct / total


if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    print(model)
