"""Train a small convolutional network on scikit-learn's 1,797 handwritten digits, on as many GPUs as there are ranks.

It is an ordinary Hugging Face Accelerate script: it knows nothing of mgpu, downloads nothing and takes seconds, so it
shows that a launch trains for real. `--batch-size` is per rank. Start it with the settings mgpu has written:

    mgpu launch tests/train_digits.py
    mgpu launch tests/train_digits.py --epochs 20 --save digits.pt

The last line is the result: `test accuracy 97.8 % on 2 ranks`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 0


def positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)  # argparse turns this into its usage error
    return value


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small convolutional network on handwritten digits.")
    parser.add_argument("--epochs", type=positive_int, default=10, help="passes over the training images")
    parser.add_argument("--batch-size", type=positive_int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of AdamW")
    parser.add_argument("--save", type=Path, metavar="PATH", help="write the trained weights to this file")
    return parser.parse_args()


def load_data() -> tuple[Any, Any]:
    """Return the 8 x 8 digits as a training set (80 %) and a test set (20 %), the same split on every rank."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16  # pixels are 0 to 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    train, test = train_test_split(range(len(labels)), test_size=0.2, random_state=SEED, stratify=digits.target)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def build_model() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 10),
    )


def train_epoch(accelerator: Any, model: Any, optimizer: Any, loader: Any) -> float:
    """Train for one epoch and return the mean loss over all ranks."""
    model.train()
    total = torch.zeros((), device=accelerator.device)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return float(accelerator.reduce(total / len(loader), reduction="mean"))


def measure_accuracy(accelerator: Any, model: Any, loader: Any) -> float:
    """Return the percentage of test images recognised; each image counts once, whatever the number of ranks."""
    model.eval()
    right = seen = 0
    with torch.inference_mode():
        for images, labels in loader:
            guesses, truths = accelerator.gather_for_metrics((model(images).argmax(dim=1), labels))
            right += int((guesses == truths).sum())
            seen += len(truths)
    return 100 * right / seen


def save_weights(accelerator: Any, model: Any, path: Path) -> None:
    """Write the weights from the main process; an interrupted write never leaves half a file at `path`."""
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".tmp")
        torch.save(accelerator.unwrap_model(model).state_dict(), unfinished)
        unfinished.replace(path)  # os.replace: atomic


def main() -> None:
    args = parse_args()
    accelerator = Accelerator()
    set_seed(SEED)

    train_set, test_set = load_data()
    model = build_model()
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=args.lr),
        DataLoader(train_set, batch_size=args.batch_size, shuffle=True),
        DataLoader(test_set, batch_size=args.batch_size),
    )

    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(accelerator, model, optimizer, train_loader)
        accuracy = measure_accuracy(accelerator, model, test_loader)
        if accelerator.is_main_process:
            print(f"epoch {epoch}/{args.epochs}: loss {loss:.4f}, test accuracy {accuracy:.1f} %", flush=True)

    if args.save is not None:
        save_weights(accelerator, model, args.save)
    if accelerator.is_main_process:
        ranks = accelerator.num_processes
        print(f"test accuracy {accuracy:.1f} % on {ranks} rank{'s' if ranks != 1 else ''}", flush=True)

    # Let go of the model first: Python must not shut down while gloo's threads still clear away the last gather.
    model, optimizer, train_loader, test_loader = accelerator.free_memory(model, optimizer, train_loader, test_loader)
    accelerator.end_training()


if __name__ == "__main__":
    main()
