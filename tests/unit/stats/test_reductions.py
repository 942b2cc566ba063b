"""Rows of statistics against a slow float64 oracle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainwarden.errors import BadInputError
from trainwarden.model import Channels
from trainwarden.stats.blocks import BLOCK
from trainwarden.stats.catalog import COLUMNS, INDEX, WIDTH
from trainwarden.stats.derived import STATISTICS
from trainwarden.stats.dtypes import KINDS
from trainwarden.stats.reductions import (
    EMPTY_ROW,
    Tensor,
    channel_columns,
    channels,
    row,
    table,
)

Array = npt.NDArray[Any]
Row = npt.NDArray[np.float64]
RNG = np.random.default_rng(20)
COUNTERS = ("n", "n_nan", "n_pinf", "n_ninf", "n_zero", "n_neg", "n_tiny")


def get(found: Row, name: str) -> float:
    return float(found[INDEX[name]])


def fingerprint(found: Row) -> bytes:
    return found[INDEX["fp_xor"] : INDEX["fp_sum"] + 1].tobytes()


def derived(found: Row, name: str) -> float:
    return float(STATISTICS[name].compute(found[np.newaxis])[0])


def oracle(values: Array, tiny: float) -> dict[str, float]:
    """Statistics of float64 ``values``, each the most obvious way."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        x = values.astype(np.float64).ravel()
    f = x[np.isfinite(x)]
    nonzero = np.abs(f[f != 0])
    with np.errstate(over="ignore"):
        return {
            "n": x.size,
            "n_nan": int(np.isnan(x).sum()),
            "n_pinf": int((x == np.inf).sum()),
            "n_ninf": int((x == -np.inf).sum()),
            "n_zero": int((f == 0).sum()),
            "n_neg": int((f < 0).sum()),
            "n_tiny": int((nonzero < tiny).sum()),
            "min": f.min() if f.size else np.nan,
            "max": f.max() if f.size else np.nan,
            "absmin_nz": nonzero.min() if nonzero.size else np.nan,
            "sum_abs": np.abs(f).sum(),
            "mean": f.mean() if f.size else np.nan,
            "std": f.std() if f.size else np.nan,
            "l2": np.sqrt((f * f).sum()),
        }


def exact(found: Row, wanted: dict[str, float]) -> None:
    for name in (*COUNTERS, "min", "max", "absmin_nz"):
        assert get(found, name) == pytest.approx(wanted[name], rel=0, abs=0, nan_ok=True), name


def agree(found: Row, values: Array, tiny: float, *, digits: float = 2e-6) -> None:
    """Hold a row against the oracle: counts and extremes exactly, sums to ``digits``."""
    wanted = oracle(values, tiny)
    exact(found, wanted)
    scale = wanted["sum_abs"] / max(wanted["n"], 1)
    assert get(found, "sum_abs") == pytest.approx(wanted["sum_abs"], rel=digits)
    assert derived(found, "l2") == pytest.approx(wanted["l2"], rel=digits)
    assert derived(found, "mean") == pytest.approx(wanted["mean"], abs=digits * scale, nan_ok=True)
    spread = max(wanted["std"], scale * 1e-3) if wanted["std"] == wanted["std"] else 1.0
    assert derived(found, "std") == pytest.approx(
        wanted["std"], abs=20 * digits * spread, nan_ok=True
    )


singles = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=12, min_side=0))


@given(singles)
def test_float32_rows_equal_the_oracle_for_any_values(x: Array) -> None:
    found = row(x, dtype="float32")
    wanted = oracle(x, 2.0**-126)
    exact(found, wanted)
    assert get(found, "sum_abs") == pytest.approx(wanted["sum_abs"], rel=1e-6)
    assert derived(found, "l2") == pytest.approx(wanted["l2"], rel=1e-6)


@given(hnp.arrays(np.float64, st.integers(0, 40), elements=st.floats(-1e150, 1e150, width=64)))
def test_float64_rows_equal_the_oracle(x: Array) -> None:
    agree(row(x, dtype="float64"), x, 2.0**-1022, digits=1e-12)


