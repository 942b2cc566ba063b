"""Reads logs out of the embedded CloudWatch Logs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from trainwarden.embedded.launcher import Server
from trainwarden.embedded.training.joblog import GROUP
from trainwarden.errors import NotFoundError
from trainwarden.model import Json

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient

_NOISE = ("START RequestId", "END RequestId", "REPORT RequestId", "INIT_START")


def of_job(server: Server, job: str) -> list[dict[str, Json]]:
    """Return what a job printed.

    Raises:
        NotFoundError: there is no such job, or it has not started.
    """
    found = list(_events(server.client("logs"), GROUP, job, prefix=f"{job}/"))
    if not found:
        raise NotFoundError(f"no log of a job {job}: see `trainwarden local status`")
    return found


def of_functions(server: Server, part: str = "") -> list[dict[str, Json]]:
    """Return what functions with ``part`` in their name logged, by time; no platform lines."""
    functions: LambdaClient = server.client("lambda")
    client = server.client("logs")
    found: list[dict[str, Json]] = []
    for page in functions.get_paginator("list_functions").paginate():
        for function in page["Functions"]:
            name = function["FunctionName"]
            if part.lower() not in name.lower():
                continue
            default = f"/aws/lambda/{name}"
            group = function.get("LoggingConfig", {}).get("LogGroup", default)
            found += [e for e in _events(client, group, name) if not _is_noise(e["message"])]
    return sorted(found, key=lambda entry: str(entry["time"]))


def _is_noise(message: str) -> bool:
    return message.startswith(_NOISE)


def _events(
    client: CloudWatchLogsClient, group: str, source: str, prefix: str = ""
) -> Iterator[dict[str, Json]]:
    for stream in _streams(client, group, prefix):
        # MiniStack's FilterLogEvents looks at every stream whatever it is told.
        for event in _of_stream(client, group, stream):
            moment = datetime.fromtimestamp(event["timestamp"] / 1000, tz=timezone.utc)
            yield {
                "time": moment.isoformat(timespec="milliseconds"),
                "source": source,
                "message": event["message"].rstrip(),
            }


def _streams(client: CloudWatchLogsClient, group: str, prefix: str) -> list[str]:
    found = []
    try:
        for page in client.get_paginator("describe_log_streams").paginate(logGroupName=group):
            found += [stream["logStreamName"] for stream in page["logStreams"]]
    except client.exceptions.ResourceNotFoundException:  # it has not logged yet
        return []
    return sorted(name for name in found if name.startswith(prefix))


def _of_stream(client: CloudWatchLogsClient, group: str, stream: str) -> Iterator[Json]:
    token: dict[str, str] = {}
    while True:
        page = client.get_log_events(
            logGroupName=group,
            logStreamName=stream,
            startFromHead=True,
            **token,  # type: ignore[arg-type]  # nextToken or nothing
        )
        yield from page["events"]
        if not page["events"] or token.get("nextToken") == page["nextForwardToken"]:
            return
        token = {"nextToken": page["nextForwardToken"]}
