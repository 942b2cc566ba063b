"""Tensors of a draft wait to be measured together."""

from __future__ import annotations

import numpy as np
import pytest

from trainwarden.hook.draft import Draft
from trainwarden.model import FloatArray, Mode
from trainwarden.stats.reductions import Tensor, row


def draft() -> Draft:
    return Draft(3, Mode.TRAIN, 3, 0.0)


def tensor(seed: int, size: int = 64) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(size).astype(np.float32), "float32")


def test_tensors_that_wait_are_measured_as_they_are_alone() -> None:
    made, tensors = draft(), [tensor(i, 10 + 2 * i) for i in range(6)]
    for i, one in enumerate(tensors):
        made.measure([i], [one])
    assert made.tables == []
    made.settle()
    for i, (rows, table) in enumerate(made.tables):
        assert rows.tolist() == [i]
        alone = row(tensors[i].x, dtype="float32")
        np.testing.assert_allclose(table[0], alone, rtol=1e-6, equal_nan=True)


def test_groups_come_in_their_order_and_are_finished_one_by_one() -> None:
    made, seen = draft(), list[tuple[int, ...]]()

    def finish(table: FloatArray) -> None:
        seen.append(table.shape)
        table[:, -1] = 7.0

    made.measure([5, 2], [tensor(0), tensor(1)], finish)
    made.measure([9], [tensor(2)])
    made.settle()
    assert [rows.tolist() for rows, _ in made.tables] == [[5, 2], [9]]
    assert seen == [(2, 32)]
    assert made.tables[0][1][:, -1].tolist() == [7.0, 7.0]
    assert made.tables[1][1][0, -1] == 0.0
    made.settle()
    assert len(made.tables) == 2


def test_a_draft_with_tensors_that_wait_is_not_empty() -> None:
    made = draft()
    made.measure([], [])
    assert made.empty
    made.measure([0], [tensor(0)])
    assert not made.empty


@pytest.mark.parametrize("prefix", ["", "input/0."])
def test_facts_stand_beside_those_that_are_there(prefix: str) -> None:
    made = draft()
    made.scalar("batch", "a", 1.0)
    made.facts("batch", {"a": 2.0, "b": 3.0}, prefix)
    assert made.scalars["batch"] == {"a": 1.0, f"{prefix}a": 2.0, f"{prefix}b": 3.0}
