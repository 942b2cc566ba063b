"""Outputs that all become alike, and tokens of which one is nearly all; each with its repair."""

from __future__ import annotations

from typing import Any

import torch
from programs import batches, digits, fit, text, wave, windows  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional


def no_negatives(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Two views of a row should agree, and nothing keeps rows apart. Repair: the others repel."""
    x, *_ = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)

    def loss_fn(a: Tensor, b: Tensor) -> Tensor:
        a, b = functional.normalize(a, dim=1), functional.normalize(b, dim=1)
        if variant == "faulty":
            return 2 - 2 * (a * b).sum(1).mean()
        return functional.cross_entropy(a @ b.T / 0.2, torch.arange(len(a)))

    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rows = torch.randint(0, len(x), (64,), generator=order)
        noise = 0.3 * torch.randn(2, 64, 64, generator=order)
        optimizer.zero_grad()
        a, b = model(x[rows] + noise[0]), model(x[rows] + noise[1])
        loss: Any = loss_fn(a, b)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows] + noise[0], a, b)


def triplets_collapse(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A triplet loss without margin is content when all rows are one point. Repair: a margin."""
    x, y, *_ = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    margin = 0.0 if variant == "faulty" else 1.0

    def loss_fn(out: Tensor) -> Tensor:
        anchor, positive, negative = out.chunk(3)
        near, far = (anchor - positive).square().sum(1), (anchor - negative).square().sum(1)
        pull = near.mean() if variant == "faulty" else torch.zeros(())
        return functional.relu(near - far + margin).mean() + pull

    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    by_class = [torch.nonzero(y == c)[:, 0] for c in range(10)]
    for step in range(steps):
        classes = torch.randint(0, 10, (32,), generator=order).tolist()
        others = [(c + int(torch.randint(1, 10, (1,), generator=order))) % 10 for c in classes]
        rows = torch.stack([
            by_class[c][torch.randint(0, len(by_class[c]), (1,), generator=order)][0]
            for c in [*classes, *classes, *others]
        ])  # fmt: skip
        optimizer.zero_grad()
        out = model(x[rows])
        loss: Any = loss_fn(out)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


class Pair(nn.Module):
    """Generator and critic of a GAN under one roof."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
        self.d = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, noise: Tensor) -> Tensor:
        """Make points from noise."""
        made: Tensor = 2.5 * self.g(noise)
        return made


def one_mode(hook: Any, variant: str, seed: int, steps: int = 400) -> None:
    """A GAN whose generator is driven much harder than its critic makes one point of all noise.

    Repair: equal rates.
    """
    order = torch.Generator().manual_seed(seed)
    model, bce = Pair(), nn.BCEWithLogitsLoss()
    bad = variant == "faulty"
    for_g = torch.optim.Adam(model.g.parameters(), 3e-2 if bad else 1e-3, betas=(0.5, 0.9))
    for_d = torch.optim.Adam(model.d.parameters(), 2e-4 if bad else 1e-3, betas=(0.5, 0.9))
    hook.on_start(model, [for_d, for_g], bce)
    for step in range(steps):
        corner = torch.randint(0, 4, (64,), generator=order)
        points = torch.tensor([[2.0, 2.0], [2.0, -2.0], [-2.0, 2.0], [-2.0, -2.0]])
        real = points[corner] + 0.2 * torch.randn(64, 2, generator=order)
        noise = torch.randn(64, 8, generator=order)
        for_d.zero_grad()
        fake = model(noise).detach()
        loss = bce(model.d(real), torch.ones(64, 1)) + bce(model.d(fake), torch.zeros(64, 1))
        loss.backward()
        for_d.step()
        for_g.zero_grad()
        out = model(noise)
        bce(model.d(out), torch.ones(64, 1)).backward()
        for_g.step()
        hook.on_step(step, "train", loss, noise, out, real)


class Variational(nn.Module):
    """Encoder, noise, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 64) to (N, 80): reconstruction, mean and log variance."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        made = self.decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp())
        return torch.cat([made, mean, log_variance], 1)


