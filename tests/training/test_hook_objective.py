"""What loss functions are given, and what is predicted, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.loops import diabetes, digits, evaluate, mlp, record, train
from tests.unit.hook.recording import Recording
from trainwarden.hook import Hook
from trainwarden.model import Collection, Mode

LossFn = Callable[..., torch.Tensor]


def facts(recording: Recording, mode: Mode = Mode.TRAIN, at: int = 0) -> dict[str, float]:
    return dict(recording.of(mode)[at].scalars.get(Collection.OBJECTIVE, {}))


class Free(nn.Module):
    """A model whose output is its parameter: what the loss sees can be chosen freely."""

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__()
        self.output = nn.Parameter(output.clone())

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return self.output * 1.0


def one_step(output: torch.Tensor, loss_of: LossFn, **options: Any) -> Recording:
    """Watch one step on ``loss_of(output)``."""
    model = Free(output)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def loop(_: Hook) -> None:
        loss = loss_of(model(torch.zeros(len(output), 2)))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return record(model, loop, optimizer, **options)


LOGITS = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(1))


def test_cross_entropy_of_logits() -> None:
    found = facts(one_step(LOGITS, lambda x: functional.cross_entropy(x, LABELS)))
    x, y = LOGITS.numpy().astype(float), LABELS.numpy()
    expected = {
        "classes": 10.0,
        "accuracy": float((x.argmax(1) == y).mean()),
        "rows_sum_to_one": 0.0,
        "log_rows_sum_to_one": 0.0,
        "inside_unit": float(((x >= 0) & (x <= 1)).mean()),
        "negative": float((x < 0).mean()),
        "broadcast": 0.0,
        "input_size": 640.0,
        "target_size": 64.0,
        "impossible_targets": 0.0,
        "ignored": 0.0,
        "target_min": float(y.min()),
        "target_max": float(y.max()),
        "target_std": float(y.std()),
        "input_min": float(x.min()),
        "input_max": float(x.max()),
        "input_std": float(x.std()),
        "weighted": 0.0,
        "smoothing": 0.0,
        "reduction_sum": 0.0,
        "unreduced": 0.0,
    }
    assert {name.removeprefix("cross_entropy."): v for name, v in found.items()} == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize(
    ("transform", "share", "log_share"),
    [
        (lambda x: x.softmax(1), 1.0, 0.0),
        (lambda x: x.log_softmax(1), 0.0, 1.0),
        (torch.sigmoid, 0.0, 0.0),
        (lambda x: x, 0.0, 0.0),
    ],
)
def test_probabilities_are_told_from_logits(
    transform: Callable[[torch.Tensor], torch.Tensor], share: float, log_share: float
) -> None:
    found = facts(one_step(LOGITS, lambda x: functional.nll_loss(transform(x), LABELS)))
    assert found["nll_loss.rows_sum_to_one"] == share
    assert found["nll_loss.log_rows_sum_to_one"] == log_share


def test_the_arguments_are_known_by_position_and_by_name() -> None:
    weight, y = torch.ones(10), LABELS.clone()
    y[:16] = 3

    def by_position(x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x, y, weight, None, 3, None, "sum", 0.1)

    def by_name(x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(
            target=y, label_smoothing=0.1, input=x, reduction="sum", ignore_index=3, weight=weight
        )

    for loss_of in (by_position, by_name):
        found = facts(one_step(LOGITS, loss_of))
        assert found["cross_entropy.weighted"] == 1.0
        assert found["cross_entropy.smoothing"] == 0.1
        assert found["cross_entropy.reduction_sum"] == 1.0
        assert found["cross_entropy.ignored"] == pytest.approx(float((y == 3).float().mean()))
        kept = y != 3
        right = (LOGITS.argmax(1) == y)[kept].float().mean()
        assert found["cross_entropy.accuracy"] == pytest.approx(float(right))


def test_images_of_labels_have_their_classes_second() -> None:
    x = torch.randn(2, 5, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.randint(0, 5, (2, 8, 8), generator=torch.Generator().manual_seed(1))
    recording = one_step(x, lambda out: functional.cross_entropy(out, y))
    found = facts(recording)
    assert found["cross_entropy.classes"] == 5.0
    assert found["cross_entropy.accuracy"] == pytest.approx(
        float((x.argmax(1) == y).float().mean())
    )
    counts = torch.bincount(x.argmax(1).flatten(), minlength=5).tolist()
    assert recording.observations[0].labels["predicted/0"] == dict(enumerate(counts))


def test_targets_may_be_probabilities() -> None:
    y = functional.one_hot(LABELS, 10).float() * 0.9 + 0.01
    found = facts(one_step(LOGITS, lambda x: functional.cross_entropy(x, y)))
    assert found["cross_entropy.accuracy"] == float((LOGITS.argmax(1) == LABELS).float().mean())
    assert found["cross_entropy.target_max"] == pytest.approx(0.91)
    assert found["cross_entropy.impossible_targets"] == 0.0
    found = facts(one_step(LOGITS, lambda x: functional.cross_entropy(x, y * 2)))
    assert found["cross_entropy.impossible_targets"] == pytest.approx(0.1)


def test_an_unreduced_loss_and_a_single_sample_are_looked_at() -> None:
    found = facts(
        one_step(LOGITS, lambda x: functional.cross_entropy(x, LABELS, reduction="none").mean())
    )
    assert found["cross_entropy.classes"] == 10.0
    found = facts(one_step(LOGITS[0], lambda x: functional.cross_entropy(x, LABELS[0])))
    assert found["cross_entropy.accuracy"] == float(LOGITS[0].argmax() == LABELS[0])


def test_a_large_vocabulary_is_sampled() -> None:
    x = torch.zeros(512, 4096)
    x[:, 7] = 1.0
    recording = one_step(x, lambda out: functional.cross_entropy(out, torch.full((512,), 7)))
    found = facts(recording)
    assert found["cross_entropy.accuracy"] == 1.0
    assert sum(recording.observations[0].labels["predicted/0"].values()) == 16
    assert "confusion/0" not in recording.observations[0].labels


class TestBinary:
    X = torch.tensor([[-2.0], [1.0], [3.0], [-1.0]])
    Y = torch.tensor([[0.0], [1.0], [0.0], [0.0]])

    def test_logits_are_judged_by_their_sign(self) -> None:
        recording = one_step(
            self.X, lambda x: functional.binary_cross_entropy_with_logits(x, self.Y)
        )
        found = facts(recording)
        name = "binary_cross_entropy_with_logits"
        assert (found[f"{name}.classes"], found[f"{name}.accuracy"]) == (2.0, 0.75)
        assert recording.observations[0].labels["predicted/0"] == {0: 2, 1: 2}
        assert recording.observations[0].labels["correct/0"] == {0: 2, 1: 1}
        assert recording.observations[0].labels["confusion/0"] == {0: 2, 1: 1, 3: 1}

    def test_probabilities_are_judged_at_one_half(self) -> None:
        recording = one_step(
            self.X, lambda x: functional.binary_cross_entropy(torch.sigmoid(x), self.Y)
        )
        assert facts(recording)["binary_cross_entropy.accuracy"] == 0.75
        assert facts(recording)["binary_cross_entropy.inside_unit"] == 1.0

    def test_targets_outside_of_zero_and_one_are_impossible(self) -> None:
        y = torch.tensor([[0.0], [2.0], [-1.0], [float("nan")]])
        found = facts(one_step(self.X, lambda x: functional.binary_cross_entropy_with_logits(x, y)))
        assert found["binary_cross_entropy_with_logits.impossible_targets"] == 0.75

    def test_one_hot_rows_are_judged_by_their_largest(self) -> None:
        y = functional.one_hot(LABELS, 10).float()
        found = facts(one_step(LOGITS, lambda x: functional.binary_cross_entropy_with_logits(x, y)))
        name = "binary_cross_entropy_with_logits"
        assert found[f"{name}.classes"] == 10.0
        assert found[f"{name}.accuracy"] == float((LOGITS.argmax(1) == LABELS).float().mean())


def test_shapes_that_broadcast_are_told() -> None:
    x, y = torch.randn(8, 1), torch.randn(8)
    with pytest.warns(UserWarning, match="target size"):
        recording = one_step(x, lambda out: functional.mse_loss(out, y))
    found = facts(recording)
    assert found["mse_loss.broadcast"] == 1.0
    assert (found["mse_loss.input_size"], found["mse_loss.target_size"]) == (8.0, 8.0)
    assert found["mse_loss.target_std"] == pytest.approx(float(y.std(correction=0)))
    assert "mse_loss.accuracy" not in found
    found = facts(one_step(x, lambda out: functional.mse_loss(out, y.view(-1, 1))))
    assert found["mse_loss.broadcast"] == 0.0


def test_nan_in_inputs_and_targets_does_no_harm() -> None:
    x, y = LOGITS.clone(), torch.full((64, 10), float("nan"))
    x[0, 0] = float("nan")
    found = facts(one_step(x, lambda out: functional.mse_loss(out, y)))
    assert found["mse_loss.impossible_targets"] == 1.0
    assert "mse_loss.target_min" not in found
    assert np.isfinite(found["mse_loss.input_std"])


def test_a_loss_module_and_a_function_around_one_give_the_same_facts() -> None:
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    wrapped = lambda x, y: loss_fn(x, y)  # noqa: E731, PLW0108 - a function around it
    given: list[tuple[Any, Any]] = [(loss_fn, loss_fn), (None, loss_fn), (None, wrapped)]
    results = []
    for argument, used in given:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def loop(_: Hook, model: Any = model, used: Any = used, optimizer: Any = optimizer) -> None:
            train(model, optimizer, used, digits(), steps=3)

        recording = record(model, loop, optimizer, argument)
        assert [len(obs.scalars["losses"]) for obs in recording.observations] == [1, 1, 1]
        results.append([facts(recording, at=i) for i in range(3)])
    assert results[0] == results[1] == results[2]
    assert results[0][0]["cross_entropy.smoothing"] == 0.1


class Headed(nn.Module):
    """Computes its loss itself, as the models of the Hugging Face library do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.body(x)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def test_a_model_that_computes_its_loss_itself_is_looked_at() -> None:
    torch.manual_seed(0)
    model = Headed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = digits(64)
    losses = []

    def loop(_: Hook) -> None:
        for _step in range(3):
            optimizer.zero_grad()
            loss = model(x, y)["loss"]
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))

    recording = record(model, loop, optimizer)
    assert recording.scalars("loss") == pytest.approx(losses)
    assert facts(recording)["cross_entropy.classes"] == 10.0
    assert sum(recording.observations[0].labels["predicted/0"].values()) == 64


