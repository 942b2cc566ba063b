"""What several ranks report about one step, as one observation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.merge import merge
from trainwarden.model import Channels, FloatArray, Layout, Mode, Observation, TensorInfo
from trainwarden.stats.catalog import INDEX, Flag
from trainwarden.stats.reductions import row

LAYOUT = Layout(
    (
        TensorInfo("fc.weight", "weights", (4, 6)),
        TensorInfo("relu", "activations", (8,)),
        TensorInfo("gradient/fc.weight", "gradients", (4, 6)),
    )
)
RNG = np.random.default_rng(5)


def rows(
    weight: FloatArray, relu: FloatArray | None = None, gradient: FloatArray | None = None
) -> FloatArray:
    table = np.full((3, 32), np.nan)
    for i, values in enumerate((weight, relu, gradient)):
        if values is not None:
            table[i] = row(values, dtype="float64")
    return table


def rank(worker: int, stats: FloatArray | None = None, **fields: Any) -> Observation:
    known: dict[str, Any] = {"layout": LAYOUT, "time": 10.0 + worker, **fields}
    table = np.full((3, 32), np.nan) if stats is None else stats
    return Observation(5, Mode.TRAIN, 5, stats=table, workers=(worker,), **known)


def at(obs: Observation, name: str, column: str) -> float:
    return float(obs.stats[LAYOUT.row_of[name], INDEX[column]])


def test_one_rank_is_what_it_is() -> None:
    only = rank(0)
    assert merge([only]) is only


def test_one_rank_of_which_others_are_missing_is_partial() -> None:
    assert merge([rank(0)], partial=True).partial


def test_replicas_of_a_weight_are_taken_once() -> None:
    weight = RNG.normal(size=(4, 6))
    merged = merge([rank(worker, rows(weight)) for worker in range(3)])
    np.testing.assert_array_equal(merged.stats[0], rows(weight)[0])
    assert merged.workers == (0, 1, 2)


def test_shards_of_a_weight_add_up_to_the_whole() -> None:
    weight = RNG.normal(size=(4, 6))
    merged = merge([rank(0, rows(weight[:2])), rank(1, rows(weight[2:]))])
    assert at(merged, "fc.weight", "n") == 24
    assert at(merged, "fc.weight", "sum_abs") == pytest.approx(np.abs(weight).sum())
    assert at(merged, "fc.weight", "max") == weight.max()


def test_equal_shards_are_no_replicas() -> None:
    merged = merge([rank(worker, rows(np.zeros((2, 6)))) for worker in range(2)])
    assert at(merged, "fc.weight", "n") == 24


def test_activations_of_different_batches_add_up() -> None:
    batches = [RNG.normal(size=(16, 8)) for _ in range(2)]
    weight = np.ones((4, 6))
    merged = merge([rank(i, rows(weight, batch)) for i, batch in enumerate(batches)])
    assert at(merged, "relu", "n") == 2 * 16 * 8


def test_activations_of_one_element_batches_are_no_replicas() -> None:
    batch = np.ones((1, 8))
    merged = merge([rank(i, rows(np.ones((4, 6)), batch)) for i in range(2)])
    assert at(merged, "relu", "n") == 16


def test_a_nan_in_one_ranks_gradient_is_not_lost() -> None:
    good = RNG.normal(size=(4, 6))
    bad = good.copy()
    bad[1, 2] = np.nan
    for order in itertools.permutations([good, good, bad]):
        merged = merge([rank(i, rows(good, None, g)) for i, g in enumerate(order)])
        assert at(merged, "gradient/fc.weight", "n_nan") == 1


def test_a_row_that_only_one_rank_captured_is_kept() -> None:
    weight = RNG.normal(size=(4, 6))
    merged = merge([rank(0), rank(1, rows(weight))])
    np.testing.assert_array_equal(merged.stats[0], rows(weight)[0])
    assert math.isnan(at(merged, "relu", "n"))


def test_a_rank_that_knows_fewer_rows_is_padded() -> None:
    weight = RNG.normal(size=(4, 6))
    few = rank(0, rows(weight)[:1], layout=Layout(LAYOUT.tensors[:1]))
    merged = merge([few, rank(1, rows(weight, np.ones((2, 8))))])
    assert merged.layout == LAYOUT
    assert merged.stats.shape == (3, 32)
    assert at(merged, "relu", "n") == 16


def test_a_channel_is_dead_only_if_it_is_dead_on_every_rank() -> None:
    batch = np.maximum(RNG.normal(size=(16, 8)), 0)
    activity = [Channels(np.array([0, 0, 5, 5]), 100), Channels(np.array([0, 7, 5, 5]), 100)]
    merged = merge(
        [
            rank(i, rows(np.ones((4, 6)), batch), channels={"relu": channels})
            for i, channels in enumerate(activity)
        ]
    )
    assert merged.channels["relu"].active.tolist() == [0, 7, 10, 10]
    assert merged.channels["relu"].seen == 200
    assert at(merged, "relu", "ch_n") == 4
    assert at(merged, "relu", "ch_dead") == 1


def test_channels_of_another_shape_are_left_out() -> None:
    one, other = Channels(np.array([1, 2]), 10), Channels(np.array([1]), 10)
    merged = merge([rank(0, channels={"relu": one}), rank(1, channels={"relu": other})])
    assert merged.channels["relu"] is one


@pytest.mark.parametrize(
    ("collection", "values", "expected"),
    [
        pytest.param("losses", [1.0, 2.0], 1.5, id="mean-of-losses"),
        pytest.param("losses", [0.1] * 3, 0.1, id="equal-losses-stay-exact"),
        pytest.param("losses", [1.0, math.nan], math.nan, id="nan-wins"),
        pytest.param("losses", [1.0, math.inf], math.inf, id="inf-wins"),
        pytest.param("losses", [-math.inf, math.inf], math.nan, id="inf-minus-inf"),
        pytest.param("losses", [1.7e308, 1.6e308], 1.65e308, id="no-overflow"),
        pytest.param("optimizer", [0.0, 1.0], 1.0, id="a-skipped-step-anywhere"),
        pytest.param("optimizer", [0.1, 0.1], 0.1, id="one-learning-rate"),
    ],
)
def test_scalars(collection: str, values: list[float], expected: float) -> None:
    merged = merge([rank(i, scalars={collection: {"x": v}}) for i, v in enumerate(values)])
    found = merged.scalars[collection]["x"]
    assert math.isnan(found) if math.isnan(expected) else found == pytest.approx(expected)


def test_a_scalar_of_one_rank_is_kept() -> None:
    scalars: list[Mapping[str, Mapping[str, float]]] = [{}, {"metrics": {"accuracy": 0.5}}]
    merged = merge([rank(i, scalars=s) for i, s in enumerate(scalars)])
    assert merged.scalars == {"metrics": {"accuracy": 0.5}}


def test_labels_are_counted_together() -> None:
    merged = merge([rank(0, labels={"label/0": {0: 3, 1: 1}}), rank(1, labels={"label/0": {1: 4}})])
    assert merged.labels == {"label/0": {0: 3, 1: 5}}


def test_a_step_is_as_late_as_its_last_rank() -> None:
    assert merge([rank(0), rank(3)]).time == 13.0


def test_partial_stays_partial() -> None:
    assert merge([rank(0, partial=True), rank(1)]).partial


@given(st.permutations(range(4)))
def test_the_order_in_which_ranks_are_given_does_not_matter(order: list[int]) -> None:
    ranks = [
        rank(
            i,
            rows(np.full((4, 6), float(i % 2)), np.full((3, 8), i + 0.1)),
            scalars={"losses": {"loss": 0.1 * i}},
        )
        for i in range(4)
    ]
    merged, shuffled = merge(ranks), merge([ranks[i] for i in order])
    np.testing.assert_array_equal(merged.stats, shuffled.stats)
    assert merged.scalars == shuffled.scalars
    assert merged.workers == shuffled.workers


def parted(values: FloatArray, *, flags: int = 0) -> FloatArray:
    table = rows(values)
    table[0, INDEX["flags"]] = Flag.PART | flags
    return table


def test_parts_of_a_weight_are_the_weight_when_all_are_there() -> None:
    weight = RNG.normal(size=(4, 6))
    halves = [rank(i, parted(weight[2 * i : 2 * i + 2], flags=Flag.SAMPLED)) for i in (0, 1)]
    merged = merge(halves)
    whole = rows(weight)
    assert at(merged, "fc.weight", "n") == 24
    assert at(merged, "fc.weight", "flags") == Flag.SAMPLED
    assert at(merged, "fc.weight", "sum_abs") == pytest.approx(whole[0, INDEX["sum_abs"]])


def test_parts_of_a_weight_are_nothing_when_some_are_missing() -> None:
    weight = RNG.normal(size=(4, 6))
    relu = RNG.normal(size=8)
    table = parted(weight[:2])
    table[1] = rows(weight, relu)[1]
    for merged in (merge([rank(0, table)]), merge([rank(0, table), rank(1)], partial=True)):
        assert math.isnan(at(merged, "fc.weight", "n"))
        assert at(merged, "relu", "n") == 8


def test_a_part_that_is_all_there_is_counts_as_the_weight() -> None:
    merged = merge([rank(0, parted(RNG.normal(size=(4, 6)))), rank(1)])
    assert at(merged, "fc.weight", "flags") == 0
