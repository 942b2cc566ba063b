"""Steps that are measured from samples, in real loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.loops import record
from tests.unit.hook.recording import Recording
from trainwarden.hook import Hook
from trainwarden.model import Collection, Mode, Observation
from trainwarden.stats.catalog import INDEX, Flag
from trainwarden.stats.derived import STATISTICS

STEPS = 13


def images() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8192, 10)
    )


def run(
    each: Callable[[int, nn.Module], object] = lambda _step, _model: None, **options: object
) -> Recording:
    model, (x, y), loss_fn = network(), images(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(_: Hook) -> None:
        for step in range(STEPS):
            each(step, model)
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()

    given = {"save_interval": 1, "max_overhead": math.inf} | options
    return record(model, loop, optimizer, loss_fn, **given)


@pytest.fixture(scope="module")
def thrifty() -> Recording:
    return run(dense_steps=2, exact_interval=5)


@pytest.fixture(scope="module")
def exact() -> Recording:
    return run()


def told(recording: Recording) -> list[Observation]:
    return list(recording.of(Mode.TRAIN))


def row_of(obs: Observation, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    found: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = obs.stats[obs.layout.row_of[name]]
    return found


def sampled(obs: Observation, name: str) -> bool:
    return bool(int(row_of(obs, name)[INDEX["flags"]]) & Flag.SAMPLED)


def test_early_steps_and_those_the_interval_divides_are_whole(thrifty: Recording) -> None:
    whole = [obs.step for obs in told(thrifty) if not sampled(obs, "3.weight")]
    assert whole == [0, 1, 5, 10]


def test_a_sampled_step_says_so(thrifty: Recording) -> None:
    marked = [o.step for o in told(thrifty) if o.scalars.get(Collection.CAPTURE, {}).get("sampled")]
    assert marked == [2, 3, 4, 6, 7, 8, 9, 11, 12]


def test_small_tensors_are_whole_all_the_same(thrifty: Recording) -> None:
    assert not any(sampled(obs, "0.weight") for obs in told(thrifty))


@pytest.mark.parametrize("name", ["3.weight", "gradient/3.weight", "activation/1"])
def test_both_tell_about_the_same(name: str, thrifty: Recording, exact: Recording) -> None:
    for few, all_ in zip(told(thrifty), told(exact), strict=True):
        for statistic in ("rms", "abs_mean"):
            values = [
                STATISTICS[statistic].compute(row_of(obs, name)[np.newaxis])[0]
                for obs in (few, all_)
            ]
            assert values[0] == pytest.approx(values[1], rel=0.1)


def test_updates_are_those_since_the_step_before(thrifty: Recording, exact: Recording) -> None:
    for few, all_ in list(zip(told(thrifty), told(exact), strict=True))[1:]:
        ratios = [
            STATISTICS["update_ratio"].compute(row_of(obs, "3.weight")[np.newaxis])[0]
            for obs in (few, all_)
        ]
        assert ratios[0] == pytest.approx(ratios[1], rel=0.1)


def test_channels_are_counted_over_fewer_places(thrifty: Recording, exact: Recording) -> None:
    few, all_ = told(thrifty)[3].channels["activation/1"], told(exact)[3].channels["activation/1"]
    assert few.seen < all_.seen
    np.testing.assert_allclose(few.active / few.seen, all_.active / all_.seen, atol=0.08)


@pytest.mark.parametrize("options", [{"exact_interval": 5}, {"save_interval": 10**6}])
def test_training_is_the_same_bit_by_bit(options: dict[str, int]) -> None:
    assert all(map(torch.equal, weights_after(**options), weights_after(exact_interval=1)))


def weights_after(**options: int) -> list[torch.Tensor]:
    kept: list[torch.Tensor] = []

    def keep(step: int, model: nn.Module) -> None:
        if step == STEPS - 1:
            kept.extend(p.detach().clone() for p in model.parameters())

    run(keep, **{"save_interval": 1, "dense_steps": 0} | options)
    return kept


def test_a_spike_is_measured_whole() -> None:
    def spoil(step: int, model: nn.Module) -> None:
        if step == 7:
            with torch.no_grad():
                next(iter(model.parameters())).mul_(1e4)

    found = told(run(spoil, dense_steps=2, exact_interval=10**6))
    whole = [obs.step for obs in found if not sampled(obs, "3.weight")]
    assert whole[2:5] == [8, 9, 10]  # the spike, once losses enough are known, and what follows
    assert 7 not in whole
