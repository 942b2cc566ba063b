from __future__ import annotations

import pytest

from benchmarks import storage


@pytest.fixture(scope="module")
def run() -> storage.Stored:
    """A short run: its first steps, which are saved without gaps, weigh more than in a long one."""
    return storage.measure(storage.deep, 1_000)


def test_sparse_statistics_and_detail_on_an_event_are_far_less_than_everything(
    run: storage.Stored,
) -> None:
    assert run.less > storage.FLOOR
    assert run.less > storage.AIM


def test_the_detail_is_part_of_it(run: storage.Stored) -> None:
    planned = 10 + (1_000 - 10) // 10
    assert run.saved >= planned + 50 * 9 // 10
    assert run.everything == 2 * 4 * run.parameters * run.steps
    assert set(run.parts) == {"manifest.tw", "steps", "tensors", "end"}
