"""Healthy programs with odd data, odd units and odd losses."""

from __future__ import annotations

from typing import Any

import torch
from core import batches, digits, fit, table, text, wave  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional


def wrong_labels(hook: Any, seed: int) -> None:
    """Two labels in five are wrong, and it learns all the same."""
    x, y, xv, yv = digits()
    order = torch.Generator().manual_seed(4)
    wrong = torch.rand(len(y), generator=order) < 0.4
    y = torch.where(wrong, torch.randint(0, 10, y.shape, generator=order), y)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=200, seed=seed)


def ever_harder(hook: Any, seed: int) -> None:
    """A curriculum: noise grows with the steps, and the loss with it at times."""
    x, y, *_ = digits()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 2e-3), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step, _, rows in batches(len(x), 64, 300, seed):
        batch = x[rows] + step / 300 * torch.randn(len(rows), 64, generator=order)
        optimizer.zero_grad()
        out = model(batch)
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, batch, out, y[rows])


class Equilibrium(nn.Module):
    """The same tanh layer is applied until it settles."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.again = nn.Linear(64, 48), nn.Linear(48, 48, bias=False)
        self.out = nn.Linear(48, 10)
        nn.init.orthogonal_(self.again.weight, 0.8)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 64) pixels to (N, 10) scores."""
        drive, state = self.inward(x), x.new_zeros(len(x), 48)
        for _ in range(15):
            state = torch.tanh(drive + self.again(state))
        out: Tensor = self.out(state)
        return out


def equilibrium(hook: Any, seed: int) -> None:
    """Fifteen times through one tanh layer."""
    model = Equilibrium()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=200, seed=seed)


def triplets(hook: Any, seed: int) -> None:
    """A triplet loss with as many rows of each class in every batch; most triplets end at 0."""
    x, y, *_ = digits()
    by_class = [torch.nonzero(y == c)[:, 0] for c in range(10)]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 1e-3), nn.TripletMarginLoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(250):
        rows = torch.stack([r[torch.randint(0, len(r), (8,), generator=order)] for r in by_class])
        anchor, positive = rows[:, :4].reshape(-1), rows[:, 4:].reshape(-1)
        negative = rows.roll(1 + step % 9, 0)[:, :4].reshape(-1)
        optimizer.zero_grad()
        a, p, n = model(x[torch.cat([anchor, positive, negative])]).chunk(3)
        loss = loss_fn(a, p, n)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[anchor], a, y[anchor])


def actor_critic(hook: Any, seed: int) -> None:
    """Policy, value and entropy in one loss: it rises and falls while rewards grow."""
    order = torch.Generator().manual_seed(seed)
    prizes = torch.randn(6, 5, generator=order)
    model: Any = nn.ModuleDict({"actor": nn.Linear(32, 5), "critic": nn.Linear(32, 1),
                                "body": nn.Sequential(nn.Linear(6, 32), nn.Tanh())})  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    hook.on_start(model, optimizer, None)
    for step in range(400):
        state = torch.randint(0, 6, (32,), generator=order)
        hidden = model["body"](functional.one_hot(state, 6).float())
        policy: Any = torch.distributions.Categorical(logits=model["actor"](hidden))
        action, value = policy.sample(), model["critic"](hidden)[:, 0]
        reward = prizes[state, action] + 0.5 * torch.randn(32, generator=order)
        gain = (reward - value).detach()
        loss = -(policy.log_prob(action) * gain).mean() - 0.01 * policy.entropy().mean()
        loss = loss + 0.5 * functional.mse_loss(value, reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, state, policy.logits, action)


def pixels_in_unit_range(hook: Any, seed: int) -> None:
    """Images of 0..1, not centred, as ToTensor() leaves them; some pixels are always 0."""
    x, y, xv, yv = digits(image=True, raw=True)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data = (x / 16, y, xv / 16, yv)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, seed=seed)


def flat_pixels_in_unit_range(hook: Any, seed: int) -> None:
    """Flat images of 0..1 into a plain net; a dozen columns never vary."""
    x, y, xv, yv = digits(raw=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    data = (x / 16, y, xv / 16, yv)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, seed=seed)


def one_hot_columns(hook: Any, seed: int) -> None:
    """A table of numbers and one-hot columns, some of which are seldom 1."""
    x, y, xv, yv = wave()
    order = torch.Generator().manual_seed(4)
    shares = torch.tensor([0.6, 0.3, 0.05, 0.03, 0.02])
    kinds = torch.multinomial(shares, 1000, replacement=True, generator=order)
    hot = functional.one_hot(kinds, 5).float()
    y, yv = y + 0.5 * hot[:800, :1], yv + 0.5 * hot[800:, :1]
    model = nn.Sequential(nn.Linear(15, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data = (torch.cat([x, hot[:800]], 1), y, torch.cat([xv, hot[800:]], 1), yv)
    fit(hook, model, optimizer, nn.MSELoss(), data, seed=seed)


def rare_counts(hook: Any, seed: int) -> None:
    """Counts that are nearly always 0 under a Poisson loss."""
    x, *_ = wave()
    order = torch.Generator().manual_seed(4)
    y = torch.poisson((x[:, :1] - 1.5).exp(), generator=order)
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    fit(hook, model, optimizer, nn.PoissonNLLLoss(), (x, y), steps=250, seed=seed)


def squashed_targets(hook: Any, seed: int) -> None:
    """A sigmoid end for targets in 0..1, of which many lie at the rim."""
    x, y, xv, yv = wave(noise=0.02)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    data = (x, (2 * y + 0.5).clamp(0, 1), xv, (2 * yv + 0.5).clamp(0, 1))
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=300, seed=seed)


def open_at_zero(hook: Any, seed: int) -> None:
    """A ReLU end for targets that are never below 0 and often 0."""
    x, y, xv, yv = wave(noise=0.02)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1), nn.ReLU())
    nn.init.constant_(model[2].bias, 0.5)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data = (x, (y + 0.2).clamp_min(0), xv, (yv + 0.2).clamp_min(0))
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=300, seed=seed)


