"""Reductions from statistics are numpy's of the whole tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.stats.reductions import row
from trainwarden.trial import numbers
from trainwarden.trial.source import Unknown

VALUES = st.lists(
    st.one_of(
        st.floats(-1e3, 1e3, width=32),
        st.sampled_from([0.0, float("nan"), float("inf"), float("-inf")]),
    ),
    min_size=1,
    max_size=20,
)


@given(VALUES, st.sampled_from(numbers.FROM_ROW), st.booleans())
def test_a_row_and_the_values_agree(values: list[float], name: str, absolute: bool) -> None:  # noqa: FBT001 - drawn
    x: npt.NDArray[np.float32] = np.array(values, dtype=np.float32)
    found = numbers.of_row(row(x, dtype="float32"), name, absolute=absolute)
    wanted = numbers.of_array(x.astype(np.float64), name, absolute=absolute)
    tolerance = 1e-2 if name in ("std", "variance") else 1e-4
    assert found == pytest.approx(wanted, rel=1e-4, abs=tolerance, nan_ok=True)


def test_what_statistics_do_not_carry_is_told_with_what_they_do() -> None:
    ones = row(np.ones(3, np.float32), dtype="float32")
    with pytest.raises(Unknown, match=r"statistics carry min, max, .*, no prod"):
        numbers.of_row(ones, "prod", absolute=False)
    with pytest.raises(Unknown, match="'median' is none of"):
        numbers.of_row(ones, "median", absolute=False)
    with pytest.raises(Unknown, match="empty"):
        numbers.of_row(row(np.ones(0, np.float32), dtype="float32"), "mean", absolute=False)
    assert numbers.of_row(ones, "l2_norm", absolute=False) == pytest.approx(3**0.5)
