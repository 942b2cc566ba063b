"""What a model is shown: validation unlike training, padding instead of text, two views as one."""

from __future__ import annotations

from typing import Any

import torch
from programs import (  # type: ignore[import-not-found]
    batches,
    digits,
    fit,
    validate,
)
from torch import Tensor, nn


def raw_validation(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Training pixels are standardised, those of validation go from 0 to 16. Repair: both are."""
    x, y, xv, yv = digits(image=True)
    if variant == "faulty":
        xv = (xv * 0.376 + 0.305) * 16
    model = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(192, 10))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


class Reader(nn.Module):
    """A GRU that reads a text and answers from its state at ``last``, or at the last true token."""

    def __init__(self, alphabet: int, classes: int, *, last: bool) -> None:
        super().__init__()
        self.last, self.embedding = last, nn.Embedding(alphabet, 16)
        self.rnn, self.out = nn.GRU(16, 24, batch_first=True), nn.Linear(24, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, classes) scores."""
        states = self.rnn(self.embedding(x))[0]
        at = torch.full((len(x),), x.shape[1] - 1) if self.last else (x != 0).sum(1) - 1
        scores: Tensor = self.out(states[torch.arange(len(x)), at])
        return scores


def state_after_padding(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Texts of 5 to 9 words in rows of 72, and the last state is read. Repair: that of the text."""
    made = torch.Generator().manual_seed(5)
    y = torch.randint(0, 3, (900,), generator=made)
    words = 1 + torch.randint(0, 50, (900, 72), generator=made)
    hints = 1 + 8 * y[:, None] + torch.randint(0, 8, (900, 72), generator=made)
    words = torch.where(torch.rand(900, 72, generator=made) < 0.5, hints, words)
    lengths = torch.randint(5, 10, (900, 1), generator=made)
    x = torch.where(torch.arange(72) < lengths, words, 0)
    model = Reader(51, 3, last=variant == "faulty")
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x[:700], y[:700], x[700:], y[700:]),
        steps=steps, seed=seed)  # fmt: skip


class Siamese(nn.Module):
    """An encoder and a predictor of what another view is encoded as."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 80), nn.BatchNorm1d(80), nn.ReLU(),
                                     nn.Linear(80, 24))  # fmt: skip
        self.predictor = nn.Sequential(nn.Linear(24, 12), nn.BatchNorm1d(12), nn.ReLU(),
                                       nn.Linear(12, 24))  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 64) pixels to embeddings and predictions, (N, 24) each."""
        z = self.encoder(x)
        return z, self.predictor(z)


def no_stop_gradient(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Both sides of the cosine are trained. Repair: the target of each side is detached."""
    x, _, xv, _ = digits()
    noise = torch.Generator().manual_seed(seed)
    model, cosine = Siamese(), nn.CosineSimilarity()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)

    def view(rows: Tensor) -> Tensor:
        kept = torch.rand(rows.shape, generator=noise) > 0.3
        return rows * kept + 0.2 * torch.randn(rows.shape, generator=noise)

    def target(z: Tensor) -> Tensor:
        return z if variant == "faulty" else z.detach()

    def loss_of(rows: Tensor) -> tuple[Any, Tensor]:
        (z1, p1), (z2, p2) = model(view(rows)), model(view(rows))
        return -(cosine(p1, target(z2)).mean() + cosine(p2, target(z1)).mean()) / 2, z1

    hook.on_start(model, optimizer, None)
    for step, over, at in batches(len(x), 100, steps, seed):
        optimizer.zero_grad()
        loss, z = loss_of(x[at])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[at], z, x[at])
        if over:
            validate(hook, step, model, lambda out, _: -out[0].std(), (xv, xv))
