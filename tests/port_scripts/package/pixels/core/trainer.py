import torch

from .base import BaseTrainer


class Trainer(BaseTrainer):
    def __init__(self, model, criterion, optimizer, epochs, train_loader, valid_loader):
        super().__init__(model, criterion, optimizer, epochs)
        self.train_loader = train_loader
        self.valid_loader = valid_loader

    def _train_epoch(self, epoch):
        self.model.train()
        total = 0.0
        for x, y in self.train_loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return {"loss": total / len(self.train_loader), "error": self._valid_epoch()}

    def _valid_epoch(self):
        self.model.eval()
        error, count = 0.0, 0
        with torch.no_grad():
            for x, y in self.valid_loader:
                x, y = x.to(self.device), y.to(self.device)
                output = self.model(x)
                error += (output - y).abs().sum().item()
                count += len(y)
        return error / count
