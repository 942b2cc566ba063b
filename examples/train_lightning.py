"""A small network under Lightning that tells digits apart, with a learning rate far too high.

python examples/train_lightning.py                        # records to .trainwarden/runs
python examples/train_lightning.py --learning-rate 1e-3   # learns
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainwarden


class Digits(lightning.LightningModule):
    """Two layers and their optimizer."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = nn.CrossEntropyLoss()

    def training_step(self, batch: Any, _: int) -> Any:
        """Return the loss of a batch."""
        x, y = batch
        return self.loss(self.net(x), y)

    def validation_step(self, batch: Any, _: int) -> None:
        """Log how many are right."""
        x, y = batch
        scores = self.net(x)
        self.log("val_loss", self.loss(scores, y))
        self.log("val_accuracy", (scores.argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), self.learning_rate)


def main() -> None:
    """Train, and print the accuracy on other digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--learning-rate", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = load_digits()
    x, y = torch.tensor(found.data / 16.0, dtype=torch.float32), torch.tensor(found.target)
    batches = DataLoader(TensorDataset(x[:1200], y[:1200]), 48, shuffle=True)
    others = DataLoader(TensorDataset(x[1200:], y[1200:]), 200)
    trainer = lightning.Trainer(
        max_steps=arguments.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[trainwarden.LightningCallback()],
    )
    trainer.fit(Digits(arguments.learning_rate), batches, others)
    print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
