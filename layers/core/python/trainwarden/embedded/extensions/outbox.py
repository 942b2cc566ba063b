"""SNS: e-mails and SMS are kept in a file, one JSON document a line, instead of being sent.

What AWS would send: the protocol's part of a ``MessageStructure=json`` message, to subscribers
whose filter policy lets it pass. Subscriptions count as confirmed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ministack.services import sns

from trainwarden.embedded.settings import ServerSettings
from trainwarden.model import Json

PROTOCOLS = ("email", "email-json", "sms")


class Outbox:
    """Append-only file of messages."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def deliver(
        self,
        topic: str,
        message_id: str,
        message: str,
        subject: str,
        structure: str,
        attributes: Mapping[str, Mapping[str, Json]],
    ) -> None:
        """Keep what each e-mail and SMS subscriber of ``topic`` would get."""
        record = sns._topic_by_arn_any_scope(topic) or {}
        for subscription in record.get("subscriptions", ()):
            protocol = subscription.get("protocol")
            if protocol not in PROTOCOLS:
                continue
            text = sns._resolve_message_for_protocol(message, structure, protocol)
            if sns._matches_filter_policy(subscription, dict(attributes), text):
                self.append(
                    protocol=protocol,
                    to=subscription.get("endpoint", ""),
                    # An SMS has no subject.
                    subject="" if protocol == "sms" else subject,
                    message=text,
                    topic=topic,
                    message_id=message_id,
                    attributes={k: v.get("StringValue", "") for k, v in attributes.items()},
                )

    def append(self, **message: Json) -> None:
        """Write one message."""
        line = json.dumps({"time": time.time(), **message}, ensure_ascii=False)
        with self._lock, self._file.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def install(settings: ServerSettings) -> None:
    """Keep what goes to topics, and SMS sent to a number directly."""
    outbox = Outbox(settings.outbox)
    fan_out, log_for = sns._fanout, sns._sms_log_for

    def fan_out_and_keep(
        topic: str,
        message_id: str,
        message: str,
        subject: str,
        message_structure: str = "",
        message_attributes: Mapping[str, Mapping[str, Json]] | None = None,
        **named: Json,
    ) -> None:
        outbox.deliver(
            topic, message_id, message, subject, message_structure, message_attributes or {}
        )
        fan_out(topic, message_id, message, subject, message_structure, message_attributes, **named)

    class Kept(list[Json]):
        """The log of one number; what is added to it is kept, too."""

        def append(self, record: Json) -> None:
            super().append(record)
            outbox.append(
                protocol="sms",
                to=record["PhoneNumber"],
                subject="",
                message=record["Message"],
                topic="",
                message_id=record["MessageId"],
                attributes={},
            )

    def log_and_keep(number: str) -> Json:
        known = log_for(number)
        if not isinstance(known, Kept):
            known = sns._sms_messages[number] = Kept(known)
        return known

    sns._fanout, sns._sms_log_for = fan_out_and_keep, log_and_keep
