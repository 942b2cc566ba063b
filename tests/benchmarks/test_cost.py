from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import cost


@pytest.fixture(scope="module")
def bill() -> cost.Bill:
    """A short job, of which each further step costs as much as in a long one."""
    return measured(300)


def measured(saved: int) -> cost.Bill:
    found = cost.measure(saved=saved, per_object=10, rows=429)
    return replace(found, own_ms=40.0)  # several times what it takes; a test measures no time


def test_ten_thousand_saved_steps_cost_at_most_two_cents(bill: cost.Bill) -> None:
    shorter = measured(150)  # what opens and closes a job is in both
    each = (bill.usd - shorter.usd) / (bill.saved - shorter.saved)
    assert each > 0
    assert bill.usd + each * (10_000 - bill.saved) <= cost.TARGET_USD


def test_a_notice_costs_one_read_one_commit_and_three_gets(bill: cost.Bill) -> None:
    calls = bill.meter.calls
    assert set(calls) == {"GetItem", "GetObject", "PutItem", "TransactWriteItems"}
    assert calls["GetItem"] <= bill.notices
    assert calls["PutItem"] + calls["TransactWriteItems"] <= bill.notices
    assert calls["GetObject"] <= 3 * bill.notices
    assert calls["TransactWriteItems"] <= 3  # opened, closed, and a rule may change its mind


def test_units_are_counted_as_dynamodb_rounds_them() -> None:
    assert cost.units({"pk": {"S": "x" * 1022}}, 1024) == 1
    assert cost.units({"pk": {"S": "x" * 1023}}, 1024) == 2
    assert cost.units({}, 4096) == 1
