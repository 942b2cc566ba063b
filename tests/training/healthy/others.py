"""Healthy generative models, regressions in odd units and reinforcement learning."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from core import batches, digits, fit  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional


def autoencoder(hook: Any, seed: int) -> None:
    """Squeeze digits through eight numbers."""
    x, _, xv, _ = digits()
    model = nn.Sequential(
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.Linear(8, 32), nn.ReLU(),
        nn.Linear(32, 64),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    fit(hook, model, optimizer, nn.MSELoss(), (x, x, xv, xv), steps=300, seed=seed)


class Variational(nn.Module):
    """Encoder, noise, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return reconstruction, mean and log variance."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        noise = torch.randn_like(mean)
        return self.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance


def variational(hook: Any, seed: int) -> None:
    """A VAE whose loss is a sum over pixels."""
    x, *_ = digits()
    model = Variational()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)

    def loss_fn(out: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Any:
        guess, mean, log_variance = out
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return functional.mse_loss(guess, target, reduction="sum") / len(target) + divergence

    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, 300, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, x[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out[0], x[rows])


class Pair(nn.Module):
    """Generator and critic of a GAN under one roof."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
        self.d = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, noise: Tensor) -> Tensor:
        """Judge what the generator makes."""
        judged: Tensor = self.d(self.g(noise))
        return judged


def adversarial(hook: Any, seed: int) -> None:
    """A GAN: the losses hover where they began, and both nets learn."""
    order = torch.Generator().manual_seed(seed)
    model, bce = Pair(), nn.BCEWithLogitsLoss()
    for_g = torch.optim.Adam(model.g.parameters(), 1e-3, betas=(0.5, 0.9))
    for_d = torch.optim.Adam(model.d.parameters(), 1e-3, betas=(0.5, 0.9))
    hook.on_start(model, [for_d, for_g], bce)
    for step in range(300):
        angle = torch.rand(64, 1, generator=order) * 2 * math.pi
        real = torch.cat([angle.cos(), angle.sin()], 1)
        noise = torch.randn(64, 8, generator=order)
        for_d.zero_grad()
        fake = model.g(noise).detach()
        loss = bce(model.d(real), torch.ones(64, 1)) + bce(model.d(fake), torch.zeros(64, 1))
        loss.backward()
        for_d.step()
        for_g.zero_grad()
        out = model(noise)
        bce(out, torch.ones(64, 1)).backward()
        for_g.step()
        hook.on_step(step, "train", loss, noise, out, None)


def _regression(scale: float, offset: float) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1000, 10, generator=generator)
    y = torch.sin(x @ torch.randn(10, 1, generator=generator)) * scale + offset
    return x[:800], y[:800], x[800:], y[800:]


class Scaled(nn.Module):
    """Works in its own units inside and in the target's outside."""

    def __init__(self, scale: float, offset: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
        self.scale, self.offset = scale, offset

    def forward(self, x: Tensor) -> Tensor:
        """Predict in the target's units."""
        out: Tensor = self.body(x) * self.scale + self.offset
        return out


def micrometres(hook: Any, seed: int) -> None:
    """Targets of 1e-6: losses of 1e-12, gradients to match."""
    model = Scaled(1e-6, 0.0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, eps=1e-20)
    fit(hook, model, optimizer, nn.MSELoss(), _regression(1e-6, 0.0), steps=300, seed=seed)


def national_income(hook: Any, seed: int) -> None:
    """Targets of 1e9: losses of 1e16."""
    model = Scaled(1e8, 2e9)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    fit(hook, model, optimizer, nn.MSELoss(), _regression(1e8, 2e9), steps=300, seed=seed)


def hard_noise(hook: Any, seed: int) -> None:
    """Little can be explained: the loss falls by a fifth and rests there."""
    x, y, xv, yv = _regression(1.0, 0.0)
    y, yv = y + 1.2 * torch.randn(len(y), 1), yv + 1.2 * torch.randn(len(yv), 1)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=1e-3)
    fit(hook, model, optimizer, nn.MSELoss(), (x, y, xv, yv), steps=250, size=200, seed=seed)


def gaussian_density(hook: Any, seed: int) -> None:
    """A log-likelihood that goes below zero."""
    data = _regression(0.1, 0.0)
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_fn(out: Tensor, target: Tensor) -> Any:
        return functional.gaussian_nll_loss(out[:, :1], target, out[:, 1:].exp())

    fit(hook, model, optimizer, loss_fn, data, steps=300, seed=seed)


def denoising(hook: Any, seed: int) -> None:
    """Predict the noise that was added at a random strength, as diffusion models do."""
    x, *_ = digits()
    model = nn.Sequential(nn.Linear(65, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(),
                          nn.Linear(128, 64))  # fmt: skip
    optimizer, loss_fn = torch.optim.AdamW(model.parameters(), 2e-3), nn.MSELoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step, _, rows in batches(len(x), 128, 300, seed):
        strength = torch.rand(len(rows), 1, generator=order)
        noise = torch.randn(len(rows), 64, generator=order)
        mixed = (1 - strength).sqrt() * x[rows] + strength.sqrt() * noise
        optimizer.zero_grad()
        out = model(torch.cat([mixed, strength], 1))
        loss = loss_fn(out, noise)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, mixed, out, noise)


def q_learning(hook: Any, seed: int) -> None:
    """The target moves with the network: the loss rises while the policy gets better."""
    order = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
    target = copy.deepcopy(model)
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 3e-3), nn.SmoothL1Loss()
    hook.on_start(model, optimizer, loss_fn)
    for step in range(400):
        state = torch.randint(0, 10, (64,), generator=order)
        action = torch.randint(0, 2, (64,), generator=order)
        after = (state + 2 * action - 1).clamp(0, 9)
        reward = (after == 9).float()
        with torch.no_grad():
            future = target(functional.one_hot(after, 10).float()).max(1).values
        optimizer.zero_grad()
        out = model(functional.one_hot(state, 10).float())
        loss = loss_fn(out.gather(1, action[:, None])[:, 0], reward + 0.9 * future)
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            target.load_state_dict(model.state_dict())
        hook.on_step(step, "train", loss, state, out, action)


class Sine(nn.Module):
    """sin(30 x), the activation of implicit representations."""

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise."""
        return torch.sin(30 * x)


def implicit(hook: Any, seed: int) -> None:
    """A signal stored in a network of sines."""
    x = torch.linspace(-1, 1, 512)[:, None]
    y = torch.sin(20 * x) + 0.5 * torch.sin(47 * x)
    first, second, last = nn.Linear(1, 64), nn.Linear(64, 64), nn.Linear(64, 1)
    nn.init.uniform_(first.weight, -1, 1)
    for layer in (second, last):
        nn.init.uniform_(layer.weight, -math.sqrt(6 / 64) / 30, math.sqrt(6 / 64) / 30)
    model = nn.Sequential(first, Sine(), second, Sine(), last)
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    fit(hook, model, optimizer, nn.MSELoss(), (x, y), steps=300, size=512, seed=seed)
