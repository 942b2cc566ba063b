from __future__ import annotations

from tests.infra.synthesis import Synthesis

TABLE = "AWS::DynamoDB::Table"


def test_the_table_costs_nothing_when_idle_and_can_be_restored(stack: Synthesis) -> None:
    table = stack.only(TABLE, "Ledger")
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["SSESpecification"] == {"SSEEnabled": True}


def test_the_table_streams_new_images_and_forgets_what_expired(stack: Synthesis) -> None:
    table = stack.only(TABLE, "Ledger")
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_the_index_of_open_jobs_holds_keys_alone(stack: Synthesis) -> None:
    (index,) = stack.only(TABLE, "Ledger")["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "open"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["open", "pk"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
