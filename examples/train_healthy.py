"""A small network that learns handwritten digits: nothing to complain about.

python examples/train_healthy.py                      # records to .trainwarden/runs
trainwarden local train examples/train_healthy.py     # or as a (local) SageMaker job
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import trainwarden


def data(batch_size: int) -> tuple[DataLoader[tuple[torch.Tensor, ...]], ...]:
    """Load 1,797 pictures of 8 x 8 pixels: four fifths to train on, the rest to evaluate."""
    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
    whole = TensorDataset(pixels, torch.tensor(digits.target))
    train, test = random_split(whole, [1437, 360])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, 360)


def main() -> None:
    """Train and print the loss after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is fastest that way
    train, test = data(batch_size=32)
    model = nn.Sequential(
        *(nn.Linear(64, 64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.ReLU()),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)

    trainwarden.watch(model, optimizer, loss_fn)  # the one line

    for epoch in range(arguments.epochs):
        model.train()
        for pixels, labels in train:
            optimizer.zero_grad()
            loss = loss_fn(model(pixels), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            [(pixels, labels)] = test
            output = model(pixels)
            right = (output.argmax(1) == labels).float().mean().item()
        print(f"epoch {epoch}: test loss {loss_fn(output, labels).item():.3f}, right {right:.1%}")


if __name__ == "__main__":
    main()
