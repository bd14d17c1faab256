"""Mixed precision by hand, gradient accumulation, clipping and a schedule stepped per update."""
import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm


class Numbers(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(7)
        self.x, self.y = torch.randn(n, 5, generator=g), torch.randn(n, 1, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


def build():
    net = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1))
    return net.cuda() if torch.cuda.is_available() else net


def main():
    torch.manual_seed(11)
    accumulate = 2
    loader = DataLoader(Numbers(64), batch_size=8, shuffle=True)
    model = build()
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=2 * len(loader) // accumulate)
    scaler = GradScaler()
    device = next(model.parameters()).device
    for epoch in range(2):
        total = 0.0
        for step, batch in enumerate(tqdm(loader)):
            x, y = batch["x"].to(device), batch["y"].to(device)
            with autocast():
                loss = criterion(model(x), y) / accumulate
            scaler.scale(loss).backward()
            total += loss.item()
            if (step + 1) % accumulate == 0:
                scaler.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                scheduler.step()
        print("epoch %d loss %.6f lr %.6f" % (epoch, total, scheduler.get_last_lr()[0]))


if __name__ == "__main__":
    main()
