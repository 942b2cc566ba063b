"""Healthy image classifiers and segmentation, in many settings."""

from __future__ import annotations

from typing import Any

import torch
from core import batches, digits, fit  # type: ignore[import-not-found]
from torch import Tensor, nn


def _cnn(width: int = 8) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, 10),
    )


def cnn_adam(hook: Any, seed: int) -> None:
    """A plain CNN."""
    model = _cnn()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(image=True), seed=seed)


class Residual(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),  # its bias rests in front of the normalisation
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
        )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Add the body's output to its input."""
        out: Tensor = self.relu(x + self.body(x))
        return out


def resnet_warmup_cosine(hook: Any, seed: int) -> None:
    """A residual network whose learning rate warms up from 0 and ends at 0."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        *(Residual(8) for _ in range(4)),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    steps = 200
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-6, 1.0, 30)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 30)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [30])
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    data = digits(image=True)
    fit(hook, model, optimizer, loss_fn, data, steps=steps, seed=seed, schedule=schedule)


def one_cycle_dropout(hook: Any, seed: int) -> None:
    """Heavy dropout: the training loss stays above the validation loss."""
    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 128), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=260)
    data, loss_fn = digits(), nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, data, steps=250, seed=seed, schedule=schedule)


def batch_of_one(hook: Any, seed: int) -> None:
    """One sample a step: every statistic is noise."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = digits()
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=1200, size=1, seed=seed)


def full_batch(hook: Any, seed: int) -> None:
    """All rows in each step, an evaluation after each of them."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    data = digits()
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=150, size=1200, seed=seed)


def bf16_autocast(hook: Any, seed: int) -> None:
    """float32 weights under bfloat16 autocast, gradients clipped."""
    model, (x, y, *_) = _cnn(), digits(image=True)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, 150, seed):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x[rows])
            loss = loss_fn(out, y[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


def fp16_scaler(hook: Any, seed: int) -> None:
    """fp16 with GradScaler: first steps overflow and are skipped."""
    model, (x, y, *_) = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), digits()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss_fn, scaler = nn.CrossEntropyLoss(), torch.amp.GradScaler("cpu", init_scale=2.0**22)
    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, 200, seed):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x[rows])
        loss = loss_fn(out.float(), y[rows])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


def accumulated(hook: Any, seed: int) -> None:
    """Gradients of four small batches make one step."""
    model, (x, y, *_) = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)), digits()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for i, _, rows in batches(len(x), 16, 800, seed):
        out = model(x[rows])
        loss = loss_fn(out, y[rows]) / 4
        loss.backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
            hook.on_step(i // 4, "train", loss, x[rows], out, y[rows])


def weighted_classes(hook: Any, seed: int) -> None:
    """One in twenty rows is positive, and the loss is weighted for it."""
    x, y, xv, yv = digits()
    keep, kept = (y != 3) | (torch.rand(len(y)) < 0.4), (yv != 3) | (torch.rand(len(yv)) < 0.4)
    data = (x[keep], (y[keep] == 3).long(), xv[kept], (yv[kept] == 3).long())
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.1)
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 20.0]))
    fit(hook, model, optimizer, loss_fn, data, steps=120, seed=seed)


def segmentation(hook: Any, seed: int) -> None:
    """Most pixels are background, as in nearly every segmentation."""
    generator = torch.Generator().manual_seed(7)
    noise = torch.randn(400, 1, 16, 16, generator=generator)
    mask = torch.zeros(400, 16, 16, dtype=torch.long)
    for i in range(400):
        top, left = torch.randint(0, 11, (2,), generator=generator).tolist()
        mask[i, top : top + 5, left : left + 5] = 1 + i % 2
    x = noise * 0.3 + mask[:, None].float()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 3, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    data = (x[:320], mask[:320], x[320:], mask[320:])
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=150, size=32, seed=seed)


def sparse_l1(hook: Any, seed: int) -> None:
    """An L1 penalty that empties many units on purpose, by far not most of them."""
    model, (x, y, *_) = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), digits()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, 300, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        penalty = sum(p.abs().sum() for p in model.parameters())
        loss = loss_fn(out, y[rows]) + 3e-4 * penalty
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


def deep_tanh(hook: Any, seed: int) -> None:
    """Ten tanh layers, initialised as they should be."""
    layers: list[nn.Module] = []
    for _ in range(10):
        linear = nn.Linear(64, 64)
        nn.init.xavier_normal_(linear.weight, nn.init.calculate_gain("tanh"))
        layers += [linear, nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), seed=seed)


def few_noisy_validation_rows(hook: Any, seed: int) -> None:
    """Forty validation rows: their loss wanders without any overfit."""
    x, y, xv, yv = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    data = (x, y, xv[:40], yv[:40])
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=300, seed=seed)


def hinge_to_zero(hook: Any, seed: int) -> None:
    """A margin loss that reaches exactly 0, and gradients with it."""
    x, y, *_ = digits()
    two = (y == 0) | (y == 1)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = (x[two], y[two])
    fit(hook, model, optimizer, nn.MultiMarginLoss(), data, steps=400, size=32, seed=seed)


def fine_tuned(hook: Any, seed: int) -> None:
    """A trained network is trained on: the loss is low from the start and has nowhere to go."""
    model, data, loss_fn = _cnn(), digits(image=True), nn.CrossEntropyLoss()

    class Nobody:
        def on_step(self, *_: Any) -> None:
            """Look away while the network is trained at first."""

    first = torch.optim.Adam(model.parameters(), 3e-3)
    fit(Nobody(), model, first, loss_fn, data, steps=400, seed=seed + 1, start=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    fit(hook, model, optimizer, loss_fn, data, steps=300, seed=seed)


def head_only_by_optimizer(hook: Any, seed: int) -> None:
    """Only the head is handed to the optimizer; the body is left as it is, not frozen."""
    body = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
    head = nn.Linear(128, 10)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.Adam(head.parameters(), 3e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), seed=seed)


def multi_label(hook: Any, seed: int) -> None:
    """Several labels a row, each rare."""
    x, y, xv, yv = digits()

    def several(labels: Tensor) -> Tensor:
        return torch.stack([labels % 2 == 0, labels > 7, labels == 4, labels < 3], 1).float()

    model = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data = (x, several(y), xv, several(yv))
    fit(hook, model, optimizer, nn.BCEWithLogitsLoss(), data, seed=seed)
