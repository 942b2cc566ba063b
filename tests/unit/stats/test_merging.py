"""Shards merge into the whole, in any grouping and any order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.stats.blocks import BLOCK
from trainwarden.stats.catalog import COLUMNS, INDEX, WIDTH, Flag, Merge
from trainwarden.stats.derived import STATISTICS
from trainwarden.stats.merging import merge_rows
from trainwarden.stats.reductions import EMPTY_ROW, row

Rows = npt.NDArray[np.float64]
EXACT = [
    i
    for i, spec in enumerate(COLUMNS)
    if spec.merge in (Merge.MIN, Merge.MAX) or spec.unit in ("elements", "rows")
]
MOMENTS = ("mean", "std", "l2", "abs_mean", "update_l2", "update_ratio", "update_mean")
PRINTS = slice(INDEX["fp_xor"], INDEX["fp_sum"] + 1)


def value(rows: Rows, name: str) -> float:
    return float(STATISTICS[name].compute(rows.reshape(1, WIDTH))[0])


def shard(x: npt.NDArray[np.float32], before: npt.NDArray[np.float32]) -> Rows:
    return row(x, dtype="float32", previous=before, bounds=(-1.0, 1.0))


ROUNDED = ("u_maxabs", "u_excess")  # a difference in float32 or, beside small values, in float64


def alike(found: Rows, wanted: Rows, *, but: tuple[str, ...] = ("max_block_l2",)) -> None:
    exact = [i for i in EXACT if COLUMNS[i].name not in (*but, *ROUNDED)]
    np.testing.assert_array_equal(found[exact], wanted[exact])
    rounded = [INDEX[name] for name in ROUNDED]
    np.testing.assert_allclose(found[rounded], wanted[rounded], rtol=1e-6, atol=1e-12)
    scale = abs(value(wanted, "abs_mean")) or 1.0
    for name in MOMENTS:
        np.testing.assert_allclose(
            value(found, name), value(wanted, name), rtol=1e-5, atol=1e-5 * scale, err_msg=name
        )


samples = st.builds(
    lambda seed, size, shift, spread, holes: _sample(seed, size, shift, spread, holes=holes),
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.sampled_from([0.0, 1.0, -50.0, 1000.0]),
    st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    st.booleans(),
)


def _sample(
    seed: int, size: int, shift: float, spread: float, *, holes: bool
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(shift, spread, size).astype(np.float32)
    before = (x + rng.normal(0, 0.1, size)).astype(np.float32)
    if holes:
        at = rng.integers(0, size, 4)
        x[at] = [np.nan, np.inf, -np.inf, 0.0]
    return x, before


@given(samples, st.lists(st.integers(0, 300), max_size=3))
def test_a_split_tensor_merges_into_the_whole(
    sample: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]], cuts: list[int]
) -> None:
    x, before = sample
    shards = [
        shard(a, b)
        for a, b in zip(np.split(x, sorted(cuts)), np.split(before, sorted(cuts)), strict=True)
    ]
    merged = shards[0]
    for other in shards[1:]:
        merged = merge_rows(merged, other)
    alike(merged, shard(x, before))


@given(samples, samples, samples)
def test_grouping_and_order_do_not_matter(
    one: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
    two: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
    three: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
) -> None:
    a, b, c = (shard(*sample) for sample in (one, two, three))
    left = merge_rows(merge_rows(a, b), c)
    alike(merge_rows(a, merge_rows(b, c)), left, but=())
    alike(merge_rows(c, merge_rows(b, a)), left, but=())
    assert merge_rows(b, merge_rows(c, a))[PRINTS].tobytes() == left[PRINTS].tobytes()


def test_shards_cut_between_blocks_keep_the_largest_block() -> None:
    x = np.random.default_rng(1).normal(size=3 * BLOCK).astype(np.float32)
    parts = [row(part, dtype="float32") for part in np.split(x, [BLOCK, 2 * BLOCK])]
    merged = merge_rows(merge_rows(parts[0], parts[1]), parts[2])
    at = INDEX["max_block_l2"]
    assert merged[at] == row(x, dtype="float32")[at]


def test_an_absent_row_changes_nothing_not_even_a_bit() -> None:
    x = shard(*_sample(3, 100, 0.0, 1.0, holes=True))
    assert merge_rows(x, EMPTY_ROW).tobytes() == x.tobytes()
    assert merge_rows(EMPTY_ROW, x).tobytes() == x.tobytes()
    assert np.isnan(merge_rows(EMPTY_ROW, EMPTY_ROW)).all()


def test_a_column_that_one_side_knows_keeps_that_value() -> None:
    x, before = _sample(4, 50, 0.0, 1.0, holes=False)
    merged = merge_rows(row(x, dtype="float32"), shard(x, before))
    for name in ("u_n", "u_sum2", "n_sat_lo", "u_maxabs"):
        assert merged[INDEX[name]] == shard(x, before)[INDEX[name]]


def test_a_shard_without_finite_elements_adds_counts_only() -> None:
    x, before = _sample(5, 50, 1000.0, 0.1, holes=False)
    bad = shard(np.full(7, np.nan, np.float32), np.ones(7, np.float32))
    for merged in (merge_rows(shard(x, before), bad), merge_rows(bad, shard(x, before))):
        assert merged[INDEX["n_nan"]] == 7
        assert value(merged, "mean") == pytest.approx(value(shard(x, before), "mean"), rel=1e-7)
        assert value(merged, "std") == pytest.approx(value(shard(x, before), "std"), rel=1e-5)


def test_means_far_apart_keep_their_variance() -> None:
    rng = np.random.default_rng(6)
    low, high = (rng.normal(at, 1e-3, 5000).astype(np.float32) for at in (-1000, 1000))
    merged = merge_rows(row(low, dtype="float32"), row(high, dtype="float32"))
    wanted = np.concatenate([low, high]).astype(np.float64)
    assert value(merged, "std") == pytest.approx(wanted.std(), rel=1e-6)
    assert value(merged, "mean") == pytest.approx(wanted.mean(), abs=1e-4)


def test_counts_beyond_two_to_the_31_add_exactly() -> None:
    x = row(np.ones(4, np.float32), dtype="float32")
    big = x.copy()
    big[INDEX["n"]] = 2.0**52 + 1
    assert merge_rows(big, x)[INDEX["n"]] == 2**52 + 5


def test_flags_are_united() -> None:
    a, b = (row(np.ones(4, np.float32), dtype="float32") for _ in range(2))
    a[INDEX["flags"]], b[INDEX["flags"]] = Flag.SAMPLED | Flag.SCALED, Flag.SCALED | Flag.SKIPPED
    assert merge_rows(a, b)[INDEX["flags"]] == Flag.SAMPLED | Flag.SCALED | Flag.SKIPPED


def test_tables_of_any_shape_merge_row_by_row() -> None:
    rows = np.stack([shard(*_sample(seed, 40, 1.0, 1.0, holes=True)) for seed in range(6)])
    tables = rows.reshape(2, 3, WIDTH)
    merged = merge_rows(tables[0], tables[1])
    for i in range(3):
        assert merged[i].tobytes() == merge_rows(rows[i], rows[3 + i]).tobytes()
    assert merge_rows(tables, EMPTY_ROW).tobytes() == tables.tobytes()
