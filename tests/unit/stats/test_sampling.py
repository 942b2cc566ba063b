"""Rows from samples against rows of whole tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwarden.stats.catalog import INDEX, Flag
from trainwarden.stats.derived import STATISTICS
from trainwarden.stats.reductions import Tensor, row, table
from trainwarden.stats.sampling import ELEMENTS, WORTH, sampled_table

Array = npt.NDArray[Any]
Row = npt.NDArray[np.float64]
NONFINITE = ["n", "n_nan", "n_pinf", "n_ninf"]


def sampled(x: Array, dtype: str = "", previous: Array | None = None, **more: Any) -> Row:
    out = np.empty((1, 32))
    sampled_table([Tensor(x, dtype or str(x.dtype), previous, **more)], out)
    found: Row = out[0]
    return found


def whole(x: Array, dtype: str = "", previous: Array | None = None, **more: Any) -> Row:
    return row(x, dtype=dtype or str(x.dtype), previous=previous, **more)


def get(found: Row, name: str) -> float:
    return float(STATISTICS[name].compute(found[np.newaxis])[0])


def flags(found: Row) -> int:
    return int(found[INDEX["flags"]])


def weights(*shape: int, seed: int = 0) -> Array:
    drawn: Array = np.random.default_rng(seed).normal(0.01, 0.05, shape).astype(np.float32)
    return drawn


def encoded(values: Array, dtype: str) -> Array:
    """Return values as ``Tensor`` takes them."""
    if dtype == "bfloat16":
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_sample_tells_about_what_the_whole_does(dtype: str) -> None:
    x, before = weights(512, 300), weights(512, 300) - weights(512, 300, seed=1) * 0.01
    arguments = encoded(x, dtype), dtype, encoded(before, dtype)
    exact, few = whole(*arguments), sampled(*arguments)
    assert flags(few) == Flag.SAMPLED | Flag.UPDATE_SAMPLED
    for name in ("l2", "rms", "std"):
        assert get(few, name) == pytest.approx(get(exact, name), rel=0.005)
    for name in ("abs_mean", "update_l2", "update_ratio", "neg_fraction"):
        assert get(few, name) == pytest.approx(get(exact, name), rel=0.06)
    assert get(few, "mean") == pytest.approx(get(exact, "mean"), abs=0.005)
    assert get(few, "n") == x.size


def test_the_norm_is_exact() -> None:
    x = weights(700, 500) ** 5
    assert get(sampled(x), "l2") == pytest.approx(get(whole(x), "l2"), rel=1e-6)


def test_a_mean_far_from_zero_keeps_its_variance() -> None:
    x = 1000 + weights(512, 300)
    assert get(sampled(x), "std") == pytest.approx(get(whole(x), "std"), rel=0.05)


def test_counts_of_a_sample_are_whole_numbers() -> None:
    x = weights(300, 777)
    found = sampled(x, previous=x * 1.01)
    for name in ("n", "n_neg", "u_n"):
        assert found[INDEX[name]] == round(found[INDEX[name]])


def test_runs_do_not_fall_on_the_same_columns() -> None:
    x = np.ones((2048, 1024), np.float32)  # 32 rows from one run to the next
    x[:, :64] = 9.0
    assert get(sampled(x), "abs_mean") == pytest.approx(1.5, rel=0.35)


def spoiled(kind: str) -> tuple[Array, Array | None]:
    x = weights(512, 300)
    if kind == "no change":
        return x, x.copy()
    value = {"NaN": np.nan, "inf": np.inf, "huge": 1e30}.get(kind)
    if value is not None:
        x[7, 3] = value
    elif kind == "zeros":
        x[x < 0] = 0
    elif kind == "sparse":
        x[:, :-1] = 0
    elif kind == "subnormal":
        x *= np.float32(1e-41)
    return x, None


@pytest.mark.parametrize(
    "kind", ["NaN", "inf", "huge", "zeros", "sparse", "subnormal", "no change"]
)
def test_what_a_sample_cannot_tell_is_measured_whole(kind: str) -> None:
    x, previous = spoiled(kind)
    assert sampled(x, previous=previous).tobytes() == whole(x, previous=previous).tobytes()


@pytest.mark.parametrize(
    ("x", "more"),
    [
        (weights(10, WORTH // 10 - 1), {}),
        (np.arange(WORTH, dtype=np.int64), {}),
        (weights(2 * WORTH).astype(np.complex64), {}),
        (weights(WORTH), {"bounds": (-1.0, 1.0)}),
        (weights(128, WORTH // 128), {"per_unit": True}),
        (weights(4 * WORTH)[::2], {}),
    ],
    ids=["small", "integers", "complex", "bounds", "units", "gaps"],
)
def test_what_is_no_dense_large_tensor_is_measured_whole(x: Array, more: dict[str, Any]) -> None:
    assert sampled(x, **more).tobytes() == whole(x, **more).tobytes()


def test_a_tensor_in_another_order_is_sampled_in_memory_order() -> None:
    x = weights(512, 300)
    assert sampled(x.T).tobytes() == sampled(x).tobytes()


def test_large_and_small_ones_together_keep_their_rows() -> None:
    tensors = [Tensor(weights(n, 64, seed=n), "float32") for n in (1, 600, 3, 1000, 5)]
    few, exact = np.empty((5, 32)), np.empty((5, 32))
    sampled_table(tensors, few)
    table(tensors, exact)
    np.testing.assert_allclose(few[::2], exact[::2], rtol=1e-6)  # others are summed beside them
    assert [flags(found) for found in few] == [0, 1, 0, 1, 0]
    np.testing.assert_allclose(few[:, INDEX["n"]], exact[:, INDEX["n"]])


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(WORTH, 3 * WORTH),
    bad=st.lists(
        st.tuples(st.integers(0, WORTH - 1), st.sampled_from([np.nan, np.inf, -np.inf])), max_size=3
    ),
)
def test_what_is_not_finite_is_always_counted(size: int, bad: list[tuple[int, float]]) -> None:
    x = weights(size)
    for place, value in bad:
        x[place] = value
    columns = [INDEX[name] for name in NONFINITE]
    np.testing.assert_array_equal(sampled(x)[columns], whole(x)[columns])


def test_a_sample_is_worth_it() -> None:
    assert WORTH > ELEMENTS
