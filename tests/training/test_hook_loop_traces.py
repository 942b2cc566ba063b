"""Looking at the loop changes nothing and leaves nothing behind."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.training.bodies import (
    LOSS,
    X,
    Y,
    accumulate,
    backward,
    facts,
    never_zero,
    normed,
    sgd,
    zero_first,
    zero_in_place,
)
from tests.training.loops import mlp, train, watched
from tests.unit.hook.recording import read
from trainwarden.store.memory import MemoryObjects


def stepless_body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    optimizer.zero_grad()
    backward(model)


def clipped(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    backward(model)
    clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    if step % 3 == 0:
        with torch.no_grad():
            LOSS(model(X), Y)


@pytest.mark.parametrize("body", [zero_in_place, accumulate, never_zero, stepless_body, clipped])
def test_no_bit_of_training_is_changed(body: Callable[..., object]) -> None:
    ends = []
    for hooked in (True, False):
        model = normed()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        hook = watched(MemoryObjects(), model, optimizer, LOSS, save_interval=4, dense_steps=2)
        if not hooked:
            hook.close()
        torch.manual_seed(1)
        for step in range(20):
            body(model, optimizer, step)
        hook.close()
        ends.append([*model.state_dict().values(), *(p.grad for p in model.parameters())])
    for ours, theirs in zip(*ends, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def test_probes_do_not_keep_a_model_alive() -> None:
    model = mlp()
    optimizer = sgd(model)
    watched(MemoryObjects(), model, optimizer, LOSS)
    never_zero(model, optimizer, 0)
    backward(model)
    parameters, seen = list(model.parameters()), weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert seen() is None
    assert not any(p._backward_hooks for p in parameters)


def test_probes_and_patches_are_gone_after_close() -> None:
    model, before = mlp(), torch.autograd.backward
    optimizer = sgd(model)
    with watched(MemoryObjects(), model, optimizer, LOSS):
        backward(model)
        assert any(p._backward_hooks for p in model.parameters())
        twin = copy.deepcopy(model)
        assert not any(p._backward_hooks for p in twin.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert b"trainwarden" not in pickle.dumps(list(model.parameters()))
    assert not any(p._backward_hooks for p in model.parameters())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    assert torch.autograd.backward is before


def test_between_saved_steps_there_are_no_probes() -> None:
    model = mlp()
    optimizer = sgd(model)
    with watched(MemoryObjects(), model, optimizer, LOSS, save_interval=10, dense_steps=2):
        train(model, optimizer, LOSS, (X, Y), steps=4)
        assert not any(p._backward_hooks for p in model.parameters())


def test_a_compiled_model_is_not_compiled_again() -> None:
    compiled = 0

    def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    torch._dynamo.reset()
    counts, store = [], MemoryObjects()
    for hooked in (False, True):
        model, compiled = mlp(), 0
        optimizer = sgd(model)
        fast: Any = torch.compile(model, backend=compiler)
        target = store if hooked else MemoryObjects()
        hook = watched(target, fast, optimizer, LOSS, save_interval=5, dense_steps=3)
        if not hooked:
            hook.close()
        for _ in range(12):
            zero_first(fast, optimizer, 0)
        hook.close()
        counts.append(compiled)
        torch._dynamo.reset()
    assert counts == [1, 1]
    assert set(facts(read(store), "gradients_carried")) == {0.0}
