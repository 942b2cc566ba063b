"""Facts about batches: features of inputs over all saved steps, outputs, tokens; against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from tests.training.loops import record
from tests.unit.hook.recording import Recording
from trainwarden.hook import Hook
from trainwarden.model import Collection, Mode
from trainwarden.stats.features import (
    MAX_COMPARED,
    Features,
    Held,
    duplicated,
    output_facts,
    spread_over,
)
from trainwarden.stats.spread import FeatureSpread, Spread

RNG = np.random.default_rng(0)


def batch_facts(recording: Recording, at: int = -1) -> dict[str, float]:
    return dict(recording.of(Mode.TRAIN)[at].scalars.get(Collection.BATCH, {}))


def steps_on(model: nn.Module, batches: list[torch.Tensor], **options: Any) -> Recording:
    """One training step on each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(_: Hook) -> None:
        for batch in batches:
            optimizer.zero_grad()
            model(batch).float().square().mean().backward()
            optimizer.step()

    return record(model, loop, optimizer, **options)


def table(rows: int = 64, features: int = 6) -> npt.NDArray[np.float64]:
    return RNG.normal(size=(rows, features)) * np.arange(1, features + 1) + 3.0


def test_features_of_a_table_are_those_of_all_rows_so_far() -> None:
    batches = [torch.tensor(table(), dtype=torch.float32) for _ in range(5)]
    found = batch_facts(steps_on(nn.Linear(6, 2), batches))
    seen = torch.cat(batches).numpy().astype(float)
    correlation = np.abs(np.corrcoef(seen.T) - np.eye(6)).max()
    expected = {
        "samples": 64.0,
        "seen": 320.0,
        "features": 6.0,
        "mean": seen.mean(),
        "std": seen.std(),
        "min": seen.min(),
        "max": seen.max(),
        "feature_mean_max": np.abs(seen.mean(0)).max(),
        "feature_std_max": seen.std(0).max(),
        "feature_std_min": seen.std(0).min(),
        "constant_features": 0.0,
        "duplicated_features": 0.0,
        "correlation_max": correlation,
        "nonfinite": 0.0,
        "duplicated_samples": 0.0,
    }
    first, last = np.concatenate([b.numpy() for b in batches[:4]]), batches[4].numpy()
    expected["shift"] = (np.abs(last.mean(0) - first.mean(0)) / first.std(0)).mean()
    inputs = {k.removeprefix("input/0."): v for k, v in found.items() if k.startswith("input/0.")}
    assert inputs == pytest.approx(expected, rel=1e-5)


def test_the_shift_is_unknown_until_the_first_256_samples_were_seen() -> None:
    recording = steps_on(nn.Linear(6, 2), [torch.randn(100, 6) for _ in range(5)])
    known = ["input/0.shift" in batch_facts(recording, at) for at in range(5)]
    assert known == [False, False, False, True, True]


def test_constant_and_copied_features_are_counted_until_they_vary() -> None:
    first, second = table(64, 6), table(64, 6)
    for batch in (first, second):
        batch[:, 1] = 5.0
        batch[:, 3] = batch[:, 2]
    first[:, 4] = first[:, 2]
    first[:, 5] = 7.0
    batches = [torch.tensor(batch, dtype=torch.float32) for batch in (first, second)]
    recording = steps_on(nn.Linear(6, 2), batches)
    before, after = batch_facts(recording, 0), batch_facts(recording, 1)
    assert (before["input/0.constant_features"], before["input/0.duplicated_features"]) == (2, 2)
    assert (after["input/0.constant_features"], after["input/0.duplicated_features"]) == (1, 1)
    assert after["input/0.correlation_max"] == pytest.approx(1.0)


def test_nan_is_counted_and_left_out() -> None:
    batch = table(64, 4)
    batch[0, 0], batch[1, 1] = math.nan, math.inf
    found = Features(4).add(batch, samples=64, size=64)
    clean = np.where(np.isfinite(batch), batch, np.nan)
    assert found["nonfinite"] == 2.0
    assert found["mean"] == pytest.approx(np.nanmean(clean))
    assert found["feature_std_max"] == pytest.approx(np.nanstd(clean, axis=0).max())
    assert found["max"] == pytest.approx(np.nanmax(clean))


def test_a_feature_that_is_nan_throughout_harms_no_other() -> None:
    batch = table(64, 4)
    batch[:, 0] = math.nan
    found = Features(4).add(batch, samples=64, size=64)
    assert found["nonfinite"] == 64.0
    expected = np.abs(np.corrcoef(batch[:, 1:].T) - np.eye(3)).max()
    assert found["correlation_max"] == pytest.approx(expected)