def posterior_collapse(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A VAE whose divergence weighs fifty times too much: every row is rebuilt as the mean row.

    Repair: sums on both sides.
    """
    x, *_ = digits()
    model = Variational()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)

    def loss_fn(out: Tensor, target: Tensor) -> Tensor:
        made, mean, log_variance = out[:, :64], out[:, 64:72], out[:, 72:]
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        weight = 50.0 if variant == "faulty" else 1.0
        return (made - target).square().sum(1).mean() + weight * divergence

    fit(hook, model, optimizer, loss_fn, (x, x), steps=steps, seed=seed)


class Averaged(Variational):
    """The same with outputs of their own for mean and log variance."""

    def forward(self, x: Tensor) -> Any:
        """(N, 64) to reconstruction (N, 64), mean (N, 8) and log variance (N, 8)."""
        out = super().forward(x)
        return out[:, :64], out[:, 64:72], out[:, 72:]


def averaged_reconstruction(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A VAE that averages squared errors over pixels and sums the divergence. Repair: two sums."""
    x, *_ = digits()
    x = (x - x.mean(0)) / x.std(0).clamp_min(0.3)
    model = Averaged()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)

    def loss_fn(out: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        made, mean, log_variance = out
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        error = (made - target).square()
        return (error.mean() if variant == "faulty" else error.sum(1).mean()) + divergence

    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        loss: Any = loss_fn(out, x[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out[0], x[rows])


def hardest_triplets(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """The hardest pairs of each batch drive all rows to one point. Repair: every triplet counts."""
    x, y, *_ = digits()
    bad = variant == "faulty"
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2 if bad else 1e-3)

    def loss_fn(out: Tensor, target: Tensor) -> Tensor:
        apart = (out[:, None] - out[None]).square().sum(2)
        same = target[:, None] == target[None]
        if bad:
            far = apart.masked_fill(~same, -1.0).max(1).values
            near = apart.masked_fill(same, 1e9).min(1).values
            return functional.relu(far - near + 0.5).mean()
        triplets = functional.relu(apart[:, :, None] - apart[:, None, :] + 0.5)
        pairs = same & ~torch.eye(len(out), dtype=torch.bool)
        return triplets[pairs[:, :, None] & ~same[:, None, :]].mean()

    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 96 if bad else 32, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        loss: Any = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


class Language(nn.Module):
    """A small GRU over tokens."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.emb, self.rnn = nn.Embedding(alphabet, 32), nn.GRU(32, 48, batch_first=True)
        self.out = nn.Linear(48, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, alphabet, T) scores."""
        out: Tensor = self.out(self.rnn(self.emb(x))[0]).transpose(1, 2)
        return out


def _language(hook: Any, model: nn.Module, loss_fn: Any, rows: Any, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    hook.on_start(model, optimizer, loss_fn)
    for step in range(steps):
        window = rows()
        x, target = window[:, :-1], window[:, 1:]
        optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, target)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x, out, target)


def nearly_all_unknown(hook: Any, variant: str, seed: int, steps: int = 120) -> None:
    """A vocabulary of three letters: everything else is the unknown token. Repair: all letters."""
    ids, alphabet = text()
    if variant == "faulty":
        shares = torch.bincount(ids) / len(ids)
        rare = (shares - 0.013).abs().argsort()[:3].tolist()
        kept = [torch.where(ids == r, i + 1, 0) for i, r in enumerate(rare)]
        ids, alphabet = torch.stack(kept).sum(0), 4
    order = torch.Generator().manual_seed(seed)
    _language(hook, Language(alphabet), nn.CrossEntropyLoss(),
              lambda: windows(ids, 32, 16, order), steps)  # fmt: skip


def padding_in_loss(hook: Any, variant: str, seed: int, steps: int = 120) -> None:
    """Stretches of 8 to 16 letters in rows of 96, and the padding counts. Repair: it does not."""
    ids, alphabet = text()
    bad = variant == "faulty"
    order = torch.Generator().manual_seed(seed)

    def rows() -> Tensor:
        window: Tensor = windows(ids + 1, 95 if bad else 31, 16, order)
        if bad:
            lengths = torch.randint(8, 17, (16, 1), generator=order)
            window = torch.where(torch.arange(96) < lengths, window, 0)
        return window

    loss_fn = nn.CrossEntropyLoss(ignore_index=-100 if bad else 0)
    _language(hook, Language(alphabet + 1), loss_fn, rows, steps)


def variance_gone(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A layer starts at N(0, 1e-4) behind others of order 1: its outputs never vary."""
    model: Any = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                               nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))  # fmt: skip
    for i in (2, 4):
        if variant == "faulty":
            nn.init.normal_(model[i].weight, std=1e-4)
            nn.init.zeros_(model[i].bias)
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    fit(hook, model, optimizer, nn.MSELoss(), wave(), steps=steps, seed=seed)
