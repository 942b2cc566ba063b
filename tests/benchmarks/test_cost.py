from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import cost


@pytest.fixture(scope="module")
def bill() -> cost.Bill:
    """A short job: what opens and closes it weighs more than in a long one."""
    measured = cost.measure(saved=300, per_object=10, rows=429)
    return replace(measured, own_ms=40.0)  # several times what it takes; a test measures no time


def test_ten_thousand_saved_steps_cost_at_most_two_cents(bill: cost.Bill) -> None:
    assert bill.usd / bill.saved * 10_000 <= cost.TARGET_USD


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
