"""Every adapter of every port. With TRAINWARDEN_ENDPOINT set, a real endpoint joins them."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from trainwarden.store.dynamo import DynamoLedger
from trainwarden.store.folder import FolderLedger, FolderObjects
from trainwarden.store.memory import MemoryLedger, MemoryObjects
from trainwarden.store.ports import Ledger, ObjectStore
from trainwarden.store.s3 import S3Objects
from trainwarden.store.within import Within

ENDPOINT = os.environ.get("TRAINWARDEN_ENDPOINT", "")
REGION = "us-east-1"
ON_ENDPOINT = ["endpoint"] if ENDPOINT else []
Client = Any  # a boto3 client of any service, real or wrapped


class Serialised:
    """A client whose calls wait for each other: moto, unlike DynamoDB, tolerates no threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return method(*args, **kwargs)

        return call


def client(service: str, endpoint: str | None = None) -> Client:
    make: Callable[..., Client] = boto3.client
    return make(
        service,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - any value does for a fake
    )


def make_table(dynamodb: Client) -> str:
    """Create the table as the stack does: pk, sk, and the sparse index of open jobs."""
    name = f"contract-{uuid.uuid4().hex}"
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": attribute, "AttributeType": "S"} for attribute in ("pk", "sk", "open")
        ],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "open",
                "KeySchema": [
                    {"AttributeName": "open", "KeyType": "HASH"},
                    {"AttributeName": "pk", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    return name


def make_bucket(s3: Client) -> str:
    name = f"contract-{uuid.uuid4().hex}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="module")
def moto() -> Iterator[Callable[[str], Client]]:
    """Clients of an AWS inside this process."""
    with mock_aws():
        yield lambda service: Serialised(client(service))


@pytest.fixture
def s3(moto: Callable[[str], Client]) -> Client:
    return moto("s3")


@pytest.fixture
def dynamodb(moto: Callable[[str], Client]) -> Client:
    return moto("dynamodb")


@pytest.fixture
def table(dynamodb: Client) -> str:
    return make_table(dynamodb)


@pytest.fixture
def memory_objects() -> ObjectStore:
    return MemoryObjects()


@pytest.fixture
def folder_objects(tmp_path: Path) -> ObjectStore:
    return FolderObjects(tmp_path / "run")


@pytest.fixture
def s3_objects(s3: Client) -> ObjectStore:
    return S3Objects(make_bucket(s3), s3)


@pytest.fixture
def within_objects(s3: Client) -> ObjectStore:
    whole = S3Objects(make_bucket(s3), s3)
    whole.put("some/manifest.tw", b"above")
    whole.put("some/where-else/jobs/demo/manifest.tw", b"beside")
    return Within(whole, "some/where/")


@pytest.fixture
def endpoint_objects() -> ObjectStore:
    s3 = client("s3", ENDPOINT)
    return S3Objects(make_bucket(s3), s3)


@pytest.fixture(params=["memory", "folder", "s3", "within", *ON_ENDPOINT])
def objects(request: pytest.FixtureRequest) -> ObjectStore:
    found: ObjectStore = request.getfixturevalue(f"{request.param}_objects")
    return found


@pytest.fixture
def memory_ledger() -> Ledger:
    return MemoryLedger()


@pytest.fixture
def folder_ledger(tmp_path: Path) -> Ledger:
    return FolderLedger(tmp_path / "run")


@pytest.fixture
def dynamo_ledger(dynamodb: Client, table: str) -> Ledger:
    return DynamoLedger(table, dynamodb)


@pytest.fixture
def endpoint_ledger() -> Iterator[Ledger]:
    dynamodb = client("dynamodb", ENDPOINT)
    name = make_table(dynamodb)
    yield DynamoLedger(name, dynamodb)
    dynamodb.delete_table(TableName=name)


@pytest.fixture(params=["memory", "folder", "dynamo", *ON_ENDPOINT])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    found: Ledger = request.getfixturevalue(f"{request.param}_ledger")
    return found
