from abc import abstractmethod

import torch


class BaseTrainer:
    """What every trainer has: the objects, the epochs and the checkpoints."""

    def __init__(self, model, criterion, optimizer, epochs):
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.criterion = criterion
        self.optimizer = optimizer
        self.epochs = epochs

    @abstractmethod
    def _train_epoch(self, epoch):
        raise NotImplementedError

    def train(self):
        for epoch in range(1, self.epochs + 1):
            result = self._train_epoch(epoch)
            print(f"epoch {epoch}: " + ", ".join(f"{key} {value:.6f}" for key, value in result.items()))
            self._save(epoch)

    def _save(self, epoch):
        torch.save({"epoch": epoch, "state_dict": self.model.state_dict()}, f"epoch{epoch}.pt")
