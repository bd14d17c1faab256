"""A Trainer class of its own: models in attributes, DataParallel, resume, a file of metrics."""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

os.environ["CUDA_VISIBLE_DEVICES"] = "0"


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
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        if torch.cuda.device_count() > 1:
            self.model = nn.DataParallel(self.model)
        self.optimizer = optim.SGD(self.model.parameters(), lr=lr)
        self.train_loader = train_loader
        self.valid_loader = valid_loader
        self.history = []
        print("parameters", self.model.size())

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
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=5.0)
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
            print(f"{epoch}: error {error:.6f}")
            self.save("last.pt", epoch)
        with open("history.json", "w") as f:
            json.dump(self.history, f)

    def save(self, path, epoch):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch}, path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        print("loaded", state["epoch"])


if __name__ == "__main__":
    torch.manual_seed(5)
    x = torch.randn(96, 3)
    y = x.sum(1) ** 2
    train = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True)
    valid = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=1)
    trainer = Trainer(Regressor(), train, valid)
    trainer.fit(2)
    trainer.load("last.pt")
    trainer.fit(1)