def test_a_loss_by_hand_has_no_facts() -> None:
    x, y = diabetes()
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recording = record(
        model,
        lambda _: train(model, optimizer, lambda a, b: ((a - b) ** 2).mean(), (x, y), steps=2),
        optimizer,
    )
    assert facts(recording) == {}
    assert len(recording.scalars("loss")) == 2


def test_an_evaluation_pass_keeps_the_essentials_of_all_its_batches() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = digits()

    def loop(_: Hook) -> None:
        train(model, optimizer, loss_fn, (x, y), steps=12)
        evaluate(model, loss_fn, (x, y))

    recording = record(model, loop, optimizer, loss_fn)
    with torch.no_grad():
        predicted = model(x).argmax(1)
    found = facts(recording, Mode.EVAL)
    assert found == {
        "cross_entropy.classes": 10.0,
        "cross_entropy.accuracy": pytest.approx(float((predicted == y).float().mean())),
        "cross_entropy.impossible_targets": 0.0,
        "cross_entropy.target_min": 0.0,
        "cross_entropy.target_max": 9.0,
    }
    labels = recording.of(Mode.EVAL)[0].labels
    counts = torch.bincount(predicted, minlength=10).tolist()
    assert labels["predicted/0"] == {k: n for k, n in enumerate(counts) if n}
    pairs = torch.bincount(y * 10 + predicted, minlength=100).tolist()
    assert labels["confusion/0"] == {k: n for k, n in enumerate(pairs) if n}


