"""Findings as they leave the engine: complete, strict JSON, and never too large."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainwarden.engine.specs import RuleSpec
from trainwarden.errors import BadInputError
from trainwarden.model import Finding, Json, Rule, Severity

MAX_STATE_BYTES = 256 * 1024  # JSON of one rule's state: all rules' share one item of 400 KB
MAX_EVIDENCE_BYTES = 32 * 1024  # JSON; a finding is an item and part of events of 256 KB
MAX_MESSAGE_CHARS = 2_000
CRASH_CODE = "ENG001"
_MAX_FLOAT = 1.7976931348623157e308


def complete(found: Finding, spec: RuleSpec, rule: Rule[Any]) -> Finding:
    """Fill in what the rule leaves to the engine; what leaves here is strict JSON."""
    meta = rule.meta
    return replace(
        found,
        rule=spec.key,
        code=meta.code,
        severity=spec.severity or found.severity or meta.severity,
        message=found.message[:MAX_MESSAGE_CHARS],
        remedies=found.remedies or meta.remedies,
        value=_finite(found.value),
        limit=_finite(found.limit),
    )


def _finite(value: float) -> float:
    """JSON has no NaN and no infinity: NaN becomes 0, ±inf the largest float64."""
    if math.isnan(value):
        return 0.0
    return max(-_MAX_FLOAT, min(_MAX_FLOAT, float(value)))


def crash(spec: RuleSpec, what: str, at: int) -> Finding:
    """Return the finding that tells of a rule that cannot go on."""
    return Finding(
        at,
        "",
        0.0,
        0.0,
        f"the rule {spec.name} itself crashed and is not called again: {what}",
        at,
        remedies=("Report this with the run's folder: it is a defect of the rule, not the job.",),
        severity=Severity.WARNING,
        rule=spec.key,
        code=CRASH_CODE,
    )


def check(findings: Sequence[Finding]) -> None:
    """Refuse what cannot be stored.

    Raises:
        BadInputError: evidence that is no JSON, or too much of it.
    """
    for finding in findings:
        found = problem(finding.evidence, "evidence", MAX_EVIDENCE_BYTES)
        if found:
            raise BadInputError("evidence of a finding as JSON", found)


def problem(value: Json, what: str, most: int) -> str:
    """Return why JSON-shaped data cannot be kept, empty if it can."""
    try:
        size = len(json.dumps(value, default=plain))
    except (TypeError, ValueError, RecursionError) as error:
        return f"its {what} is not JSON ({error})"[:300]
    return f"its {what} grew beyond {most} bytes of JSON ({size})" if size > most else ""


def plain(value: object) -> Json:
    """Numpy's numbers are stored as Python's.

    Raises:
        TypeError: anything else.
    """
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__}")
