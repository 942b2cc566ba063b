"""Tables whose columns say little: constant ones, copies, columns that are one."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden.model import Finding, Json, Observation, Severity
from trainwarden.rules import _batch, _progress
from trainwarden.rules._batch import Facts, fact

_COLUMNS, _EACH, _ROWS = (4, 256), 20, 1000
_MOST, _ONE = 0.5, 0.999
_NEARLY_ALL, _COPIES, _FEWER_EACH, _FEWER_ROWS, _SOME_FALL = 0.9, 0.2, 8, 256, 3.0
_EIGHT = 8  # columns, of which two that say something are next to none
_STEPS = 50  # before a run may be said not to learn


def useless_columns(obs: Observation, loss: Json, learning: float) -> Finding | None:
    """Tell of a table whose columns say too little for a run that hardly learns.

    Args:
        obs: A training step with the row of ``input/0``.
        loss: Progress of the training loss.
        learning: Share of the loss whose fall shows that the run learns.
    """
    facts = _batch.inputs(obs).get("input/0", {})
    row = obs.layout.row_of["input/0"]
    wide, seen = fact(facts, "features"), fact(facts, "seen")
    table = len(obs.layout.tensors[row].shape) == 1 and _COLUMNS[0] <= wide <= _COLUMNS[1]
    if not table or obs.step < _STEPS:
        return None
    told = (
        (kind, share, limit)
        for kind, share, limit, rows, much in _troubles(facts, wide)
        if seen >= rows and _progress.fall(loss) < much * learning
    )
    kind, share, limit = next(told, ("", 0.0, 0.0))
    if not kind:
        return None
    what = {
        "nothing_but_copies": f"{share:.0%} of the {wide:.0f} columns of input/0 never change "
        "or are copies of others",
        "constant_features": f"{share:.0%} of the {wide:.0f} columns of input/0 never change",
        "duplicated_features": f"{share:.0%} of the {wide:.0f} columns of input/0 are copies",
        "correlated_features": f"two columns of input/0 correlate with |r| = {share:.6g}",
    }[kind]
    message = f"{what} in {seen:.0f} samples, and the run hardly learns"
    evidence, since = {"kind": kind, "columns": wide, "samples": seen}, loss["at"]
    hint = Severity.INFO if kind == "correlated_features" else None  # it does little harm
    return Finding(
        obs.step, "input/0", share, limit, message, since, evidence, confidence=0.6, severity=hint
    )


def _troubles(facts: Facts, wide: float) -> Iterator[tuple[str, float, float, float, float]]:
    """Kinds of trouble: measure, limit, rows to be sure, ``learning`` that clears the run."""
    constant = fact(facts, "constant_features") / wide
    copies = fact(facts, "duplicated_features") / wide
    correlation = fact(facts, "correlation_max")
    few, many = max(_FEWER_ROWS, _FEWER_EACH * wide), max(_ROWS, _EACH * wide)
    two = wide >= _EIGHT and (constant + copies) * wide >= wide - 2
    if (constant + copies >= _NEARLY_ALL or two) and copies >= _COPIES:
        yield "nothing_but_copies", constant + copies, _NEARLY_ALL, few, _SOME_FALL
    if constant > _MOST:
        yield "constant_features", constant, _MOST, many, 1.0
    elif copies > _MOST:
        yield "duplicated_features", copies, _MOST, many, 1.0
    elif correlation > _ONE and not copies > 0:
        yield "correlated_features", correlation, _ONE, many, 1.0
