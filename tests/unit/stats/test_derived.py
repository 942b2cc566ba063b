"""Derived statistics against numpy, and the column that rules read."""

from __future__ import annotations

import numpy as np
import pytest

from trainwarden.errors import ConfigError
from trainwarden.model import Channels, Layout, Mode, Need, Observation, TensorInfo
from trainwarden.stats.catalog import COLUMNS, INDEX, WIDTH
from trainwarden.stats.derived import STATISTICS, column, statistic
from trainwarden.stats.reductions import EMPTY_ROW, channel_columns, row

X = np.array([0.0, -1.0, 2.0, 1e-40, np.nan, np.inf, -3.0, 0.5], np.float32)
BEFORE = np.array([0.0, -1.0, 1.0, 0.0, 0.0, 0.0, -3.5, 0.5], np.float32)
F = X[np.isfinite(X)].astype(np.float64)
D = (X.astype(np.float64) - BEFORE)[np.isfinite(X)]
P = BEFORE[np.isfinite(X)].astype(np.float64)


def rows() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    found = row(X, dtype="float32", previous=BEFORE, bounds=(-1.0, 1.0))
    channel_columns(found, Channels(np.array([0, 0, 1, 900]), 1000))
    return found[np.newaxis]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("finite", 6),
        ("nonfinite", 2),
        ("nonfinite_fraction", 2 / 8),
        ("mean", F.mean()),
        ("variance", F.var()),
        ("std", F.std()),
        ("sum", F.sum()),
        ("abs_mean", np.abs(F).mean()),
        ("abs_max", 3.0),
        ("range", 5.0),
        ("l2", np.linalg.norm(F)),
        ("rms", np.sqrt((F**2).mean())),
        ("zero_fraction", 1 / 8),
        ("neg_fraction", 2 / 8),
        ("tiny_fraction", 1 / 8),
        ("saturated_low", 2 / 8),
        ("saturated_high", 2 / 8),
        ("saturated_fraction", 4 / 8),
        ("dead_fraction", 2 / 4),
        ("inactive_fraction", 3 / 4),
        ("update_mean", D.mean()),
        ("update_std", D.std()),
        ("update_l2", np.linalg.norm(D)),
        ("update_rms", np.sqrt((D**2).mean())),
        ("update_max", np.abs(D).max()),
        ("update_ratio", np.linalg.norm(D) / np.linalg.norm(P)),
        ("update_excess", np.max(np.abs(D) - 1e-5 * np.abs(P))),
    ],
)
def test_a_statistic_is_what_numpy_says(name: str, wanted: float) -> None:
    assert STATISTICS[name].compute(rows())[0] == pytest.approx(wanted, rel=1e-6)


def test_every_derived_statistic_is_tested_above() -> None:
    marks = test_a_statistic_is_what_numpy_says.pytestmark  # type: ignore[attr-defined]
    tested = {name for name, _ in marks[0].args[1]}
    assert tested == set(STATISTICS) - {spec.name for spec in COLUMNS}


def test_every_raw_column_is_a_statistic_of_its_own_name() -> None:
    table = np.arange(2 * WIDTH, dtype=np.float64).reshape(2, WIDTH)
    for spec in COLUMNS:
        found = STATISTICS[spec.name]
        np.testing.assert_array_equal(found.compute(table), table[:, INDEX[spec.name]])
        assert (found.unit, found.meaning) == (spec.unit, spec.meaning)


def test_what_cannot_be_known_is_nan_and_warns_nobody() -> None:
    empty = row(np.empty(0, np.float32), dtype="float32")[np.newaxis]
    for name in (
        "mean",
        "std",
        "rms",
        "abs_mean",
        "zero_fraction",
        "update_ratio",
        "dead_fraction",
    ):
        assert np.isnan(STATISTICS[name].compute(empty)[0]), name
    for found in STATISTICS.values():
        assert np.isnan(found.compute(EMPTY_ROW[np.newaxis])[0]), found.name


def test_an_update_from_all_zeros_is_infinitely_large() -> None:
    found = row(np.ones(3, np.float32), dtype="float32", previous=np.zeros(3, np.float32))
    assert STATISTICS["update_ratio"].compute(found[np.newaxis])[0] == np.inf


def test_overflowing_squares_give_infinity_and_not_nan() -> None:
    found = row(np.array([1e200, -1e200, 3e200]), dtype="float64")[np.newaxis]
    assert STATISTICS["l2"].compute(found)[0] == np.inf
    assert STATISTICS["std"].compute(found)[0] == np.inf


LAYOUT = Layout(
    (
        TensorInfo("a", "weights"),
        TensorInfo("g/a", "gradients"),
        TensorInfo("b", "weights"),
        TensorInfo("c", "weights"),
    )
)


def observation(captured: tuple[int, ...], height: int = 4) -> Observation:
    stats = np.full((height, WIDTH), np.nan)
    for i in captured:
        stats[i] = row(np.full(2, i + 1, np.float32), dtype="float32")
    scalars = {"losses": {"loss": np.nan, "aux": 2.0}}
    return Observation(0, Mode.TRAIN, 0, 0.0, LAYOUT, stats, scalars)


def test_a_column_holds_the_captured_tensors_of_a_collection() -> None:
    names, at, values = column(observation((0, 1, 3)), Need("weights", "max"))
    assert names == ("a", "c")
    assert at.tolist() == [0, 3]
    assert values.tolist() == [1.0, 4.0]


def test_a_complete_column_reuses_what_the_layout_knows() -> None:
    first, second = (column(observation((0, 1, 2, 3)), Need("weights", "mean")) for _ in range(2))
    assert first.names is second.names
    assert first.rows is second.rows
    assert first.values.tolist() == [1.0, 3.0, 4.0]


def test_rows_that_the_step_does_not_have_are_not_captured() -> None:
    names, _, values = column(observation((0, 2), height=3), Need("weights", "min"))
    assert (names, values.tolist()) == (("a", "b"), [1.0, 3.0])


@pytest.mark.parametrize("collection", ["weights", "activations"])
def test_nothing_captured_is_an_empty_column(collection: str) -> None:
    names, at, values = column(observation(()), Need(collection, "mean"))
    assert (names, at.shape, values.shape) == ((), (0,), (0,))


def test_scalars_are_a_column_without_rows() -> None:
    names, at, values = column(observation(()), Need("losses", "value"))
    assert (names, at.tolist()) == (("loss", "aux"), [-1, -1])
    np.testing.assert_array_equal(values, [np.nan, 2.0])
    assert column(observation(()), Need("metrics", "value")).names == ()


def test_an_unknown_statistic_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'abs_mean'"):
        column(observation((0,)), Need("weights", "abs_meen"))
    with pytest.raises(ConfigError, match="the name of a statistic"):
        statistic("zzzzzz")
