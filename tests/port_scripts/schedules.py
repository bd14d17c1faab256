"""Schedules per batch and per epoch, early stopping, the best checkpoint, resuming, DataParallel."""
import argparse
import os

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split
from tqdm import tqdm


class EarlyStopping:
    def __init__(self, patience: int = 2, path: str = "best.pth") -> None:
        self.patience, self.path = patience, path
        self.best = float("inf")
        self.counter = 0
        self.early_stop = False

    def __call__(self, value: float, model: nn.Module) -> None:
        if value < self.best:
            self.best = value
            self.counter = 0
            self.save_checkpoint(value, model)
        else:
            self.counter += 1
            if self.counter >= self.patience:
                self.early_stop = True

    def save_checkpoint(self, value: float, model: nn.Module) -> None:
        print(f"validation loss {value:.6f}: saving")
        torch.save(model.state_dict(), self.path)


def build(args: argparse.Namespace, device: torch.device) -> nn.Module:
    model: nn.Module = nn.Sequential(nn.Linear(5, 12), nn.GELU(), nn.Linear(12, 1))
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    return model.to(device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--optim", default="AdamW")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    args: argparse.Namespace = parser.parse_args()
    device: torch.device = torch.device(f"cuda:{args.gpu}" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(11)
    x: Tensor = torch.randn(128, 5)
    y: Tensor = x.pow(2).sum(1, keepdim=True)
    full: Dataset = TensorDataset(x, y)
    train_set, valid_set = random_split(full, [96, 32])
    train_loader: DataLoader = DataLoader(train_set, batch_size=16, shuffle=True)
    valid_loader: DataLoader = DataLoader(valid_set, batch_size=16)
    model: nn.Module = build(args, device)
    criterion: nn.Module = nn.MSELoss()
    optimizer: torch.optim.Optimizer = getattr(torch.optim, args.optim)(model.parameters(), lr=1e-3)
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.01, epochs=args.epochs, steps_per_epoch=len(train_loader)
    )
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    stopping = EarlyStopping()
    start: int = 0
    if os.path.exists("last.pth"):
        checkpoint = torch.load("last.pth")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"] + 1
    for epoch in range(start, args.epochs):
        model.train()
        running = 0.0
        bar = tqdm(train_loader, desc=f"epoch {epoch}")
        for xb, yb in bar:
            xb, yb = xb.to(device), yb.to(device)
            loss: Tensor = criterion(model(xb), yb)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            one_cycle.step()
            running += loss.item()
            bar.set_postfix(loss=loss.item())
        model.eval()
        total: float = 0.0
        with torch.no_grad():
            for xb, yb in valid_loader:
                xb, yb = xb.to(device), yb.to(device)
                total += criterion(model(xb), yb).item() * xb.size(0)
        valid_loss = total / len(valid_set)
        plateau.step(valid_loss)
        print(f"{epoch} train {running / len(train_loader):.6f} valid {valid_loss:.6f} lr {optimizer.param_groups[0]['lr']:.8f}")
        state = model.module.state_dict() if isinstance(model, nn.DataParallel) else model.state_dict()
        torch.save({"model": state, "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pth")
        stopping(valid_loss, model)
        if stopping.early_stop:
            print("early stop")
            break
    model.load_state_dict(torch.load("best.pth", map_location=device))
    print("weights", sum(p.abs().sum().item() for p in model.parameters()))


if __name__ == "__main__":
    main()
