"""Training loops that do not do what their author meant, each with its repair."""

from __future__ import annotations

import time
from typing import Any

import torch
from programs import (  # type: ignore[import-not-found]
    batches,
    digits,
    fit,
    text,
    validate,
    windows,
)
from torch import Tensor, nn


def _mlp(width: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def zero_grad_missing_adam(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Adam without zero_grad: the direction of all steps so far. Repair: zero_grad each step."""
    x, y, *validation = digits()
    model, loss_fn = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        if variant != "faulty":
            optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
        if over:
            validate(hook, step, model, loss_fn, tuple(validation))


class Decoder(nn.Module):
    """A small causal transformer over characters."""

    def __init__(self, alphabet: int, *, norm_first: bool = True, depth: int = 2) -> None:
        super().__init__()
        self.emb, self.pos = nn.Embedding(alphabet, 32), nn.Embedding(32, 32)
        block = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=norm_first)
        self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.out = nn.Linear(32, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, alphabet, T) scores."""
        length = x.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        hidden = self.emb(x) + self.pos(torch.arange(length))
        out: Tensor = self.out(self.blocks(hidden, mask=mask)).transpose(1, 2)
        return out


def zero_grad_missing_transformer(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """A transformer under AdamW without zero_grad. Repair: zero_grad each step."""
    ids, alphabet = text()
    model, loss_fn = Decoder(alphabet), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(steps):
        window = windows(ids, 32, 16, order)
        x, target = window[:, :-1], window[:, 1:]
        if variant != "faulty":
            optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, target)
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x, out, target)


def zero_grad_of_another(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Encoder and decoder have an optimizer each; the encoder's zero_grad is called twice.

    Repair: one call for each.
    """
    x, _, xv, _ = digits()
    model: Any = nn.Sequential(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)),
        nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64)),
    )
    encoder = torch.optim.Adam(model[0].parameters(), 5e-3)
    decoder = torch.optim.Adam(model[1].parameters(), 5e-3)
    loss_fn = nn.MSELoss()
    hook.on_start(model, [encoder, decoder], loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        encoder.zero_grad()
        (encoder if variant == "faulty" else decoder).zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, x[rows])
        loss.backward()
        encoder.step()
        decoder.step()
        hook.on_step(step, "train", loss, x[rows], out, x[rows])
        if over:
            validate(hook, step, model, loss_fn, (xv, xv))


def zero_grad_too_late(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """zero_grad between backward and step: there is nothing to step with. Repair: before."""
    x, y, *validation = digits()
    model, loss_fn = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        if variant != "faulty":
            optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        if variant == "faulty":
            optimizer.zero_grad()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
        if over:
            validate(hook, step, model, loss_fn, tuple(validation))


def step_forgotten(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Only the scheduler is stepped, never the optimizer. Repair: both."""
    x, y, *validation = digits()
    model, loss_fn = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        if variant != "faulty":
            optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
        if over:
            validate(hook, step, model, loss_fn, tuple(validation))


def optimizer_of_a_copy(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """The model is built anew behind the optimizer, which still holds the old one's tensors.

    Repair: the optimizer is built last.
    """
    model = _mlp()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    if variant == "faulty":
        model = _mlp()
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def head_replaced(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """The last layer is replaced after the optimizer was built. Repair: before."""
    model: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1000))
    if variant != "faulty":
        model[2] = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    if variant == "faulty":
        model[2] = nn.Linear(64, 10)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def half_the_layers(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """The optimizer gets the first block's parameters alone. Repair: all."""
    body = nn.Sequential(nn.Linear(64, 16), nn.ReLU())
    model = nn.Sequential(body, nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))
    chosen = body.parameters() if variant == "faulty" else model.parameters()
    optimizer = torch.optim.Adam(chosen, 3e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def encoder_left_out(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """An autoencoder of which the optimizer gets the decoder alone. Repair: both."""
    x, _, xv, _ = digits()
    encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 6))
    decoder = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 64))
    model = nn.Sequential(encoder, decoder)
    chosen = decoder.parameters() if variant == "faulty" else model.parameters()
    optimizer = torch.optim.Adam(chosen, 4e-3)
    fit(hook, model, optimizer, nn.MSELoss(), (x, x, xv, xv), steps=steps, seed=seed)


class Cut(nn.Module):
    """A body and a head; between them the graph may be cut."""

    def __init__(self, *, detach: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        self.head, self.detach = nn.Linear(8, 10), detach

    def forward(self, x: Tensor) -> Tensor:
        """(N, 64) pixels to (N, 10) scores."""
        hidden = self.body(x)
        out: Tensor = self.head(hidden.detach() if self.detach else hidden)
        return out


def graph_cut(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A detach() in the middle: no gradient ever reaches the body. Repair: none."""
    model = Cut(detach=variant == "faulty")
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def all_but_biases_frozen(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A filter of names freezes every fresh weight; only biases train. Repair: nothing frozen."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
                          nn.Linear(32, 10))  # fmt: skip
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(variant != "faulty" or "weight" not in name)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def loader_hangs(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """The loader hangs for some seconds in the middle of an epoch. Repair: it does not."""
    x, y, *_ = digits()
    model, loss_fn = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    hook.on_start(model, optimizer, loss_fn)
    for step, _, rows in batches(len(x), 64, steps, seed):
        if variant == "faulty" and step == 120:
            time.sleep(4)
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