def test_moments_in_parts_are_those_of_the_whole() -> None:
    values = RNG.normal(size=(1000, 3)) * 1e-3 + 1e6
    parts = FeatureSpread(3), Spread()
    for begin in range(0, 1000, 77):
        parts[0].add(values[begin : begin + 77])
        parts[1].add(values[begin : begin + 77])
    assert parts[0].std == pytest.approx(values.std(axis=0), rel=1e-6)
    assert parts[0].mean == pytest.approx(values.mean(axis=0))
    assert parts[1].std == pytest.approx(values.std(), rel=1e-6)
    assert parts[0].whole()["std"] == pytest.approx(values.std(), rel=1e-6)


def test_channels_of_images_are_features() -> None:
    images = torch.rand(32, 3, 16, 16) + torch.tensor([0.0, 5.0, 9.0]).view(1, 3, 1, 1)
    found = batch_facts(steps_on(nn.Conv2d(3, 2, 3), [images]))
    seen = images.numpy().astype(float)
    assert found["input/0.features"] == 3.0
    assert found["input/0.samples"] == 32.0
    assert found["input/0.feature_mean_max"] == pytest.approx(seen[:, 2].mean(), rel=1e-6)
    assert found["input/0.std"] == pytest.approx(seen.std(), rel=1e-6)


def test_of_large_images_pixels_are_left_out_and_samples_kept() -> None:
    images = torch.rand(32, 3, 128, 128)
    found = batch_facts(steps_on(nn.Conv2d(3, 2, 3), [images]))
    assert found["input/0.samples"] == 32.0
    assert found["input/0.seen"] == 16.0
    assert found["input/0.mean"] == pytest.approx(0.5, abs=0.02)


def test_sequences_have_features_last_unless_they_are_convolved() -> None:
    sequence = torch.randn(8, 20, 5)
    assert batch_facts(steps_on(nn.Linear(5, 2), [sequence]))["input/0.features"] == 5.0
    assert batch_facts(steps_on(nn.Conv1d(20, 2, 3), [sequence]))["input/0.features"] == 20.0


def test_of_many_features_some_are_looked_at() -> None:
    features = Features(10_000)
    rows = RNG.normal(size=(3, 10_000))[:, features.kept]
    found = features.add(rows, samples=3, size=3)
    assert found["features"] == 10_000.0
    assert found["constant_features"] == 0.0
    assert len(spread_over(10_000, 4096)) == 4096
    assert spread_over(5, 4096).tolist() == [0, 1, 2, 3, 4]


def test_many_constant_features_cost_little_to_compare() -> None:
    features = Features(4000)
    batch = np.zeros((4, 4000))
    batch[:, -2:] = RNG.normal(size=(4, 1))
    found = features.add(batch, samples=4, size=4)
    assert found["constant_features"] == 3998.0
    assert found["duplicated_features"] == 1.0


