"""New style autocast, a scaler that may be off, accumulation, clipping, two groups, TensorBoard."""
import torch
from torch import nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

USE_AMP = torch.cuda.is_available()
ACCUMULATE = 2


def train(model, loader, optimizer, scaler, device, scheduler=None):
    model.train()
    total, seen = 0.0, 0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with autocast(device_type=device.type, enabled=USE_AMP):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y) / ACCUMULATE
        scaler.scale(loss).backward()
        if (i + 1) % ACCUMULATE == 0 or i + 1 == len(loader):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if scheduler:
                scheduler.step()
        total += loss.item() * ACCUMULATE * len(y)
        seen += len(y)
    return total / seen


@torch.inference_mode()
def validate(model, loader, device):
    model.eval()
    preds, truth = [], []
    for x, y in loader:
        x = x.to(device)
        out = model(x).argmax(dim=1)
        preds.append(out.cpu())
        truth.append(y)
    preds, truth = torch.cat(preds), torch.cat(truth)
    return (preds == truth).float().mean().item(), len(preds)


if __name__ == "__main__":
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.randn(128, 4)
    y = (x[:, 0] * x[:, 1] > 0).long()
    loader = DataLoader(TensorDataset(x[:96], y[:96]), batch_size=8, shuffle=True, drop_last=True)
    test = DataLoader(TensorDataset(x[96:], y[96:]), batch_size=10)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    decay = [p for n, p in model.named_parameters() if "bias" not in n]
    rest = [p for n, p in model.named_parameters() if "bias" in n]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
    scaler = GradScaler("cuda", enabled=USE_AMP)
    for epoch in range(2):
        loss = train(model, loader, optimizer, scaler, device, scheduler)
        accuracy, n = validate(model, test, device)
        print(f"epoch {epoch} loss {loss:.6f} accuracy {accuracy:.4f} of {n} lr {scheduler.get_last_lr()[0]:.6f}")
