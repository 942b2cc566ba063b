"""Data that cannot teach: spoiled inputs, spoiled labels, a bad order; each with its repair."""

from __future__ import annotations

from typing import Any

import torch
from programs import (  # type: ignore[import-not-found]
    batches,
    digits,
    fit,
    table,
    validate,
    wave,
)
from torch import Tensor, nn


def _mlp(inputs: int = 64, outputs: int = 10, width: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def pixels_into_mlp(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Pixels of 0 to 255 under SGD. Repair: standardised."""
    x, y, xv, yv = digits()
    if variant == "faulty":
        x, xv = (x * 0.376 + 0.305) * 255, (xv * 0.376 + 0.305) * 255
    optimizer = torch.optim.SGD((model := _mlp()).parameters(), 0.05, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


def one_huge_column(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """One column counts in millions (an income), the rest in ones. Repair: standardised."""
    x, y, xv, yv = wave()
    if variant == "faulty":
        x, xv = x.clone(), xv.clone()
        x[:, 3], xv[:, 3] = 2e6 + 5e5 * x[:, 3], 2e6 + 5e5 * xv[:, 3]
    optimizer = torch.optim.Adam((model := _mlp(10, 1)).parameters(), 3e-3)
    fit(hook, model, optimizer, nn.MSELoss(), (x, y, xv, yv), steps=steps, seed=seed)


def huge_targets(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Targets of some 200,000 before a linear output: the loss hardly moves. Repair: scaled."""
    x, y, xv, yv = wave()
    if variant == "faulty":
        y, yv = 200_000 + 50_000 * y, 200_000 + 50_000 * yv
    optimizer = torch.optim.Adam((model := _mlp(10, 1)).parameters(), 3e-3)
    fit(hook, model, optimizer, nn.MSELoss(), (x, y, xv, yv), steps=steps, seed=seed)


def missing_values(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Two rows of the table hold NaN; the first batch with one spoils all. Repair: filled."""
    x, y, xv, yv = table("breast_cancer")
    x = x.clone()
    x[torch.tensor([50, 301]), 4] = float("nan")
    if variant != "faulty":
        x = x.nan_to_num(0.0)
    optimizer = torch.optim.Adam((model := _mlp(30, 2)).parameters(), 3e-3)
    data = (x, y, xv, yv)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=steps, size=32, seed=seed)


def blank_images(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Pixels are divided as whole numbers, so every image is blank. Repair: divided as floats."""
    x, y, xv, yv = digits(image=True, raw=True)
    if variant == "faulty":
        x, xv = (x.byte() // 17).float(), (xv.byte() // 17).float()
    else:
        x, xv = x / 8 - 0.6, xv / 8 - 0.6
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


def one_row_for_all(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """A data set whose __getitem__ forgets its index: each row of a batch is the same row.

    The labels are right, so they contradict each other. Repair: the index is used.
    """
    x, y, *validation = digits()
    model = _mlp()
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 2e-3), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        chosen = rows[:1].expand(64) if variant == "faulty" else rows
        optimizer.zero_grad()
        out = model(x[chosen])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[chosen], out, y[rows])
        if over:
            validate(hook, step, model, loss_fn, tuple(validation))


def copied_columns(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """A join repeats one column thirty times and fills others with 0. Repair: the right join."""
    x, y, xv, yv = table("breast_cancer")
    if variant == "faulty":
        x, xv = x.clone(), xv.clone()
        x[:, :20], xv[:, :20] = x[:, 11:12], xv[:, 11:12]
        x[:, 20:], xv[:, 20:] = 0.0, 0.0
    optimizer = torch.optim.Adam((model := _mlp(30, 2)).parameters(), 3e-3)
    data = (x, y, xv, yv)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=steps, size=32, seed=seed)


def shuffled_labels(hook: Any, variant: str, seed: int, steps: int = 400) -> None:
    """Rows are shuffled, labels are not: nothing can be learned. Repair: shuffled together."""
    x, y, xv, yv = digits()
    if variant == "faulty":
        y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(9))]
    optimizer = torch.optim.SGD((model := _mlp()).parameters(), 0.05, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


def other_classes_in_validation(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Folders are numbered in another order for validation. Repair: the same numbers.

    Training goes well; the validation loss rises from the start.
    """
    x, y, xv, yv = digits()
    yv = (yv + 3) % 10 if variant == "faulty" else yv
    optimizer = torch.optim.Adam((model := _mlp()).parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


def labels_from_one(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Binary labels of 1 and 2 where 0 and 1 are expected: the loss falls without end."""
    x, y, xv, yv = table("breast_cancer")
    y, yv = y.float()[:, None], yv.float()[:, None]
    if variant == "faulty":
        y, yv = y + 1, yv + 1
    optimizer = torch.optim.Adam((model := _mlp(30, 1)).parameters(), 3e-3)
    data = (x, y, xv, yv)
    fit(hook, model, optimizer, nn.BCEWithLogitsLoss(), data, steps=steps, size=32, seed=seed)


def sentinel_targets(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Missing targets are written -9999 and believed. Repair: those rows are left out."""
    x, y, xv, yv = wave()
    missing = torch.arange(len(x)) % 12 == 5
    if variant == "faulty":
        y = torch.where(missing[:, None], -9999.0, y)
    else:
        x, y = x[~missing], y[~missing]
    optimizer = torch.optim.Adam((model := _mlp(10, 1)).parameters(), 3e-3)
    fit(hook, model, optimizer, nn.MSELoss(), (x, y, xv, yv), steps=steps, seed=seed)


def rare_classes(hook: Any, variant: str, seed: int, steps: int = 400) -> None:
    """Four classes of which one has 97 rows in 100. Repair: rows drawn with equal chances."""
    generator = torch.Generator().manual_seed(5)
    shares = torch.tensor([0.97, 0.01, 0.01, 0.01])
    y = torch.multinomial(shares, 6000, replacement=True, generator=generator)
    x = torch.randn(6000, 20, generator=generator) + 0.6 * torch.eye(4, 20)[y]
    if variant != "faulty":
        weight = 1 / torch.bincount(y[:5000]).float()[y[:5000]]
        rows = torch.multinomial(weight, 5000, replacement=True, generator=generator)
        x, y = torch.cat([x[rows], x[5000:]]), torch.cat([y[rows], y[5000:]])
    optimizer = torch.optim.SGD((model := _mlp(20, 4, 16)).parameters(), 0.05, momentum=0.9)
    validation = (x[5000:], y[5000:]) if variant == "faulty" else ()
    data = (x[:5000], y[:5000], *validation)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=steps, seed=seed)


def sorted_targets(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A regression whose rows are sorted by target and not shuffled. Repair: shuffled."""
    x, y, xv, yv = wave()
    order = y[:, 0].argsort()
    optimizer = torch.optim.SGD((model := _mlp(10, 1)).parameters(), 0.05, momentum=0.9)
    data, shuffle = (x[order], y[order], xv, yv), variant != "faulty"
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, size=32, seed=seed,
        shuffle=shuffle)  # fmt: skip


def sorted_classes_cnn(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A CNN reads class after class, as the folders lie on disk. Repair: shuffled."""
    x, y, xv, yv = digits(image=True)
    order = y.argsort()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data, shuffle = (x[order], y[order], xv, yv), variant != "faulty"
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=steps, size=32, seed=seed,
        shuffle=shuffle)  # fmt: skip


def corrupt_batches(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Once in 40 batches a shard was not scaled: inputs 300 times too large. Repair: scaled."""
    x, y, *validation = digits()
    model = _mlp()
    optimizer, loss_fn = torch.optim.SGD(model.parameters(), 0.05), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        spoiled = variant == "faulty" and step % 40 == 35
        batch: Tensor = x[rows] * (300.0 if spoiled else 1.0)
        optimizer.zero_grad()
        out = model(batch)
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, batch, out, y[rows])
        if over:
            validate(hook, step, model, loss_fn, tuple(validation))


def images_of_other_rows(hook: Any, variant: str, seed: int, steps: int = 400) -> None:
    """Images are shuffled before training, labels are not. Repair: both."""
    x, y, xv, yv = digits(image=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(3))
    x, y = x[order], y if variant == "faulty" else y[order]
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.RMSprop(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


def labels_mixed_anew(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A collate function shuffles the labels of each batch, not its rows. Repair: neither."""
    x, y, *validation = digits()
    model = _mlp()
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 1e-3), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    mixing = torch.Generator().manual_seed(seed + 1)
    for step, over, rows in batches(len(x), 64, steps, seed):
        order = torch.randperm(64, generator=mixing) if variant == "faulty" else torch.arange(64)
        labels = y[rows][order]
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, labels)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, labels)
        if over:
            validate(hook, step, model, loss_fn, tuple(validation))