@pytest.mark.parametrize(
    "size", [1, 7, 4096, 8191, 8193, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]
)
@pytest.mark.parametrize("name", ["normal", "shifted", "constant", "pixels", "heavy", "relu"])
def test_sizes_around_a_block_lose_no_digits(size: int, name: str) -> None:
    make: dict[str, Callable[[], Array]] = {
        "normal": lambda: RNG.normal(size=size),
        "shifted": lambda: 1000 + 0.01 * RNG.normal(size=size),
        "constant": lambda: np.full(size, 0.1),
        "pixels": lambda: RNG.integers(0, 256, size),
        "heavy": lambda: RNG.standard_cauchy(size=size),
        "relu": lambda: np.maximum(RNG.normal(size=size), 0),
    }
    x = make[name]().astype(np.float32)
    agree(row(x, dtype="float32"), x, 2.0**-126)


def test_a_constant_tensor_has_no_variance_at_all() -> None:
    found = row(np.full(100_000, 0.1, np.float32), dtype="float32")
    assert derived(found, "variance") == 0.0
    assert derived(found, "mean") == np.float32(0.1)


def test_a_large_mean_does_not_cancel_the_variance() -> None:
    x = (1000 + 0.01 * RNG.normal(size=300_000)).astype(np.float32)
    found = row(x, dtype="float32")
    assert derived(found, "std") == pytest.approx(float(x.astype(np.float64).std()), rel=1e-4)


@pytest.mark.parametrize("scale", [1e25, 1e-30, 1e-42])
def test_squares_beyond_float32_are_summed_in_float64(scale: float) -> None:
    x = (RNG.normal(size=5000) * scale).astype(np.float32)
    found = row(x, dtype="float32", previous=x * np.float32(0.5))
    wanted = float(np.sqrt((x.astype(np.float64) ** 2).sum()))
    assert derived(found, "l2") == pytest.approx(wanted, rel=1e-6)
    assert derived(found, "update_ratio") == pytest.approx(1.0, rel=1e-5 if scale > 1e-40 else 0.1)


