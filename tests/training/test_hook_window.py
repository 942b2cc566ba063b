"""Losses of steps that are not saved, and steps that are saved because of theirs."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.loops import digits, evaluate, mlp, record, train
from tests.unit.hook.recording import Recording
from trainwarden.hook import Hook
from trainwarden.hook.torch.window import LossWatch, readable
from trainwarden.hook.window import APART, HISTORY, MAX_EVENTS, Moment, Window
from trainwarden.model import Collection, Mode
from trainwarden.stats.facts import SECTIONS

X, Y = digits(64)
NAN, INF = math.nan, math.inf
LossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def window(recording: Recording) -> list[dict[str, float]]:
    return [dict(o.scalars.get(Collection.WINDOW, {})) for o in recording.of(Mode.TRAIN)]


def history(recording: Recording) -> dict[int, dict[str, float]]:
    """Step → facts, where there are any."""
    found = {o.step: dict(o.scalars.get(Collection.HISTORY, {})) for o in recording.of(Mode.TRAIN)}
    return {step: facts for step, facts in found.items() if facts}


def scaled_run(
    factors: dict[int, float], steps: int = 60, *, module: bool = True, **options: object
) -> tuple[Recording, list[float]]:
    """Train with the loss of some steps multiplied; returns the losses, too."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []

    class Scaled(nn.Module):
        factor = 1.0

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(x, y) * self.factor

    loss_fn = Scaled()

    def loop(_: Hook) -> None:
        for step in range(steps):
            loss_fn.factor = factors.get(step, 1.0)
            optimizer.zero_grad()
            loss = loss_fn(model(X), Y)
            loss.backward()
            if math.isfinite(loss_fn.factor):
                optimizer.step()
            else:
                optimizer.zero_grad()
                optimizer.step()
            losses.append(float(loss.detach()))

    return record(model, loop, optimizer, loss_fn if module else None, **options), losses


@pytest.mark.parametrize("module", [True, False])
def test_losses_of_all_steps_since_the_last_saved_one(module: bool) -> None:  # noqa: FBT001 - a parameter
    recording, losses = scaled_run({14: 3.0, 17: 0.5}, 31, module=module)
    assert recording.steps == [*range(10), 10, 20, 30]
    found = dict(zip(recording.steps, window(recording), strict=True))
    assert found[20] == pytest.approx(
        {
            "steps": 10.0,
            "nonfinite_losses": 0.0,
            "loss_mean": sum(losses[11:21]) / 10,
            "loss_min": losses[17],
            "loss_max": losses[14],
            "loss_max_step": 14.0,
        }
    )
    assert found[5]["steps"] == 1.0
    assert found[5]["loss_mean"] == pytest.approx(losses[5])


@pytest.mark.parametrize("module", [True, False])
def test_micro_batches_make_one_loss(module: bool) -> None:  # noqa: FBT001 - a parameter
    model, loss_fn, losses = mlp(), nn.CrossEntropyLoss(), list[float]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(_: Hook) -> None:
        for _step in range(3):
            optimizer.zero_grad()
            parts = []
            for part in (slice(0, 32), slice(32, 64)):
                loss = loss_fn(model(X[part]), Y[part])
                (loss / 2).backward()
                parts.append(float(loss.detach()))
            optimizer.step()
            losses.append(sum(parts) / 2)

    recording = record(model, loop, optimizer, loss_fn if module else None)
    assert [w["loss_mean"] for w in window(recording)] == pytest.approx(losses)


def test_losses_of_evaluation_are_no_part_of_it() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(_: Hook) -> None:
        for _epoch in range(2):
            train(model, optimizer, loss_fn, (X, Y), steps=8)
            evaluate(model, loss_fn, (X[:8], Y[:8]))

    recording = record(model, loop, optimizer, loss_fn, dense_steps=0, save_interval=15)
    assert [w["steps"] for w in window(recording)] == [1.0, 15.0]
    assert "loss_mean" not in recording.of(Mode.EVAL)[0].scalars.get(Collection.WINDOW, {})


@pytest.mark.parametrize("module", [True, False])
@pytest.mark.parametrize("factor", [NAN, INF, 100.0])
def test_a_loss_that_is_not_finite_or_a_spike_has_its_step_saved(
    module: bool,  # noqa: FBT001 - a parameter
    factor: float,
) -> None:
    recording, losses = scaled_run({37: factor}, module=module)
    assert recording.steps == [*range(10), 10, 20, 30, 37, 38, 39, 40, 50]
    facts = history(recording)
    assert list(facts) == [37]
    kept = {f"loss@{step}": losses[step] for step in range(38 - HISTORY, 38)}
    found = {name: value for name, value in facts[37].items() if name.startswith("loss@")}
    assert found == pytest.approx(kept, nan_ok=True)
    assert facts[37]["lr_0@30"] == 1e-3
    at = recording.steps.index(37)
    saved = recording.observations[at].scalars
    assert saved["losses"]["loss"] == pytest.approx(losses[37], nan_ok=True)
    assert window(recording)[at]["steps"] == 7.0
    names = {t.name for t in recording.manifest.layout.tensors}
    assert names >= {"gradient/0.weight", "0.weight"}
    assert recording.values("0.weight", "n")[at] == 64 * 32
    assert recording.values("input/0", "n")[at + 1] == 64 * 64  # in full from the next step on


