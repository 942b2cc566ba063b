"""Healthy fine-tuning, teachers, several tasks: much rests, and is meant to."""

from __future__ import annotations

import copy
from typing import Any

import torch
from core import batches, digits, fit  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional


class Nobody:
    """Watches nothing, for what happened before the run."""

    def on_step(self, *_: Any) -> None:
        """Look away."""


def _net() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64),
        nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def _pretrained(seed: int, net: nn.Sequential | None = None) -> Any:
    """Tell low from high digits first; the last layer is new again."""
    x, y, *_ = digits()
    model: Any = net or _net()
    first = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    fit(Nobody(), model, first, loss_fn, (x, y // 2), steps=150, seed=seed + 1, start=False)
    model[-1] = nn.Linear(64, 10)
    return model


def biases_only(hook: Any, seed: int) -> None:
    """A trained body of which only the biases are tuned, with a new head (BitFit)."""
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                        nn.Linear(64, 10))  # fmt: skip
    model = _pretrained(seed, net)
    for name, parameter in model[:-1].named_parameters():
        parameter.requires_grad_("bias" in name)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=250, seed=seed)


def frozen_normalisation(hook: Any, seed: int) -> None:
    """A trained body is tuned with its batch normalisation frozen and in eval mode."""
    model = _pretrained(seed)

    def train(mode: bool = True) -> Any:  # noqa: FBT001, FBT002 - nn.Module's own signature
        nn.Module.train(model, mode)
        for module in model:
            if isinstance(module, nn.BatchNorm1d):
                module.eval()
        return model

    for module in model:
        if isinstance(module, nn.BatchNorm1d):
            module.requires_grad_(requires_grad=False)
    model.train = train
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.02)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=250, seed=seed)


def slow_body(hook: Any, seed: int) -> None:
    """The trained body learns at a hundredth of the new head's rate."""
    model = _pretrained(seed)
    groups = [{"params": model[:-1].parameters(), "lr": 2e-5},
              {"params": model[-1].parameters(), "lr": 2e-3}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=250, seed=seed)


def distilled(hook: Any, seed: int) -> None:
    """A small net learns another's soft answers: the loss ends above 0 and should."""
    x, y, *_ = digits()
    teacher = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    first = torch.optim.Adam(teacher.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    fit(Nobody(), teacher, first, loss_fn, (x, y), steps=200, seed=seed + 1, start=False)
    with torch.no_grad():
        soft = (teacher(x) / 4).softmax(1)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)

    def divergence(out: Tensor, target: Tensor) -> Any:
        return 16 * functional.kl_div((out / 4).log_softmax(1), target, reduction="batchmean")

    fit(hook, model, optimizer, divergence, (x, soft), steps=300, seed=seed)


class TwoHeads(nn.Module):
    """A body and two heads, of which one is not asked."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.digit, self.parity = nn.Linear(64, 10), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Answer for the digit alone."""
        out: Tensor = self.digit(self.body(x))
        return out


def unused_head(hook: Any, seed: int) -> None:
    """The second task's data come in another run: its head never gets a gradient here."""
    model = TwoHeads()
    optimizer = torch.optim.Adam(
        [*model.body.parameters(), *model.digit.parameters()], 2e-3
    )  # fmt: skip
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), seed=seed)


class MeanTeacher(nn.Module):
    """A student, and a teacher that is its average over time."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.teacher = copy.deepcopy(self.student).requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Ask the student."""
        out: Tensor = self.student(x)
        return out


def mean_teacher(hook: Any, seed: int) -> None:
    """The teacher moves without gradients, by averaging."""
    x, y, *_ = digits()
    model = MeanTeacher()
    optimizer = torch.optim.Adam(model.student.parameters(), 2e-3)
    loss_fn = nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step, _, rows in batches(len(x), 64, 250, seed):
        noise = 0.2 * torch.randn(len(rows), 64, generator=order)
        optimizer.zero_grad()
        out = model(x[rows] + noise)
        with torch.no_grad():
            target = model.teacher(x[rows]).softmax(1)
        loss = loss_fn(out, y[rows]) + (out.softmax(1) - target).square().sum(1).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, quick in zip(
                model.teacher.parameters(), model.student.parameters(), strict=True
            ):
                slow.lerp_(quick, 0.02)
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


def converged(hook: Any, seed: int) -> None:
    """Training resumes where nothing is left to learn: losses of 1e-4 from the first step."""
    x, y, *_ = digits()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    fit(Nobody(), model, optimizer, loss_fn, (x, y), steps=800, seed=seed + 1, start=False)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    fit(hook, model, optimizer, loss_fn, (x, y), steps=200, seed=seed)


class ZeroStart(nn.Module):
    """A residual block whose last layer starts at zero, and so as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the block found."""
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm(x))))
        return out


def zero_start(hook: Any, seed: int) -> None:
    """Residual blocks and the head start at zero on purpose."""
    head = nn.Linear(64, 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model = nn.Sequential(*(ZeroStart(64) for _ in range(4)), nn.LayerNorm(64), head)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=200, seed=seed)


def strong_decay(hook: Any, seed: int) -> None:
    """AdamW with a weight decay of 1, as for grokking: weights shrink while it learns."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1.0)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=300, seed=seed)


def warm_restarts(hook: Any, seed: int) -> None:
    """A cosine that starts anew twice: the rate jumps from near 0 to its top."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 60, 2)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=420, seed=seed,
        schedule=schedule)  # fmt: skip


def folds(hook: Any, seed: int) -> None:
    """Four models under one roof, one for each fold, trained one after another."""
    x, y, *_ = digits()
    models = nn.ModuleList(
        nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 10))
        for _ in range(4)
    )
    optimizer, loss_fn = torch.optim.AdamW(models.parameters(), 3e-3), nn.CrossEntropyLoss()
    hook.on_start(models, optimizer, loss_fn)
    fold, at = torch.arange(len(x)) % 4, 0
    for number, model in enumerate(models):
        own_x, own_y = x[fold != number], y[fold != number]
        for _, _, rows in batches(len(own_x), 64, 110, seed):
            optimizer.zero_grad()
            out = model(own_x[rows])
            loss = loss_fn(out, own_y[rows])
            loss.backward()
            optimizer.step()
            hook.on_step(at, "train", loss, own_x[rows], out, own_y[rows])
            at += 1
