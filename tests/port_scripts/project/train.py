"""A script with modules of its own: the loop in engine.py, checkpoints in helpers.py, loaders in data.py."""
import argparse

import helpers
import torch
from data import get_loaders
from engine import evaluate, train_one_epoch
from model import build_model

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--no-cuda", action="store_true", default=False)
parser.add_argument("--optimizer", default="SGD")
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
device = torch.device("cuda" if args.cuda else "cpu")


def main() -> None:
    helpers.set_seed(7)
    train_loader, test_loader = get_loaders(batch_size=16)
    model: torch.nn.Module = build_model(6)
    model = model.to(device)
    optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    best: float = 0.0
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, optimizer, train_loader, device)
        accuracy = evaluate(model, test_loader, device)
        scheduler.step()
        print(f"{epoch}: loss {loss:.6f} accuracy {accuracy:.4f}")
        if accuracy >= best:
            best = accuracy
            helpers.save_checkpoint(model, optimizer, epoch, "best.pt")
    epoch = helpers.load_checkpoint(model, "best.pt")
    print("best", epoch, evaluate(model, test_loader, device))


if __name__ == "__main__":
    main()
