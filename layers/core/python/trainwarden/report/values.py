"""What a report is made from beside the recorded run: values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainwarden.model import Json

Row = Mapping[str, Json]


@dataclass(frozen=True)
class Judged:
    """What the rules say of a run.

    Attributes:
        job: Its name.
        place: Where it lies, for a person.
        state: Status and outcome, for a person.
        made: When the report was made, for a person.
        version: Of Trainwarden.
        rows: A row for each verdict with rule, code, status (``not evaluated`` for a rule that
            saw nothing), since_step, findings, inspected, note, cause, severity, confidence and
            remedies; what found something first.
        findings: A row for each finding with rule, step, first_step, tensor, value, limit,
            message, evidence, confidence and severity.
        problems: Settings that were not understood, a sentence each.
    """

    job: str
    place: str = ""
    state: str = ""
    made: str = ""
    version: str = ""
    rows: Sequence[Row] = ()
    findings: Sequence[Row] = ()
    problems: Sequence[str] = ()


class Line(NamedTuple):
    """A curve: ``values`` at ``steps``, both (T,), steps ascending; NaN and ±inf are gaps."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
