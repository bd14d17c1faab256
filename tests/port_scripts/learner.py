"""One function per thing, a config object, the loop in a class with callbacks."""
from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    batch_size: int = 16
    epochs: int = 2
    lr: float = 0.05
    metrics: list = field(default_factory=list)


class Waves(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.rand(n, 1, generator=g)
        self.y = torch.sin(6 * self.x)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


class Learner:
    def __init__(self, config: Config, model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn):
        self.config = config
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.model.to(config.device)

    def run_epoch(self, loader, train=True):
        self.model.train(train)
        losses = []
        with torch.set_grad_enabled(train):
            for batch in loader:
                x = batch["x"].to(self.config.device)
                y = batch["y"].to(self.config.device)
                output = self.model(x)
                loss = self.loss_fn(output, y)
                if train:
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                losses.append(loss.item())
        return sum(losses) / len(losses)

    def fit(self, train_loader, valid_loader):
        for epoch in range(self.config.epochs):
            train_loss = self.run_epoch(train_loader)
            valid_loss = self.run_epoch(valid_loader, train=False)
            self.config.metrics.append((train_loss, valid_loss))
            print(f"[{epoch + 1}/{self.config.epochs}] {train_loss:.6f} {valid_loss:.6f}")


config = Config()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
learner = Learner(config, model, torch.optim.Adam(model.parameters(), lr=config.lr), nn.MSELoss())
learner.fit(
    DataLoader(Waves(64, 1), batch_size=config.batch_size, shuffle=True),
    DataLoader(Waves(32, 2), batch_size=config.batch_size),
)
