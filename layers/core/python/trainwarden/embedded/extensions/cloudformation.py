"""CloudFormation: event archives, a table's time to live, a function's reserved concurrency."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from ministack.services import dynamodb, eventbridge, lambda_svc
from ministack.services.cloudformation import provisioners

from trainwarden.embedded.settings import ServerSettings
from trainwarden.model import Json

Created = tuple[str, dict[str, Json]]


def create_archive(logical_id: str, properties: Mapping[str, Json], stack: str) -> Created:
    """Create an ``AWS::Events::Archive``; return its physical id and attributes."""
    name = properties.get("ArchiveName") or provisioners._physical_name(
        stack, logical_id, max_len=48
    )
    pattern = properties.get("EventPattern")
    status, _, body = eventbridge._create_archive(
        {
            "ArchiveName": name,
            "EventSourceArn": properties["SourceArn"],
            "EventPattern": json.dumps(pattern) if pattern else "",
            "RetentionDays": int(properties.get("RetentionDays", 0)),
            "Description": properties.get("Description", ""),
        }
    )
    answer = json.loads(body)
    if status != 200:  # noqa: PLR2004 - HTTP
        raise ValueError(f"AWS::Events::Archive create failed: {answer}")
    return name, {"Arn": answer["ArchiveArn"], "ArchiveName": name}


def delete_archive(physical_id: str, _properties: Mapping[str, Json]) -> None:
    """Delete an archive."""
    eventbridge._delete_archive({"ArchiveName": physical_id})


def apply_time_to_live(table: str, properties: Mapping[str, Json]) -> None:
    """Do what MiniStack leaves out of ``AWS::DynamoDB::Table``."""
    wanted = properties.get("TimeToLiveSpecification")
    if wanted:
        specification = {
            "Enabled": str(wanted.get("Enabled")).lower() == "true",
            "AttributeName": wanted["AttributeName"],
        }
        dynamodb._update_ttl({"TableName": table, "TimeToLiveSpecification": specification})


def apply_reserved_concurrency(function: str, properties: Mapping[str, Json]) -> None:
    """Do what MiniStack leaves out of ``AWS::Lambda::Function``."""
    reserved = properties.get("ReservedConcurrentExecutions")
    record = lambda_svc._functions.get(function)
    if record is not None:
        record["concurrency"] = None if reserved is None else int(reserved)


def _afterwards(resource: str, apply: Callable[[str, Mapping[str, Json]], None]) -> None:
    """Call ``apply(physical id, properties)`` after each create and update."""
    handlers = provisioners._RESOURCE_HANDLERS[resource]
    create, update = handlers["create"], handlers["update"]

    def created(logical_id: str, properties: Mapping[str, Json], stack: str) -> Created:
        result: Created = create(logical_id, properties, stack)
        apply(result[0], properties)
        return result

    def updated(physical_id: str, old: Json, new: Mapping[str, Json], *rest: Json) -> Json:
        result = update(physical_id, old, new, *rest)
        apply(result[0] if isinstance(result, tuple) else physical_id, new)
        return result

    handlers["create"], handlers["update"] = created, updated


def install(_settings: ServerSettings) -> None:
    """Teach the provisioner what it lacks."""
    provisioners._RESOURCE_HANDLERS["AWS::Events::Archive"] = {
        "create": create_archive,
        "delete": delete_archive,
    }
    _afterwards("AWS::DynamoDB::Table", apply_time_to_live)
    _afterwards("AWS::Lambda::Function", apply_reserved_concurrency)