def test_the_window_knows_the_first_step_that_was_not_finite() -> None:
    recording, _ = scaled_run({33: NAN, 34: NAN}, collections=["losses", "window"])
    found = dict(zip(recording.steps, window(recording), strict=True))
    assert recording.steps == [*range(10), 10, 20, 30, 40, 50]  # history is not wanted
    assert (found[40]["nonfinite_losses"], found[40]["nonfinite_step"]) == (2.0, 33.0)
    assert found[40]["steps"] == 10.0
    assert "nonfinite_step" not in found[50]


def test_a_spike_saves_steps_only_now_and_then() -> None:
    recording, _ = scaled_run({33: 100.0, 43: 2000.0, 73: NAN}, 90)
    extra = [step for step in recording.steps if step > 10 and step % 10]
    assert extra == [33, 34, 35, 73, 74, 75]


class Distributed(torch.Tensor):
    """A tensor whose value needs other ranks."""

    def to_local(self) -> torch.Tensor:
        raise AssertionError

    def item(self) -> float:
        raise AssertionError


def test_only_what_has_a_value_of_its_own_is_read() -> None:
    assert readable(torch.tensor(1.0))
    assert readable(torch.tensor(1.0, dtype=torch.bfloat16))
    assert not readable(torch.tensor(1.0).as_subclass(Distributed))
    assert not readable(torch.tensor(1j))
    assert not readable(torch.empty(0))


class Far:
    """A loss on a device that is read only when a step is saved."""

    is_cpu = is_cuda = False
    device = torch.device("mps")

    def __init__(self, value: builtins.float) -> None:
        self.value, self.reads = value, 0

    def is_floating_point(self) -> bool:
        return True

    def numel(self) -> int:
        return 1

    def detach(self) -> Far:
        return self

    float = mean = detach

    def reshape(self, _: object) -> Far:
        return self

    def __float__(self) -> builtins.float:
        self.reads += 1
        return self.value


def test_a_loss_on_a_device_is_read_when_a_step_is_saved() -> None:
    made, alarms = Window(), list[float]()
    watch = LossWatch(made, lambda _loss, value: alarms.append(value))
    losses = [Far(1.0), Far(2.0), Far(NAN)]
    for step, loss in enumerate(losses):
        watch.saw(cast("torch.Tensor", loss))
        watch.close(step, 0.1)
    assert [loss.reads for loss in losses] == [0, 0, 0]
    watch.settle()
    assert [loss.reads for loss in losses] == [1, 1, 1]
    facts = made.facts()
    assert (facts["steps"], facts["loss_mean"], facts["nonfinite_step"]) == (3.0, 1.5, 2.0)
    assert len(alarms) == 1


def test_losses_on_a_device_do_not_pile_up() -> None:
    watch = LossWatch(Window(), lambda _loss, _value: None)
    losses = [Far(1.0) for _ in range(200)]
    for step, loss in enumerate(losses):
        watch.saw(cast("torch.Tensor", loss))
        watch.close(step, 0.1)
    assert sum(loss.reads for loss in losses) >= 136  # at most 64 wait


def test_no_step_is_saved_beyond_the_end() -> None:
    recording, _ = scaled_run({37: NAN}, end_step=35)
    assert max(recording.steps) == 30


def test_training_is_bit_identical_around_an_event() -> None:
    def weights(*, watched: bool) -> list[torch.Tensor]:
        model, loss_fn = mlp(), nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

        def loop(_: Hook | None) -> None:
            for step in range(40):
                optimizer.zero_grad()
                loss = loss_fn(model(X), Y)
                if step == 25:
                    loss = loss * 1000
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

        if watched:
            assert 25 in record(model, loop, optimizer).steps
        else:
            loop(None)
        return [p.detach().clone() for p in model.parameters()]

    for ours, theirs in zip(weights(watched=True), weights(watched=False), strict=True):
        assert torch.equal(ours, theirs)


