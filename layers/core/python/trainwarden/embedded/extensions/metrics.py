"""CloudWatch: metrics that functions log in the embedded metric format (EMF).

And a log group that a template made for its function and that is deleted stays deleted: without
permission to create it a function cannot bring it back, as MiniStack would.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping

from ministack.services import cloudwatch, cloudwatch_logs, lambda_svc

from trainwarden.embedded.settings import ServerSettings
from trainwarden.model import Json


def extract(log: str) -> Iterator[tuple[str, list[dict[str, Json]]]]:
    """Yield (namespace, MetricData) for each EMF directive in a function's log output."""
    for line in log.splitlines():
        start = line.find("{")
        if start < 0 or '"CloudWatchMetrics"' not in line:
            continue
        try:
            document = json.loads(line[start:])
        except ValueError:
            continue
        root = document.get("_aws") if isinstance(document, dict) else None
        for directive in (root or {}).get("CloudWatchMetrics", ()):
            yield directive["Namespace"], list(_data(document, directive))


def _data(document: Mapping[str, Json], directive: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    for dimensions in directive.get("Dimensions") or [[]]:
        for metric in directive["Metrics"]:
            values: Json = document.get(metric["Name"], [])
            for value in values if isinstance(values, list) else [values]:
                yield {
                    "MetricName": metric["Name"],
                    "Value": float(value),
                    "Unit": metric.get("Unit", "None"),
                    "Timestamp": document["_aws"]["Timestamp"] / 1000,
                    "Dimensions": [{"Name": d, "Value": str(document[d])} for d in dimensions],
                }


def _may_log(function: Json) -> bool:
    config = function.get("config") or function
    group = (config.get("LoggingConfig") or {}).get("LogGroup", "")
    usual = group in ("", f"/aws/lambda/{config.get('FunctionName')}")
    return usual or group in cloudwatch_logs._log_groups


def install(_settings: ServerSettings) -> None:
    """Read the metrics out of every function's output."""
    emit = lambda_svc._emit_lambda_logs

    @functools.wraps(emit)
    def emit_and_extract(
        function: Json, request: str, log: str | None, *rest: Json, **named: Json
    ) -> None:
        if _may_log(function):
            emit(function, request, log, *rest, **named)
        for namespace, data in extract(log or ""):
            cloudwatch._put_metric_data(
                {}, {"Namespace": namespace, "MetricData": data}, is_cbor=False, is_json=True
            )

    lambda_svc._emit_lambda_logs = emit_and_extract
