"""What the other files use."""
import os
import random

import torch


class AverageMeter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def average(self):
        return self.total / self.count


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def save_checkpoint(model, optimizer, epoch, path):
    if not os.path.exists("runs"):
        os.mkdir("runs")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "runs/" + path)
    print("saved", path)


def load_checkpoint(model, path):
    state = torch.load("runs/" + path)
    model.load_state_dict(state["model"])
    return state["epoch"]