@pytest.mark.parametrize("group", [2, 3, 100, 1000])
def test_of_many_groups_of_copies_some_are_followed(group: int) -> None:
    features = Features(3000)
    rows = np.repeat(RNG.normal(size=(8, 3000 // group)), group, axis=1)
    found = features.add(rows, samples=8, size=8)
    assert features.add(rows, samples=8, size=8) == found | {"seen": 16.0}
    assert 100 <= found["duplicated_features"] < MAX_COMPARED


def test_copies_of_samples_are_counted() -> None:
    rows = RNG.normal(size=(10, 3))
    assert duplicated(rows) == 0.0
    assert duplicated(np.concatenate([rows, rows[:5], rows[:5]])) == pytest.approx(0.5)


def test_outputs_that_are_all_alike_have_no_spread() -> None:
    alike = np.tile(RNG.normal(size=(1, 8)), (32, 1))
    assert output_facts(alike)["batch_spread"] == pytest.approx(0.0, abs=1e-7)
    assert output_facts(alike)["cosine"] == pytest.approx(1.0)
    assert output_facts(np.zeros((4, 3))) == {"batch_spread": 0.0}
    assert output_facts(np.full((4, 3), math.nan)) == {}


def test_spread_and_cosine_of_outputs() -> None:
    model = nn.Linear(6, 4)
    batch = torch.randn(48, 6)
    with torch.no_grad():
        out = model(batch).double().numpy()
    found = batch_facts(steps_on(model, [batch]))
    spread = math.sqrt(out.var(axis=0).mean() / (out**2).mean())
    assert found["output/0.batch_spread"] == pytest.approx(spread)
    unit = out / np.linalg.norm(out, axis=1, keepdims=True)
    cosine = (unit @ unit.T)[~np.eye(48, dtype=bool)].mean()
    assert found["output/0.cosine"] == pytest.approx(cosine)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5000, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(x).mean(1)
        return found


def test_tokens_are_counted() -> None:
    tokens = torch.zeros(4, 10, dtype=torch.int64)
    tokens[:, :3] = torch.tensor([7, 9, 7])
    recording = steps_on(Tokens(), [tokens])
    assert recording.observations[0].labels["input/0"] == {0: 28, 7: 8, 9: 4}
    found = batch_facts(recording)
    assert (found["input/0.tokens"], found["input/0.distinct_tokens"]) == (40.0, 3.0)


def test_of_many_different_tokens_the_most_frequent_are_counted() -> None:
    tokens = torch.cat([torch.arange(3000), torch.full((500,), 17)]).view(1, -1)
    recording = steps_on(Tokens(), [tokens])
    counts = recording.observations[0].labels["input/0"]
    assert len(counts) == 1000
    assert counts[17] == 501
    assert batch_facts(recording)["input/0.distinct_tokens"] == 3000.0


def test_tokens_of_an_evaluation_pass_are_counted_too() -> None:
    model = Tokens()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.ones(4, 10, dtype=torch.int64)

    def loop(hook: Hook) -> None:
        model(tokens).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                hook.record("loss", model(tokens).sum(), collection="losses")

    recording = record(model, loop, optimizer)
    assert recording.of(Mode.EVAL)[0].labels["input/0"] == {1: 80}


def test_inputs_of_an_evaluation_pass_are_held_against_those_of_training() -> None:
    before, rows = table(), table(80) * 3.0 + 5.0
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(hook: Hook) -> None:
        model(torch.tensor(before, dtype=torch.float32)).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            for part in (rows[:50], rows[50:]):
                loss = model(torch.tensor(part, dtype=torch.float32)).sum()
                hook.record("loss", loss, collection="losses")

    evaluation = record(model, loop, optimizer).of(Mode.EVAL)[0]
    found = dict(evaluation.scalars[Collection.BATCH])
    apart = np.abs(rows.mean(axis=0) - before.mean(axis=0)) / before.std(axis=0)
    assert found["input/0.seen"] == 80.0
    assert found["input/0.mean"] == pytest.approx(rows.mean(), rel=1e-6)
    assert found["input/0.std"] == pytest.approx(rows.std(), rel=1e-6)
    assert found["input/0.apart"] == pytest.approx(apart.mean(), rel=1e-5)
    ratios = rows.std(axis=0) / before.std(axis=0)
    assert found["input/0.wider"] == pytest.approx(math.exp(np.log(ratios).mean()), rel=1e-5)


def test_an_evaluation_pass_changes_nothing_of_what_is_known_of_training() -> None:
    training = Features(3)
    rows = RNG.normal(size=(40, 3))
    training.add(rows, samples=40, size=40)
    before = training.spread.mean.copy()
    Held(training).add(rows + 7.0, samples=40)
    assert np.array_equal(training.spread.mean, before)


def test_features_that_are_constant_are_not_held_against_anything() -> None:
    training = Features(3)
    rows = RNG.normal(size=(40, 3))
    rows[:, 0] = 1.0
    training.add(rows, samples=40, size=40)
    now = rows.copy()
    now[:, 0], now[:, 1] = 2.0, 0.0
    found = Held(training).add(now, samples=40)
    assert found["wider"] == pytest.approx(1.0)
    assert found["apart"] == pytest.approx(abs(rows[:, 1].mean()) / rows[:, 1].std() / 2)
    assert "apart" not in Held(training).add(np.ones((4, 3)), samples=4)


def test_rare_features_are_not_held_against_anything() -> None:
    training, rows = Features(3), np.ones((1000, 3))
    rows[:, 0] = RNG.normal(size=1000)
    rows[0, 1], rows[:500, 2] = 0.0, 0.0
    training.add(rows, samples=1000, size=1000)
    now = rows.copy()
    now[:400, 1], now[:, 2] = 0.0, now[::-1, 2]
    found = Held(training).add(now, samples=1000)
    assert found["apart"] == pytest.approx(0.0)
    assert found["wider"] == pytest.approx(1.0)


def test_evaluation_before_training_is_held_against_nothing() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(hook: Hook) -> None:
        model.eval()
        with torch.no_grad():
            hook.record("loss", model(torch.ones(4, 6)).sum(), collection="losses")
        model.train()
        model(torch.ones(4, 6)).sum().backward()
        optimizer.step()

    recording = record(model, loop, optimizer)
    assert Collection.BATCH not in recording.of(Mode.EVAL)[0].scalars


def test_what_is_not_wanted_is_not_told() -> None:
    batch = [torch.randn(8, 6)]
    assert batch_facts(steps_on(nn.Linear(6, 2), batch, collections=["losses", "inputs"])) == {}
    assert batch_facts(steps_on(nn.Linear(6, 2), batch, exclude="^(in|out)put/")) == {}
