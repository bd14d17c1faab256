"""A Trainer class of its own: models in attributes, DataParallel, resume, a file of metrics."""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))


class Regressor(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Linear(3, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x))).squeeze(-1)

    def size(self):
        return sum(p.numel() for p in self.parameters())


class Trainer:
    def __init__(self, model, train_loader, valid_loader, lr=0.05):
        self.device = accelerator.device
        self.model = model.to(self.device)
        if torch.cuda.device_count() > 1:
            pass
        self.optimizer = optim.SGD(self.model.parameters(), lr=lr)
        self.model, self.optimizer = accelerator.prepare(self.model, self.optimizer)
        self.train_loader = train_loader
        self.valid_loader = valid_loader
        self.history = []
        accelerator.print("parameters", accelerator.unwrap_model(self.model).size())

    def train_epoch(self):
        self.model.train()
        losses = []
        for x, y in self.train_loader:
            loss = self.train_step(x.to(self.device), y.to(self.device))
            losses.append(loss)
        return sum(losses) / len(losses)

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        accelerator.backward(loss)
        loss = accelerator.reduce(loss.detach(), reduction="mean")
        accelerator.clip_grad_norm_(self.model.parameters(), max_norm=5.0)
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        error, count = 0.0, 0
        for x, y in self.valid_loader:
            x, y = x.to(self.device), y.to(self.device)
            prediction = self.model(x)
            error += (prediction - y).abs().sum().item()
            count += len(y)
        return error / count

    def fit(self, epochs):
        for epoch in range(epochs):
            loss, error = self.train_epoch(), self.validate()
            self.history.append({"epoch": epoch, "error": error})
            accelerator.print(f"{epoch}: error {error:.6f}")
            self.save("last.pt", epoch)
        if accelerator.is_main_process:
            with open("history.json", "w") as f:
                json.dump(self.history, f)

    def save(self, path, epoch):
        accelerator.save({"model": accelerator.get_state_dict(self.model), "optimizer": self.optimizer.state_dict(), "epoch": epoch}, path)

    def load(self, path):
        accelerator.wait_for_everyone()
        state = torch.load(path, map_location="cpu")
        accelerator.unwrap_model(self.model).load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        accelerator.print("loaded", state["epoch"])


if __name__ == "__main__":
    torch.manual_seed(5)
    x = torch.randn(96, 3)
    y = x.sum(1) ** 2
    train = accelerator.prepare(DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True))
    valid = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=1)
    trainer = Trainer(Regressor(), train, valid)
    trainer.fit(2)
    trainer.load("last.pt")
    trainer.fit(1)
    accelerator.end_training()
