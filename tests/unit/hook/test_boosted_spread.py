"""What the XGBoost callback tells of where predictions lie: counts and means, no row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.hook.boosted.spread import BINS, RANGES, RANKS, ranked, residual_facts

NUMBERS = st.floats(-1e6, 1e6, width=32)


def floats(values: object) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32).reshape(-1)


def test_labels_are_counted_along_the_order_of_the_scores() -> None:
    told = ranked(floats([0.9, 0.1, 0.5, 0.1]), floats([1, 0, 1, 1]))
    assert told == {0: 1, 1: 1, 3: 1, 5: 1}  # the equal scores share the first rank


@pytest.mark.parametrize("count", [1, 99, 100, 101, 5000])
def test_there_are_at_most_a_hundred_ranks_of_about_as_many_rows(count: int) -> None:
    random = np.random.default_rng(0)
    scores, labels = floats(random.normal(size=count)), floats(random.integers(0, 2, count))
    told = ranked(scores, labels)
    sizes = np.bincount([key // 2 for key, n in told.items() for _ in range(n)])
    assert len(sizes) <= RANKS
    assert sizes.sum() == count
    assert sizes.max() - sizes.min() <= 1
    assert sum(n for key, n in told.items() if key % 2) == int(labels.sum())


def test_what_is_not_finite_or_no_class_is_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    assert ranked(floats([nan, inf, 0.5, 0.5]), floats([1, 1, 0.5, 1])) == {1: 1}
    assert ranked(floats([nan]), floats([1])) == {}
    assert ranked(floats([]), floats([])) == {}


def test_residuals_are_told_by_range_of_the_label() -> None:
    labels = floats(np.arange(800))
    residuals = floats(np.where(np.arange(800) < 100, -2.0, 1.0))
    told = residual_facts(labels, residuals)
    assert [told[f"range_{i}.rows"] for i in range(RANGES)] == [100.0] * RANGES
    assert (told["range_0.from"], told["range_0.to"]) == (0.0, 99.0)
    assert (told["range_0.mean"], told["range_0.abs_mean"]) == (-2.0, 2.0)
    assert told["range_7.abs_mean"] == 1.0
    assert (told["low"], told["high"]) == (-2.0, 1.0)
    assert (told["bin_0.rows"], told[f"bin_{BINS - 1}.rows"]) == (100.0, 700.0)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=60))
def test_every_row_lies_in_one_range_and_one_bin(rows: list[tuple[float, float]]) -> None:
    labels, residuals = floats([a for a, _ in rows]), floats([b for _, b in rows])
    told = residual_facts(labels, residuals)
    ranges = [i for i in range(RANGES) if f"range_{i}.rows" in told]
    assert ranges == list(range(len(ranges)))  # without a gap
    assert sum(told[f"range_{i}.rows"] for i in ranges) == len(rows)
    for i in ranges[1:]:
        assert told[f"range_{i - 1}.to"] < told[f"range_{i}.from"]
    binned = [value for name, value in told.items() if name.startswith("bin_")]
    assert sum(binned) == (len(rows) if told["low"] < told["high"] else 0)
    assert np.isfinite([*told.values()]).all()


def test_without_finite_rows_nothing_is_told() -> None:
    assert residual_facts(floats([1.0]), floats([float("nan")])) == {}
    assert residual_facts(floats([]), floats([])) == {}
    assert residual_facts(np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)) == {}
