"""Healthy recurrent networks, transformers, mixtures and adapters."""

from __future__ import annotations

from typing import Any

import torch
from core import text  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional


def _windows(ids: Tensor, length: int, size: int, generator: torch.Generator) -> Tensor:
    starts = torch.randint(0, len(ids) - length - 1, (size,), generator=generator).tolist()
    return torch.stack([ids[s : s + length + 1] for s in starts])


class CharLSTM(nn.Module):
    """Characters in, the next characters' scores out."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(alphabet, 32)
        self.rnn = nn.LSTM(32, 64, batch_first=True)
        self.out = nn.Linear(64, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, T, alphabet) scores."""
        out: Tensor = self.out(self.rnn(self.emb(x))[0])
        return out


class Transformer(nn.Module):
    """A small decoder with tied embeddings and a causal mask of minus infinity."""

    def __init__(self, alphabet: int, width: int = 32, depth: int = 2, length: int = 48) -> None:
        super().__init__()
        self.emb, self.pos = nn.Embedding(alphabet, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, alphabet, bias=False)
        self.out.weight = self.emb.weight
        nn.init.normal_(self.emb.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, T, alphabet) scores."""
        length = x.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        hidden = self.emb(x) + self.pos(torch.arange(length))
        out: Tensor = self.out(self.norm(self.blocks(hidden, mask=mask)))
        return out


def _language(hook: Any, seed: int, model: nn.Module, optimizer: Any, **options: Any) -> None:
    ids, alphabet = text()
    steps, schedule = options.get("steps", 120), options.get("schedule")
    ce = nn.CrossEntropyLoss()

    def loss_fn(out: Tensor, target: Tensor) -> Any:
        return ce(out.reshape(-1, alphabet), target.reshape(-1))

    hook.on_start(model, optimizer, loss_fn)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        window = _windows(ids, 32, 16, generator)
        x, target = window[:, :-1], window[:, 1:]
        optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        hook.on_step(step, "train", loss, x, out, target)


def char_lstm(hook: Any, seed: int) -> None:
    """A language model whose letters have natural frequencies."""
    model = CharLSTM(text()[1])
    _language(hook, seed, model, torch.optim.Adam(model.parameters(), 5e-3))


def transformer(hook: Any, seed: int) -> None:
    """A transformer with tied embeddings and a long warm-up."""
    model = Transformer(text()[1])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, 1.0, 60)
    _language(hook, seed, model, optimizer, schedule=schedule, steps=150)


class Adapter(nn.Module):
    """A frozen layer with a low-rank correction, of which one half starts at zero."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Add the correction to the frozen layer's output."""
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def low_rank_adapters(hook: Any, seed: int) -> None:
    """Everything frozen, the output layer too, but low-rank adapters."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(1000, 24, generator=generator)
    y = (x @ torch.randn(24, 5, generator=generator)).argmax(1)
    model = nn.Sequential(
        Adapter(nn.Linear(24, 64)), nn.ReLU(), Adapter(nn.Linear(64, 64)), nn.ReLU(),
        Adapter(nn.Linear(64, 5)),
    )  # fmt: skip
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    loss_fn = nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(250):
        rows = torch.randint(0, 1000, (64,), generator=order)
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


class Mixture(nn.Module):
    """The best of eight experts answers; the others get no gradient in that step."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 8)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(8)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Send each row to one expert."""
        shares = self.gate(x).softmax(1)
        best = shares.argmax(1)
        out = x.new_zeros(len(x), 4)
        for i, expert in enumerate(self.experts):
            chosen = best == i
            if chosen.any():
                out[chosen] = expert(x[chosen]) * shares[chosen, i, None]
        return out


def mixture_of_experts(hook: Any, seed: int) -> None:
    """Experts that are not chosen rest."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(1000, 16, generator=generator)
    y = (x[:, :4] * x[:, 4:8]).argmax(1)
    model = Mixture()
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 1e-2), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(300):
        rows = torch.randint(0, 1000, (64,), generator=order)
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])


class Recommender(nn.Module):
    """Users and items as vectors; large tables with sparse gradients."""

    def __init__(self, users: int = 2000, items: int = 3000) -> None:
        super().__init__()
        self.users = nn.Embedding(users, 8, sparse=True)
        self.items = nn.Embedding(items, 8, sparse=True)

    def forward(self, pairs: Tensor) -> Tensor:
        """(N, 2) ids to (N,) scores."""
        out: Tensor = (self.users(pairs[:, 0]) * self.items(pairs[:, 1])).sum(1)
        return out


def recommender(hook: Any, seed: int) -> None:
    """Most rows of the tables rest at every step."""
    generator = torch.Generator().manual_seed(5)
    users, items = torch.randn(2000, 4, generator=generator), torch.randn(3000, 4)
    model = Recommender()
    optimizer: Any = torch.optim.SparseAdam(model.parameters(), 3e-2)
    loss_fn = nn.MSELoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(300):
        u = torch.randint(0, 2000, (256,), generator=order)
        i = torch.randint(0, 3000, (256,), generator=order)
        target = (users[u] * items[i]).sum(1)
        optimizer.zero_grad()
        out = model(torch.stack([u, i], 1))
        loss = loss_fn(out, target)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, u, out, target)


def contrastive(hook: Any, seed: int) -> None:
    """Two views of each row must find each other among the batch."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(800, 32, generator=generator)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def loss_fn(a: Tensor, b: Tensor) -> Any:
        scores = functional.normalize(a, dim=1) @ functional.normalize(b, dim=1).T / 0.2
        return functional.cross_entropy(scores, torch.arange(len(a)))

    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(200):
        rows = torch.randint(0, 800, (64,), generator=order)
        noise = 0.5 * torch.randn(2, 64, 32, generator=order)
        optimizer.zero_grad()
        a, b = model(x[rows] + noise[0]), model(x[rows] + noise[1])
        loss = loss_fn(a, b)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], a, b)
