"""Which topics and subscribers a message goes to, and its SNS form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lambdas.shared.obs import logger
from trainwarden.messages import Message

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

EVERYBODY = "all"  # what every subscription of the deployment listens to
TOPIC_PREFIX = "trainwarden-"  # the function may publish to such topics and to its own
_UNUSABLE = frozenset({"NotFound", "NotFoundException", "AuthorizationError", "AccessDenied"})


def publish(client: SNSClient, topic_arn: str, message: Message, detail: Mapping[str, Any]) -> int:
    """Publish to the addresses and topics of the job, to everybody if it names none.

    A topic that cannot be used must not swallow an alert: everybody is told instead.

    Returns:
        Messages published.
    """
    wanted = [str(address) for address in detail["data"].get("notify") or ()]
    names = [address for address in wanted if address.startswith(TOPIC_PREFIX)]
    addresses = [address for address in wanted if address not in names]
    published = 0
    for name in names:
        other = f"{topic_arn.rpartition(':')[0]}:{name}"
        try:
            _send(client, other, message, detail, [EVERYBODY])
            published += 1
        except ClientError as exc:
            if exc.response.get("Error", {}).get("Code") not in _UNUSABLE:
                raise
            logger.warning("topic cannot be used, everybody is told", topic=name, reason=str(exc))
            addresses = [EVERYBODY]
    if addresses or not names:
        _send(client, topic_arn, message, detail, addresses or [EVERYBODY])
        published += 1
    return published


def _send(
    client: SNSClient, topic: str, message: Message, detail: Mapping[str, Any], to: list[str]
) -> None:
    data = detail["data"]
    texts = {
        "job": data.get("job"),
        "rule": data.get("rule"),
        "severity": data.get("severity"),
        "event_id": detail["metadata"]["event_id"],
        "AWS.SNS.SMS.SMSType": "Transactional",
    }
    attributes = {
        name: {"DataType": "String", "StringValue": str(text)}
        for name, text in texts.items()
        if text  # SNS refuses empty attributes
    }
    attributes["to"] = {"DataType": "String.Array", "StringValue": json.dumps(to)}
    body = {"default": message.email, "email": message.email, "sms": message.sms}
    client.publish(
        TopicArn=topic,
        Subject=message.subject,
        Message=json.dumps(body),
        MessageStructure="json",
        MessageAttributes=attributes,  # type: ignore[arg-type]  # plain dicts
    )