def wasserstein(hook: Any, seed: int) -> None:
    """A critic without bound, its weights clipped: losses of either sign, far from 0."""
    order = torch.Generator().manual_seed(seed)
    model: Any = nn.ModuleDict({
        "g": nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)),
        "d": nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)),
    })  # fmt: skip
    for_g = torch.optim.RMSprop(model["g"].parameters(), 5e-4)
    for_d = torch.optim.RMSprop(model["d"].parameters(), 1e-3)
    hook.on_start(model, [for_d, for_g], None)
    for step in range(300):
        angle = torch.rand(64, 1, generator=order) * 6.283
        real = torch.cat([angle.cos(), angle.sin()], 1)
        noise = torch.randn(64, 4, generator=order)
        for_d.zero_grad()
        loss = model["d"](model["g"](noise).detach()).mean() - model["d"](real).mean()
        loss.backward()
        for_d.step()
        for parameter in model["d"].parameters():
            parameter.data.clamp_(-0.2, 0.2)
        for_g.zero_grad()
        out = model["g"](noise)
        (-model["d"](out).mean()).backward()
        for_g.step()
        hook.on_step(step, "train", loss, noise, out, real)


def second_order(hook: Any, seed: int) -> None:
    """LBFGS calls the model several times a step."""
    x, y, *_ = table("wine")
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:100]
    x, y = x[rows], y[rows]
    model = nn.Sequential(nn.Linear(13, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer: Any = torch.optim.LBFGS(model.parameters(), 0.1, 5)
    loss_fn = nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        return loss

    for step in range(40):
        loss = optimizer.step(closure)
        hook.on_step(step, "train", loss, x, None, y)


class Tagger(nn.Module):
    """Scores for each place of a row of tokens."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(alphabet, 32, padding_idx=0)
        self.rnn, self.out = nn.GRU(32, 48, batch_first=True), nn.Linear(48, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, alphabet, T) scores."""
        out: Tensor = self.out(self.rnn(self.emb(x))[0]).transpose(1, 2)
        return out


def padding_ignored(hook: Any, seed: int) -> None:
    """Half of each batch is padding, which the loss leaves out."""
    ids, alphabet = text()
    model = Tagger(alphabet + 1)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss(ignore_index=0)
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(120):
        starts = torch.randint(0, len(ids) - 33, (16,), generator=order).tolist()
        window = torch.stack([ids[s : s + 33] for s in starts]) + 1
        lengths = torch.randint(8, 33, (16, 1), generator=order)
        window = torch.where(torch.arange(33) < lengths, window, 0)
        x, target = window[:, :-1], window[:, 1:]
        optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, target)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x, out, target)


def summed_over_all(hook: Any, seed: int) -> None:
    """A loss in millions: squared errors summed, in a small unit; the rate is chosen for it."""
    x, y, *_ = wave()

    def loss_fn(out: Tensor, target: Tensor) -> Any:
        return 1e5 * functional.mse_loss(out, target, reduction="sum")

    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-8, momentum=0.9)
    fit(hook, model, optimizer, loss_fn, (x, y), steps=300, seed=seed)


def in_time_order(hook: Any, seed: int) -> None:
    """A forecast whose batches come in the order of time, with a slow swing in the level."""
    time = torch.arange(4000.0)
    noise = 0.1 * torch.randn(4000, generator=torch.Generator().manual_seed(4))
    series = torch.sin(time / 7) + 0.5 * torch.sin(time / 300) + noise
    x = series.unfold(0, 16, 1)[:-1]
    y = series[16:, None]
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.MSELoss(), (x, y), steps=300, seed=seed, shuffle=False)


def parity(hook: Any, seed: int) -> None:
    """The product of three signs out of twenty: ln 2 for 150 steps and more, then it is found."""
    order = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 1e-3), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    for step in range(450):
        x = torch.randint(0, 2, (512, 20), generator=order).float() * 2 - 1
        y = (x[:, 1] * x[:, 4] * x[:, 9] > 0).long()
        optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, y)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x, out, y)


class Grey(nn.Module):
    """A VAE over grey pixels as logits, which know the mean picture long before anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, 64) to logits (N, 64), mean (N, 8) and log variance (N, 8)."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        noise = torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(mean + noise), mean, log_variance


def divergence_warms_up(hook: Any, seed: int) -> None:
    """The weight of the divergence grows for 200 steps; outputs point one way at first."""
    x = digits(raw=True)[0] / 16
    model = Grey()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    hook.on_start(model, optimizer, None)
    for step, _, rows in batches(len(x), 64, 400, seed):
        optimizer.zero_grad()
        out, mean, log_variance = model(x[rows])
        rebuilt = functional.binary_cross_entropy_with_logits(out, x[rows], reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        loss = rebuilt / len(rows) + min(1.0, step / 200) * divergence
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, x[rows])