def test_two_classifiers_are_kept_apart() -> None:
    y = LABELS % 3

    def both(x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x, LABELS) + functional.cross_entropy(x[:, :3], y)

    recording = one_step(LOGITS, both)
    found = facts(recording)
    assert (found["cross_entropy.classes"], found["cross_entropy:1.classes"]) == (10.0, 3.0)
    assert recording.observations[0].labels.keys() >= {"predicted/0", "predicted/1"}


def test_what_is_not_wanted_is_not_told() -> None:
    loss_of: LossFn = lambda x: functional.cross_entropy(x, LABELS)  # noqa: E731 - short
    assert facts(one_step(LOGITS, loss_of, collections=["losses", "labels"])) == {}
    recording = one_step(LOGITS, loss_of, collections=["losses", "objective"])
    assert recording.observations[0].labels == {}
    assert facts(recording)["cross_entropy.classes"] == 10.0


def test_torch_is_as_before_when_the_hook_is_gone() -> None:
    names = ("cross_entropy", "mse_loss", "relu", "tanh", "hardtanh")
    before = [getattr(functional, name) for name in names]
    places = (torch.autograd.backward, torch.tanh, nn.utils.clip_grad_norm_)
    one_step(LOGITS, lambda x: functional.cross_entropy(x, LABELS))
    assert [getattr(functional, name) for name in names] == before
    assert (torch.autograd.backward, torch.tanh, nn.utils.clip_grad_norm_) == places