def test_every_fact_is_in_the_catalogue_and_every_one_of_those_is_told() -> None:
    recording, _ = scaled_run({37: NAN})
    told: dict[str, set[str]] = {}
    for obs in recording.observations:
        for collection in SECTIONS:
            names = obs.scalars.get(collection, {})
            told.setdefault(collection, set()).update(
                name.partition("@")[0]
                if "@" in name
                else re.sub(r"_\d+$", "_GROUP", name.rpartition(".")[2])
                for name in names
            )
    known = {
        collection: {fact.name.partition("@")[0] for fact in section.facts}
        for collection, section in SECTIONS.items()
    }
    for collection, found in told.items():
        assert found <= known[collection]
    assert known["objective"] == told["objective"]
    of_evaluation = {"apart", "wider"}  # there is none in this run
    assert known["batch"] - told["batch"] == {"tokens", "distinct_tokens", *of_evaluation}
    assert known["window"] - told["window"] == {"clipped", "grad_norm_max"}
    assert known["history"] - told["history"] == {"grad_norm"}


class TestClipping:
    def run(self, limit: float, *, generator: bool = False, break_at: int = -1) -> Recording:
        model, loss_fn = mlp(), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        self.norms: list[float] = []

        def loop(_: Hook) -> None:
            for step in range(31):
                optimizer.zero_grad()
                loss_fn(model(X), Y).backward()
                if step == break_at:
                    gradient = next(model.parameters()).grad
                    assert gradient is not None
                    gradient[0, 0] = NAN
                given = model.parameters() if generator else list(model.parameters())
                self.norms.append(float(nn.utils.clip_grad_norm_(given, limit)))
                if step == break_at:
                    optimizer.zero_grad()
                optimizer.step()

        return record(model, loop, optimizer, loss_fn)

    @pytest.mark.parametrize("generator", [True, False])
    def test_norm_limit_and_share_are_told(self, generator: bool) -> None:  # noqa: FBT001 - a parameter
        recording = self.run(1e-3, generator=generator)
        last, facts = recording.observations[-1], window(recording)[-1]
        assert last.scalars["optimizer"]["grad_norm"] == pytest.approx(self.norms[30])
        assert last.scalars["optimizer"]["clip_limit"] == 1e-3
        assert facts["clipped"] == 1.0
        assert facts["grad_norm_max"] == pytest.approx(max(self.norms[21:]))

    def test_a_limit_that_is_never_reached(self) -> None:
        assert window(self.run(1e6))[-1]["clipped"] == 0.0

    def test_a_norm_that_is_not_finite_has_its_step_saved(self) -> None:
        recording = self.run(1.0, break_at=25)
        assert [s for s in recording.steps if 20 < s < 30] == [25, 26, 27]
        facts = history(recording)[25]
        assert math.isnan(facts["grad_norm@25"])
        assert facts["grad_norm@24"] == pytest.approx(self.norms[24])
        at = recording.steps.index(25)
        assert math.isfinite(recording.observations[at].scalars["losses"]["loss"])

    def test_other_models_are_none_of_ours(self) -> None:
        model, other, loss_fn = mlp(), mlp(1), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

        def loop(_: Hook) -> None:
            loss_fn(other(X), Y).backward()
            for _step in range(3):
                nn.utils.clip_grad_norm_(other.parameters(), 1.0)
                train(model, optimizer, loss_fn, (X, Y), steps=1)

        recording = record(model, loop, optimizer, loss_fn)
        assert all("clipped" not in facts for facts in window(recording))


class TestNumbers:
    def follow(self, losses: list[float]) -> Window:
        made = Window()
        for step, loss in enumerate(losses):
            made.close(Moment(step, loss, 0.1, None, seen=True))
        return made

    def test_nothing_is_a_spike_at_the_start_or_where_losses_have_either_sign(self) -> None:
        assert not self.follow([1.0] * 5).suspicious(1e9)
        assert not self.follow([-1.0, 1.0] * 20).suspicious(1e9)
        assert self.follow([1.0] * 8).suspicious(10.1)
        assert not self.follow([1.0] * 8).suspicious(9.9)

    def test_a_loss_below_one_of_the_last_is_no_spike(self) -> None:
        assert not self.follow([1.0] * 7 + [50.0] + [1.0] * 20).suspicious(40.0)

    def test_events_are_few_and_far_between(self) -> None:
        made = Window()
        granted = [step for step in range(1000) if made.event(step, 1e9)]
        assert granted == [i * APART for i in range(MAX_EVENTS)]

    def test_the_first_loss_that_is_not_finite_is_an_event_however_near_the_last(self) -> None:
        made = Window()
        assert made.event(10, 1e9)
        assert made.event(11, NAN)
        assert not made.event(12, NAN)

    def test_a_step_that_is_closed_twice_counts_once(self) -> None:
        made = self.follow([1.0, 2.0])
        made.close(Moment(1, 5.0, 0.1, None, seen=True))
        assert made.facts()["steps"] == 2.0

    def test_a_run_without_losses_counts_its_steps(self) -> None:
        made = Window()
        made.close(Moment(0, NAN, 0.1, None, seen=False))
        assert made.facts() == {"steps": 1.0}
