"""Octave histograms: what is counted where, and how good the quantiles are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainwarden.errors import BadInputError
from trainwarden.stats.blocks import BLOCK
from trainwarden.stats.histogram import BINS, OCTAVES, SIDE, edges, histogram, quantiles
from trainwarden.wire.sides import HISTOGRAM_BINS

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
RNG = np.random.default_rng(8)


@given(hnp.arrays(np.float32, st.integers(0, 60)))
def test_every_finite_element_lies_between_the_edges_of_its_bin(x: npt.NDArray[np.float32]) -> None:
    f = x[np.isfinite(x)].astype(np.float64)
    f = np.clip(f, *edges()[[0, -1]])
    f = np.where(np.abs(f) < 2.0**-OCTAVES, 0.0, f)
    side = np.searchsorted(edges(), np.abs(f), side="right") - 1
    bins = np.clip(np.where(f < 0, 2 * SIDE - side, side), 0, BINS - 1)
    wanted = np.bincount(bins, minlength=BINS)
    np.testing.assert_array_equal(histogram(x, dtype="float32"), wanted)


def test_histograms_add_up() -> None:
    x = RNG.normal(size=3 * BLOCK + 11).astype(np.float32)
    parts = sum(histogram(part, dtype="float32") for part in np.split(x, [5, BLOCK, 2 * BLOCK]))
    np.testing.assert_array_equal(histogram(x, dtype="float32"), parts)


@pytest.mark.parametrize("name", ["normal", "lognormal", "half", "uniform"])
def test_quantiles_are_good_to_five_percent(name: str) -> None:
    x = {
        "normal": RNG.normal(5, 1, 200_000),
        "lognormal": RNG.lognormal(0, 3, 200_000),
        "half": np.abs(RNG.normal(size=200_000)) + 1e-3,
        "uniform": RNG.uniform(-9, -1, 200_000),
    }[name]
    counts = histogram(x.astype(np.float32), dtype="float32")
    found = quantiles(counts, SHARES, low=x.min(), high=x.max())
    np.testing.assert_allclose(found, np.quantile(x, SHARES), rtol=0.05)


def test_the_ends_lie_in_bins_that_hold_something() -> None:
    # 7.9 lies in the bin from 7 to 8
    found = quantiles(histogram(np.array([1.0, 1.1, 7.9], np.float32), dtype="float32"), (0, 1))
    assert found.tolist() == [1.0, 8.0]


def test_zeros_are_exactly_zero() -> None:
    x = np.array([0.0, -0.0, 1e-40, -1.0, 1.0], np.float32)
    assert histogram(x, dtype="float32")[SIDE] == 3
    assert quantiles(histogram(x, dtype="float32"), [0.5])[0] == 0.0


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.array([1e300, -1e300, np.nan, np.inf, 2.0]), "float64"),
        (np.array([2**62, -(2**62), 2], np.int64), "int64"),
        (np.array([0x7F7F, 0xFF7F, 0x7FC0, 0x7F80, 0x4000], np.uint16), "bfloat16"),
    ],
)
def test_finite_giants_fall_into_the_outermost_bins(x: npt.NDArray[np.generic], dtype: str) -> None:
    found = histogram(x, dtype=dtype)
    assert (found.sum(), found[0], found[-1]) == (3, 1, 1)


def test_an_empty_histogram_has_no_quantiles() -> None:
    assert np.isnan(quantiles(histogram(np.empty(0, np.float32), dtype="float32"), SHARES)).all()


def test_shares_outside_zero_and_one_are_refused() -> None:
    with pytest.raises(BadInputError, match="shares from 0 to 1"):
        quantiles(np.zeros(BINS, np.int64), [1.5])


def test_the_wire_format_has_as_many_bins() -> None:
    assert HISTOGRAM_BINS == BINS