def test_non_finite_elements_are_counted_and_set_aside() -> None:
    x = RNG.normal(size=2 * BLOCK).astype(np.float32)
    x[[3, 4, 5]] = np.nan
    x[BLOCK + 1], x[BLOCK + 2 : BLOCK + 4] = np.inf, -np.inf
    found = row(x, dtype="float32", bounds=(-1.0, 1.0))
    agree(found, x, 2.0**-126)
    assert (get(found, "n_nan"), get(found, "n_pinf"), get(found, "n_ninf")) == (3, 1, 2)
    assert get(found, "n_sat_lo") == np.count_nonzero(x <= -1)
    assert get(found, "n_sat_hi") == np.count_nonzero(x >= 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_tensor_without_a_finite_element_has_no_extremes(value: float) -> None:
    found = row(np.full(10, value, np.float32), dtype="float32")
    assert get(found, "n") == 10
    assert np.isnan([get(found, name) for name in ("min", "max", "absmin_nz")]).all()
    assert np.isnan(derived(found, "mean"))
    assert (get(found, "sum_d"), get(found, "sum_d2"), get(found, "sum_abs")) == (0, 0, 0)


def test_an_empty_tensor_counts_nothing() -> None:
    found = row(
        np.empty((0, 3), np.float32), dtype="float32", previous=np.empty((0, 3), np.float32)
    )
    assert [get(found, name) for name in COUNTERS] == [0] * len(COUNTERS)
    assert (get(found, "u_n"), get(found, "u_sum2")) == (0, 0)
    assert np.isnan([get(found, name) for name in ("min", "max", "u_maxabs", "u_excess")]).all()


def test_what_was_not_asked_for_is_nan() -> None:
    found = row(np.ones(4, np.float32), dtype="float32")
    absent = {spec.name for i, spec in enumerate(COLUMNS) if np.isnan(found[i])}
    assert absent == {spec.name for spec in COLUMNS if spec.nan != "never"} - {
        "n",
        "min",
        "max",
        "absmin_nz",
    }


def test_negative_zero_is_zero_and_not_negative() -> None:
    found = row(np.array([-0.0, 0.0, -1.0, 2.0], np.float32), dtype="float32")
    assert (get(found, "n_zero"), get(found, "n_neg"), get(found, "absmin_nz")) == (2, 1, 1.0)


def bits16() -> Array:
    return np.arange(2**16, dtype=np.uint16)


def bits8() -> Array:
    return np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize(
    ("dtype", "codes", "numbers"),
    [
        ("bfloat16", bits16(), bits16().view(ml_dtypes.bfloat16)),
        ("float8_e4m3fn", bits8(), bits8().view(ml_dtypes.float8_e4m3fn)),
        ("float8_e5m2", bits8(), bits8().view(ml_dtypes.float8_e5m2)),
        ("float16", bits16().view(np.float16), bits16().view(np.float16)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_code_of_a_narrow_float_is_the_number_it_stands_for(
    dtype: str, codes: Array, numbers: Array
) -> None:
    wanted = numbers.astype(np.float32)
    kind = KINDS[dtype]
    wide = np.empty(codes.size, np.float32)
    assert kind.widen is not None
    kind.widen(codes, wide)
    np.testing.assert_array_equal(wide, wanted)
    shuffled = RNG.permutation(codes.size)
    agree(row(codes[shuffled], dtype=dtype), wanted, kind.tiny)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
def test_integers_are_summed_exactly(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = RNG.integers(max(info.min, -(2**31)), min(info.max, 2**31), 70_000).astype(dtype)
    found = row(x, dtype=dtype)
    wide = x.astype(np.float64)
    assert get(found, "min") == x.min()
    assert get(found, "max") == x.max()
    assert get(found, "n_neg") == (x < 0).sum()
    assert get(found, "n_tiny") == 0
    assert derived(found, "sum") == pytest.approx(wide.sum(), rel=1e-6, abs=1e-7 * x.size)
    assert derived(found, "std") == pytest.approx(wide.std(), rel=1e-5)


def test_booleans_are_zeros_and_ones() -> None:
    x = RNG.random(1000) < 0.3
    found = row(x, dtype="bool")
    assert get(found, "n_zero") == (~x).sum()
    assert derived(found, "mean") == pytest.approx(x.mean(), rel=1e-6)


@pytest.mark.parametrize(("dtype", "part"), [("complex64", "f4"), ("complex128", "f8")])
def test_a_complex_tensor_counts_its_real_and_imaginary_parts(dtype: str, part: str) -> None:
    x = (RNG.normal(size=(5, 7)) + 1j * RNG.normal(size=(5, 7))).astype(dtype)
    found = row(x, dtype=dtype, previous=x * 2)
    assert get(found, "n") == 2 * x.size
    assert derived(found, "l2") == pytest.approx(float(np.linalg.norm(x.view(part))), rel=1e-6)
    assert derived(found, "update_ratio") == pytest.approx(0.5, rel=1e-6)
    turned = row(x.T, dtype=dtype, per_unit=True)
    assert get(turned, "n") == 2 * x.size
    norms = np.linalg.norm(x, axis=0)
    assert get(turned, "row_norm_max") == pytest.approx(norms.max(), rel=1e-6)


def test_a_number_without_dimensions_is_one_element() -> None:
    found = row(np.array(-2.5, np.float32), dtype="float32")
    assert (get(found, "n"), get(found, "min"), derived(found, "mean")) == (1, -2.5, -2.5)


def test_memory_order_changes_no_statistic() -> None:
    x = RNG.normal(size=(4, 6, 5)).astype(np.float32)
    before = x + RNG.normal(size=x.shape).astype(np.float32)
    plain = row(x, dtype="float32", previous=before)
    fortran, sliced = np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]
    same = [i for name, i in INDEX.items() if not name.startswith("fp_")]
    for other in (fortran, sliced, x[::-1]):
        matching = before[::-1] if other.strides[0] < 0 else before
        found = row(other, dtype="float32", previous=matching)
        np.testing.assert_allclose(found[same], plain[same], rtol=1e-6)


def test_counters_stay_exact_beyond_two_to_the_31() -> None:
    x = np.zeros(2**31 + 7, np.bool_)
    x[[0, 5, 2**31 + 6]] = True
    found = row(x, dtype="bool")
    assert get(found, "n") == 2**31 + 7
    assert get(found, "n_zero") == 2**31 + 4
    assert derived(found, "sum") == pytest.approx(3.0, rel=1e-6)


@given(singles, st.integers(0, 2**32 - 1))
def test_updates_equal_the_oracle_where_both_values_are_finite(x: Array, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = np.where(rng.random(x.shape) < 0.5, x, rng.normal(size=x.shape)).astype(np.float32)
    found = row(x, dtype="float32", previous=before)
    both = np.isfinite(x) & np.isfinite(before)
    now, then = x[both].astype(np.float64), before[both].astype(np.float64)
    d = now - then
    assert get(found, "u_n") == both.sum()
    assert derived(found, "update_l2") == pytest.approx(np.sqrt((d * d).sum()), rel=1e-5)
    assert np.sqrt(get(found, "u_w2")) == pytest.approx(np.sqrt((then**2).sum()), rel=1e-5)
    if d.size:
        excess = np.max(np.abs(d) - 1e-5 * np.abs(then))
        assert get(found, "u_maxabs") == pytest.approx(np.abs(d).max(), rel=1e-6)
        scale = 1e-6 * float(np.abs(d).max() + 1e-5 * np.abs(then).max())
        assert get(found, "u_excess") == pytest.approx(excess, rel=1e-5, abs=scale)


@pytest.mark.parametrize("change", [0.0, 1e-9, 3e-6, 3e-5, 1e-2])
def test_update_excess_tells_what_allclose_tells(change: float) -> None:
    before = RNG.uniform(0.5, 2.0, size=3 * BLOCK).astype(np.float32)
    after = before.copy()
    after[BLOCK + 17] *= np.float32(1 + change)
    found = row(after, dtype="float32", previous=before)
    assert (get(found, "u_excess") <= 1e-8) is bool(
        np.allclose(after, before, rtol=1e-5, atol=1e-8)
    )


@given(singles, st.floats(-2, 2, width=32), st.floats(0, 2, width=32))
def test_saturation_counts_what_lies_at_or_beyond_the_bounds(
    x: Array, low: float, up: float
) -> None:
    found = row(x, dtype="float32", bounds=(low, low + up))
    assert get(found, "n_sat_lo") == np.count_nonzero(x <= np.float32(low))
    assert get(found, "n_sat_hi") == np.count_nonzero(x >= np.float32(low + up))


def test_the_fingerprint_sees_any_flipped_bit() -> None:
    x = RNG.integers(0, 256, 3000).astype(np.uint8)
    original = fingerprint(row(x, dtype="uint8"))
    assert original == fingerprint(row(x.copy(), dtype="uint8"))
    for bit in RNG.choice(x.size * 8, 500, replace=False):
        flipped = x.copy()
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert fingerprint(row(flipped, dtype="uint8")) != original


def test_the_fingerprint_sees_blocks_that_changed_places() -> None:
    x = RNG.normal(size=2 * BLOCK).astype(np.float32)
    swapped = np.concatenate([x[BLOCK:], x[:BLOCK]])
    assert fingerprint(row(x, dtype="float32")) != fingerprint(row(swapped, dtype="float32"))


def test_units_have_norms_and_duplicates() -> None:
    weight = RNG.normal(size=(6, 3, 2)).astype(np.float32)
    weight[4] = weight[1]
    weight[5] = 0.0
    found = row(weight, dtype="float32", per_unit=True)
    norms = np.linalg.norm(weight.reshape(6, -1), axis=1)
    assert get(found, "row_norm_min") == 0.0
    assert get(found, "row_norm_max") == pytest.approx(norms.max(), rel=1e-6)
    assert get(found, "row_dup") == 2


@pytest.mark.parametrize("shape", [(7,), (0, 3), (3, 0), ()])
def test_no_units_no_norms(shape: tuple[int, ...]) -> None:
    found = row(np.ones(shape, np.float32), dtype="float32", per_unit=True)
    assert np.isnan(found[INDEX["row_norm_min"] : INDEX["row_dup"] + 1]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_wide_units_are_summed_in_pieces(dtype: str) -> None:
    wide = RNG.normal(size=(3, 2 * BLOCK + 3)).astype(np.float32)
    forms: dict[str, Array] = {
        "float32": wide,
        "float64": wide.astype(np.float64),
        "bfloat16": (wide.view(np.uint32) >> 16).astype(np.uint16),
    }
    found = row(forms[dtype], dtype=dtype, per_unit=True)
    norms = np.linalg.norm(wide.astype(np.float64), axis=1)
    digits = 0.01 if dtype == "bfloat16" else 1e-6
    assert get(found, "row_norm_max") == pytest.approx(norms.max(), rel=digits)


def test_channels_count_strictly_positive_elements() -> None:
    x = np.maximum(RNG.normal(size=(8, 5, 4, 4)), 0).astype(np.float32)
    x[:, 2] = 0.0
    x[:, 3] = 0.0
    x[0, 3, 0, 0] = 1.0
    active, seen = channels(x, 1)
    assert seen == 8 * 16
    np.testing.assert_array_equal(active, (x > 0).sum(axis=(0, 2, 3)))
    found = EMPTY_ROW.copy()
    channel_columns(found, Channels(active, seen))
    assert [get(found, name) for name in ("ch_n", "ch_dead", "ch_low")] == [5, 1, 2]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_channels_of_narrow_floats_know_the_sign_and_nan(dtype: str) -> None:
    codes = bits16() if dtype == "bfloat16" else bits8()
    numbers = codes.view(getattr(ml_dtypes, dtype)).astype(np.float32)
    active, seen = channels(codes.reshape(1, -1), 1, dtype=dtype)
    np.testing.assert_array_equal(active, numbers > 0)
    assert seen == 1


@pytest.mark.parametrize(
    "shape", [(8,), (3, 5), (4, 3, 2), (2, 3, 16), (2, 3, 4, 5), (0, 3), (3, 0)]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_channels_are_counted_along_any_axis(
    shape: tuple[int, ...], order: Literal["C", "F"]
) -> None:
    x = np.asarray(RNG.normal(size=shape).astype(np.float32), order=order)
    for axis in range(-len(shape), len(shape)):
        others = tuple(i for i in range(len(shape)) if i != axis % len(shape))
        active, seen = channels(x, axis)
        np.testing.assert_array_equal(active, (x > 0).sum(axis=others))
        assert active.dtype == np.int64
        assert seen * shape[axis] == x.size


def test_the_channel_axis_may_be_counted_from_the_end() -> None:
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(channels(x, -1).active, (x > 0).sum(axis=(0, 1)))
    with pytest.raises(BadInputError, match="an axis of 3 dimensions"):
        channels(x, 3)


def alike(found: Row, wanted: Row) -> None:
    """Counts, extremes and fingerprints agree exactly, sums to float32's digits."""
    sums = [name for name in INDEX if name.startswith(("sum_", "u_", "max_block"))]
    at = [INDEX[name] for name in sums]
    exact = [i for i in range(WIDTH) if i not in at and i != INDEX["shift"]]
    assert found[exact].tobytes() == wanted[exact].tobytes()
    scale = np.nan_to_num(wanted[INDEX["sum_abs"]]) + np.nan_to_num(wanted[INDEX["u_maxabs"]])
    for name in ("mean", "std", "l2", "update_l2", "update_ratio", "update_mean", "update_excess"):
        assert derived(found, name) == pytest.approx(
            derived(wanted, name), rel=2e-6, abs=2e-6 * scale, nan_ok=True
        ), name


def test_a_table_holds_the_rows_of_its_tensors() -> None:
    tensors = [
        Tensor(RNG.normal(size=(9, 4)).astype(np.float32), "float32", None, (-1, 1), per_unit=True),
        Tensor(RNG.integers(0, 9, 70_000), "int64"),
        Tensor(np.array([np.nan, 1, 2], np.float32), "float32"),
        Tensor(RNG.normal(size=50).astype(np.float16), "float16", np.zeros(50, np.float16)),
        Tensor(RNG.normal(size=(8, 6)).astype(np.float32), "float32", per_unit=True),
        *(Tensor(RNG.normal(size=size).astype(np.float32), "float32") for size in range(200)),
        *(Tensor(RNG.normal(5, 1, 4096).astype(np.float32), "float32") for _ in range(30)),
        *(Tensor(RNG.normal(size=4098).astype(np.float32), "float32") for _ in range(3)),
    ]
    out = np.empty((len(tensors), WIDTH))
    table(tensors, out)
    for found, t in zip(out, tensors, strict=True):
        alike(
            found,
            row(t.x, dtype=t.dtype, previous=t.previous, bounds=t.bounds, per_unit=t.per_unit),
        )


small = hnp.arrays(
    np.float32,
    st.integers(0, 8),
    elements=st.one_of(
        st.floats(width=32),
        st.sampled_from([0.0, -0.0, 1.0, 1.0 + 2**-23, -3.5, 2.0**-100, 2.0**-130, 2.0**80]),
    ),
)


@given(st.lists(st.tuples(small, st.sampled_from(["none", "same", "half", "zero"])), max_size=20))
def test_small_tensors_packed_together_keep_their_own_statistics(
    drawn: list[tuple[Array, str]],
) -> None:
    tensors = []
    with np.errstate(all="ignore"):
        for x, kind in drawn:
            before = {"none": None, "same": x, "half": x * np.float32(0.5), "zero": x * 0}[kind]
            tensors.append(Tensor(x, "float32", before))
    out = np.empty((len(tensors), WIDTH))
    table(tensors, out)
    for found, t in zip(out, tensors, strict=True):
        alike(found, row(t.x, dtype="float32", previous=t.previous))


def test_reducing_changes_no_tensor() -> None:
    x = RNG.normal(size=2 * BLOCK).astype(np.float32)
    before = x.copy()
    x.flags.writeable = before.flags.writeable = False
    row(x, dtype="float32", previous=before, bounds=(0, 1))
    np.testing.assert_array_equal(x, before)


def test_threads_do_not_share_scratch() -> None:
    arrays = [RNG.normal(size=BLOCK + 1).astype(np.float16) for _ in range(4)]
    wanted = [row(x, dtype="float16").tobytes() for x in arrays]
    wrong: list[int] = []

    def work(i: int) -> None:
        wrong.extend(i for _ in range(10) if row(arrays[i], dtype="float16").tobytes() != wanted[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("x", "dtype", "previous", "message"),
    [
        (np.ones(2, np.float32), "float12", None, "a dtype of float32"),
        (np.ones(2, np.float32), "bfloat16", None, "a uint16 array for bfloat16"),
        (np.ones(2, np.float32), "float32", np.ones(3, np.float32), "a previous value of float32"),
        (np.ones(2, np.float32), "float32", np.ones(2), "a float32 array for float32"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    x: Array, dtype: str, previous: Array | None, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        row(x, dtype=dtype, previous=previous)


@settings(max_examples=30)
@given(st.integers(1, 3 * BLOCK), st.integers(0, 2**32 - 1))
def test_any_size_gives_the_sums_of_the_oracle(size: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(0.3, 1.0, size).astype(np.float32)
    agree(row(x, dtype="float32"), x, 2.0**-126)
