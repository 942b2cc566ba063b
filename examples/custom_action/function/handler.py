"""Tells a webhook (Slack, Mattermost, Teams, your own) what Trainwarden found.

Events may come twice: the log line and the post carry ``event_id`` to recognise that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

TIMEOUT_S = 10.0


def sentence(data: Mapping[str, Any]) -> str:
    """Say what was found in one paragraph."""
    since = f" since step {data['since_step']}" if data["since_step"] >= 0 else ""
    remedies = data.get("remedies") or []
    advice = f" Try first: {remedies[0]}" if remedies else ""
    return (
        f"[{data['severity']}] {data['job']}: {data['rule']} is {data['status']}{since}. "
        f"{data.get('message', '')}{advice}"
    )


@cache
def webhook() -> str:
    """Return the URL to post to, empty if there is none; read once per container."""
    name = os.environ.get("WEBHOOK_PARAMETER", "")
    if not name:
        return ""
    import boto3

    answer = boto3.client("ssm").get_parameter(Name=name, WithDecryption=True)
    url: str = answer["Parameter"]["Value"]
    if not url.startswith("https://"):
        raise ValueError(f"the SSM parameter {name} must hold a URL that begins with https://")
    return url


def post(url: str, event_id: str, text: str) -> None:
    """Post the text as JSON; any answer but 2xx raises, and the event is tried again later."""
    request = Request(  # noqa: S310 - https only, see webhook()
        url,
        data=json.dumps({"text": text}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": event_id},
    )
    with urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - https only, see webhook()
        pass


def handler(event: dict[str, Any], context: object) -> None:
    """Lambda entry point: one event of the bus."""
    del context
    detail = event["detail"]
    event_id, text = detail["metadata"]["event_id"], sentence(detail["data"])
    print(json.dumps({"event_id": event_id, "job": detail["data"]["job"], "text": text}))
    url = webhook()
    if url:
        post(url, event_id, text)
