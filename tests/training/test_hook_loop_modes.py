"""Modules in the wrong mode, and validation in training mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.bodies import LOSS, X, Y, facts, normed, sgd, zero_first
from tests.training.loops import mlp, record
from tests.unit.hook.recording import Recording
from trainwarden.hook.torch.modes import probability
from trainwarden.model import Mode


def modes_of(recording: Recording) -> dict[str, float]:
    names = (
        "batchnorms",
        "batchnorms_in_eval",
        "batchnorms_in_eval_trainable",
        "dropouts",
        "dropouts_in_eval",
        "dropout_max",
        "batchnorm_momentum_max",
    )
    found = {name: set(facts(recording, name)) for name in names}
    assert all(len(values) == 1 for values in found.values()), found
    return {name: value for name, (value,) in found.items() if value is not None}


def run_modes(model: nn.Module, prepare: Callable[[nn.Module], object]) -> dict[str, float]:
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for step in range(4):
            prepare(model)
            zero_first(model, optimizer, step)

    return modes_of(record(model, loop, optimizer, LOSS))


def test_modules_in_training_mode_are_counted_if_the_mode_matters_to_them() -> None:
    assert run_modes(normed(), lambda model: model.train()) == {
        "batchnorms": 1.0,  # one without running statistics is the same in both modes
        "batchnorms_in_eval": 0.0,
        "batchnorms_in_eval_trainable": 0.0,
        "dropouts": 1.0,  # one that drops nothing is none
        "dropouts_in_eval": 0.0,
        "dropout_max": 0.4,
        "batchnorm_momentum_max": 0.2,
    }


def test_a_model_that_trains_in_eval_mode_is_seen_to() -> None:
    found = run_modes(normed(), lambda model: model.eval())
    assert found["batchnorms_in_eval"] == found["batchnorms_in_eval_trainable"] == 1.0
    assert found["dropouts_in_eval"] == 1.0


def test_batch_norms_that_are_frozen_on_purpose_are_not_trainable() -> None:
    def freeze(model: nn.Module) -> None:
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.eval().requires_grad_(requires_grad=False)

    found = run_modes(normed(), freeze)
    assert found["batchnorms_in_eval"] == 1.0
    assert found["batchnorms_in_eval_trainable"] == 0.0
    assert found["dropouts_in_eval"] == 0.0


def test_a_model_without_such_modules_has_none() -> None:
    found = run_modes(mlp(), lambda model: model.train())
    assert set(found.values()) == {0.0}
    assert "dropout_max" not in found


def test_dropout_inside_of_attention_and_recurrence_counts() -> None:
    assert [
        probability(module)
        for module in (
            nn.MultiheadAttention(8, 2, dropout=0.3),
            nn.LSTM(8, 8, num_layers=2, dropout=0.6),
            nn.Dropout2d(0.25),
        )
    ] == [0.3, 0.6, 0.25]
    assert probability(nn.LSTM(8, 8)) < 0


@pytest.mark.parametrize("module", [True, False], ids=["module", "function"])
@pytest.mark.parametrize("given", [True, False])
def test_a_validation_in_training_mode_is_counted_up_to_the_next_saved_step(
    *, module: bool, given: bool
) -> None:
    model = normed()
    optimizer = sgd(model)
    loss_fn = nn.CrossEntropyLoss()

    def loop(_: object) -> None:
        for step in range(20):
            zero_first(model, optimizer, step)
            if step in {12, 15}:
                with torch.no_grad():
                    for _ in range(3):
                        out = model(X)
                        loss_fn(out, Y) if module else functional.cross_entropy(out, Y)

    found = record(model, loop, optimizer, loss_fn if given else None, save_interval=5)
    counts = dict(zip(found.steps, facts(found, "validation_in_training_mode"), strict=True))
    assert counts[15] == 3.0  # before step 15
    assert sum(count or 0 for count in counts.values()) == 3.0
    assert not found.of(Mode.EVAL)


@pytest.mark.parametrize("what", ["eval mode", "no loss", "loss with gradients", "no target"])
def test_what_is_no_validation_in_training_mode(what: str) -> None:
    model = normed()
    optimizer = sgd(model)

    def check() -> None:
        model.train(what != "eval mode")
        with torch.no_grad():
            out = model(X)
            if what == "eval mode":
                LOSS(out, Y)
            if what == "no target":
                functional.softmax(out, dim=1).mean()
        if what == "loss with gradients":  # a teacher's targets, as in DQN or distillation
            out.requires_grad_(requires_grad=True)
            functional.mse_loss(out, torch.zeros_like(out))
        model.train()

    def loop(_: object) -> None:
        for step in range(8):
            zero_first(model, optimizer, step)
            check()

    found = record(model, loop, optimizer, LOSS)
    assert set(facts(found, "validation_in_training_mode")) == {0.0}
