"""The only place that reads the environment and makes clients, once a container."""

from __future__ import annotations

import json
import os
import time
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.session import Session

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sns import SNSClient

    from trainwarden.pipeline import Pipeline, Settings
    from trainwarden.store.ports import CustomRules, Ledger, TrainingJob, TrainingJobs

# Short, so that the code that knows what to do about a throttled call hears of it in time.
_QUICK = Config(
    connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4}
)
# For a function that is asked again by who knows what that costs; longer than the function's own.
_ONCE = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 1})


@lru_cache(maxsize=1)
def _session() -> Session:
    """Return the one session: what it parsed for one client serves the next."""
    return Session()


def client(service: str) -> Any:
    """Return a client as boto3 makes it, without the hundred modules of boto3's resources."""
    return _session().create_client(service, config=_QUICK)


@lru_cache(maxsize=1)
def pipeline() -> Pipeline:
    """Return the use cases over this deployment's bucket, table and SageMaker."""
    # Imported here: functions that only announce or notify start without numpy and the rules.
    from trainwarden.pipeline import Pipeline
    from trainwarden.store.s3 import S3Objects

    return Pipeline(
        objects=S3Objects(os.environ["BUCKET_NAME"], client("s3")),
        ledger=ledger(),
        training=SageMakerOnDemand(),
        settings=settings(),
        now=time.time,
        custom=custom_rules(),
    )


def custom_rules() -> CustomRules | None:
    """Return the function of custom rules and make its rules known; None without one."""
    name = os.environ.get("CUSTOM_RULES_FUNCTION", "")
    if not name:
        return None
    from trainwarden import rules
    from trainwarden.custom.describing import stand_in
    from trainwarden.store.functions import FunctionCustomRules

    for described in json.loads(_descriptions()):
        rules.add(stand_in(described), "custom rules")
    impatient: Any = _session().create_client("lambda", config=_ONCE)
    return FunctionCustomRules(name, impatient)


def _descriptions() -> str:
    """Return what was written at synth into a layer of its own."""
    return resources.files("trainwarden_custom_rules").joinpath("rules.json").read_text("utf-8")


@lru_cache(maxsize=1)
def ledger() -> Ledger:
    """Return the table of jobs."""
    from trainwarden.store.dynamo import DynamoLedger

    keep_days = int(os.environ.get("LEDGER_DAYS", "0"))
    return DynamoLedger(os.environ["TABLE_NAME"], client("dynamodb"), keep_days=keep_days)


@lru_cache(maxsize=1)
def training_jobs() -> TrainingJobs:
    """Return what is asked of SageMaker."""
    from trainwarden.store.sagemaker import SageMakerJobs

    return SageMakerJobs(client("sagemaker"))


class SageMakerOnDemand:
    """``TrainingJobs`` whose client, the largest of all, is made when a job is first asked for."""

    def describe(self, name: str) -> TrainingJob | None:
        """Describe the job of exactly this name with its tags; None if there is none."""
        return training_jobs().describe(name)


def settings() -> Settings:
    """Return the deployment's settings."""
    from trainwarden.pipeline import Settings

    defaults = json.loads(os.environ.get("DEFAULTS", "{}"))
    return Settings(
        defaults=defaults,
        stop_on=str(defaults.get("stop_on", "error")),
        # Anything but a plain "false" stops nothing: the safe side of a typing error.
        dry_run=os.environ.get("DRY_RUN", "false").lower() != "false",
    )


@lru_cache(maxsize=1)
def bus() -> EventBridgeClient:
    """Return the client that puts events."""
    made: EventBridgeClient = client("events")
    return made


def bus_name() -> str:
    """Return the name of the deployment's own event bus."""
    return os.environ["BUS_NAME"]


@lru_cache(maxsize=1)
def topics() -> SNSClient:
    """Return the client that publishes messages."""
    made: SNSClient = client("sns")
    return made


def topic_arn() -> str:
    """Return the topic of verdicts."""
    return os.environ["TOPIC_ARN"]
