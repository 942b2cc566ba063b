"""Values that stop being numbers, and number formats that are too short; each with its repair."""

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


def _mlp(width: int = 64, inputs: int = 64, outputs: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def log_of_zero(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Cross entropy by hand: the log of a softmax that rounds to 0. Repair: log_softmax."""
    model = _mlp(128)
    optimizer = torch.optim.SGD(model.parameters(), 2.0, momentum=0.9)
    if variant != "faulty":
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def loss_fn(out: Tensor, target: Tensor) -> Tensor:
        exact = out.log_softmax(1) if variant != "faulty" else out.softmax(1).log()
        return -exact[torch.arange(len(target)), target].mean()

    fit(hook, model, optimizer, loss_fn, digits(), steps=steps, seed=seed)


def zero_by_zero(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Columns standardised by hand; one that never varies becomes 0/0. Repair: a small epsilon."""
    x, y, xv, yv = digits(raw=True)
    deviation = x.std(0)
    deviation = deviation if variant == "faulty" else deviation + 1e-2
    data = ((x - x.mean(0)) / deviation, y, (xv - x.mean(0)) / deviation, yv)
    model = _mlp()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=steps, seed=seed)


class Directions(nn.Module):
    """Rows are brought to length 1 inside the network."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(64, 16), nn.ReLU()), nn.Linear(16, 10)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """A row of which no unit is active has length 0."""
        hidden = self.body(x)
        length = (hidden.square().sum(1, keepdim=True) + self.epsilon).sqrt()
        out: Tensor = self.head(5 * hidden / length)
        return out


def norm_of_nothing(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A hidden row divided by its own length, 0 for a blank image. Repair: an epsilon.

    The blank images come once in a while, so the first steps are sound.
    """
    x, y, xv, yv = digits()
    x, y = x.clone(), y.clone()
    model: Any = Directions(0.0 if variant == "faulty" else 1e-6)
    nn.init.zeros_(model.body[0].bias)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:4]
    x[rows] = 0.0
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


def exp_overflow(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Counts under a Poisson loss whose rate is exp(output) of raw columns: exp overflows.

    Repair: standardised columns and a smaller rate.
    """
    bad = variant == "faulty"
    x, y, xv, yv = table("breast_cancer", standardised=not bad)
    data = (x, 3 * y.float()[:, None], xv, 3 * yv.float()[:, None])
    model = _mlp(32, 30, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    fit(hook, model, optimizer, nn.PoissonNLLLoss(), data, steps=steps, size=32, seed=seed)


def log_of_negative(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A Gaussian likelihood whose variance is the raw output: the log of a negative number.

    Repair: softplus.
    """
    model: Any = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2))
    with torch.no_grad():
        model[2].bias[1] = 1.0
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_fn(out: Tensor, target: Tensor) -> Tensor:
        raw = out[:, 1:]
        variance = raw if variant == "faulty" else nn.functional.softplus(raw) + 1e-2
        return (variance.log() + (out[:, :1] - target).square() / variance).mean() / 2

    fit(hook, model, optimizer, loss_fn, wave(), steps=steps, seed=seed)


def half_overflow(hook: Any, variant: str, seed: int, steps: int = 150) -> None:
    """All in fp16, squared errors of targets of some hundreds: above 65,504 is infinity.

    Repair: float32.
    """
    kind = torch.float16 if variant == "faulty" else torch.float32
    x, y, *_ = wave()
    x, y = x.to(kind), (200 * y + 600).to(kind)
    model = _mlp(32, 10, 1).to(kind)
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 0.1, eps=1e-4), nn.MSELoss()
    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


def adam_epsilon(hook: Any, variant: str, seed: int, steps: int = 150) -> None:
    """model.half() under Adam: eps 1e-8 is 0 in fp16, and 0/0 follows. Repair: float32 weights."""
    kind = torch.float16 if variant == "faulty" else torch.float32
    x, y, *_ = digits()
    model = _mlp().to(kind)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, foreach=False)
    loss_fn = nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows].to(kind))
        loss = loss_fn(out.float(), y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


def loss_scale_collapse(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Under GradScaler every backward pass overflows, so each step is skipped and the scale halves.

    A penalty on the scores is weighted by 1e6 before it is squared. Repair: by 1.
    """
    x, y, *_ = digits()
    model = _mlp()
    optimizer, loss_fn = torch.optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    hook.on_start(model, optimizer, loss_fn)
    weight = 1e6 if variant == "faulty" else 1.0
    for step, _, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x[rows])
            loss = loss_fn(out.float(), y[rows]) + 1e-3 * (weight * out).square().mean().float()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


def bf16_sgd(hook: Any, variant: str, seed: int, steps: int = 400) -> None:
    """bfloat16 weights under SGD at a rate for fine-tuning: most updates are rounded away.

    Repair: float32 weights at the same rate, bfloat16 only under autocast.
    """
    bad = variant == "faulty"
    x, y, xv, yv = digits()
    kind = torch.bfloat16 if bad else torch.float32
    model: Any = _mlp(128).to(kind)
    with torch.no_grad():
        for parameter in model.parameters():  # as large as trained weights are
            parameter.add_(parameter.sign() * 0.06)
    optimizer, loss_fn = torch.optim.SGD(model.parameters(), 3e-3), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows].to(kind))
        loss = loss_fn(out.float(), y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
        if over:
            validate(hook, step, model, lambda o, t: loss_fn(o.float(), t), (xv.to(kind), yv))
