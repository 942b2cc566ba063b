"""DAT002 Confusion: the model takes members of one class for another.

**Why it hurts.** A good accuracy can hide that a class is never recognised.

**How it is computed.** From pairs (label, prediction) a table is counted (unit: pairs; at most 30
classes), in which confusion[i][j] is how often label i was predicted as j. Once ``samples`` pairs
were counted it fires when for a predicted class i

* confusion[i][i] ÷ Σ_j confusion[j][i] is below ``min_diag``, or
* confusion[j][i] ÷ Σ_j confusion[j][i] is above ``max_off_diag`` for a label j other than i,

in ``patience`` tables in a row; each table is begun anew. Once is enough: it is told once.

**Remedy.** Look at members of the two classes; correct labels; weight the loss or add data.

**False alarms to expect.** Every model before it has learned. It is not evaluated unless asked for.

**Missing data.** Without predictions of a classification nothing is inspected.

**Source.** SageMaker Debugger's Confusion: min_diag 0.9, max_off_diag 0.1, at every step
(``samples`` 1, ``patience`` 1). Its documentation divides the diagonal by the sum of the whole
diagonal, which a perfect model of ten classes would fail; the column's sum is what its tests meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import Finding, FloatArray, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import _batch
from trainwarden.rules._batch import CONFUSION
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_MOST = 1_000  # classes; the hook tells of 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion(CheckedRule[Json]):
    """Fire when predictions of a class are wrong too often."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT002",
        "Confusion",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("labels", "n"),),
        (
            "Look at members of the two classes: are their labels right?",
            "Weight the loss or add data of the class that is mistaken.",
        ),
        "capture predictions: a classification loss of torch with at most 30 classes",
        default=False,
        sagemaker={"min_diag": 0.9, "max_off_diag": 0.1, "samples": 1, "patience": 1},
    )

    category_no: int | None = param(
        None, "Classes; the loss knows them.", "classes", bounds=Bounds(ge=2, le=_MOST)
    )
    min_diag: float = param(0.9, "Least share of right ones.", bounds=Bounds(ge=0, le=1))
    max_off_diag: float = param(0.1, "Largest share of one wrong class.", bounds=Bounds(ge=0, le=1))
    samples: int = param(500, "Pairs in a table before it is judged.", "pairs", bounds=Bounds(ge=1))
    patience: int = param(3, "Tables in a row that are ill.", "tables", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No pair has been counted."""
        return {"at": -1, "pairs": {}, "ill": 0}

    def inspects(self, obs: Observation) -> bool:
        """A table of labels and predictions."""
        return any(name.startswith(CONFUSION) for name in obs.labels)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Add this step's pairs; judge the table when it is full."""
        name = next((n for n in sorted(obs.labels) if n.startswith(CONFUSION)), None)
        if name is None or state == {}:
            return state, ()
        pairs = dict(state["pairs"])
        for pair, count in obs.labels[name].items():
            if pair >= 0:
                pairs[str(pair)] = pairs.get(str(pair), 0) + int(count)
        at = obs.step if state["at"] < 0 else state["at"]
        if sum(pairs.values()) < self.samples:
            return {**state, "at": at, "pairs": pairs}, ()
        found = self._judge(pairs, obs, name, at)
        if found is None:
            return self.start(), ()
        ill = state["ill"] + 1
        if ill < self.patience:
            return {"at": at, "pairs": {}, "ill": ill}, ()
        return {}, (found,)

    def _judge(
        self, pairs: Mapping[str, int], obs: Observation, name: str, at: int
    ) -> Finding | None:
        known = _batch.fact(_batch.classifier(obs), "classes")
        numbers = [int(pair) for pair in pairs]
        classes = self.category_no or (int(known) if 1 < known <= _MOST else 0)
        if classes < 2 or max(numbers) >= classes**2:  # noqa: PLR2004 - a comparison needs two
            return None
        table = np.zeros(classes**2)
        table[numbers] = list(pairs.values())
        return self._worst(table.reshape(classes, classes), obs, name, at)

    def _worst(self, table: FloatArray, obs: Observation, name: str, at: int) -> Finding | None:
        columns = np.flatnonzero(table.sum(axis=0))
        shares = table[:, columns] / table[:, columns].sum(axis=0)
        right = shares[columns, np.arange(columns.size)]
        wrong = shares.copy()
        wrong[columns, np.arange(columns.size)] = 0.0
        at_column = int(np.argmax(wrong.max(axis=0)))
        other, column = int(np.argmax(wrong[:, at_column])), int(columns[at_column])
        if wrong[other, at_column] > self.max_off_diag:
            share, limit = float(wrong[other, at_column]), self.max_off_diag
            message = f"{share:.0%} of what is predicted as class {column} is labelled {other}"
            evidence = {"kind": "off_diagonal", "predicted": column, "label": other}
            return Finding(obs.step, name, share, limit, message, at, evidence)
        worst = int(np.argmin(right))
        if right[worst] >= self.min_diag:
            return None
        share, column = float(right[worst]), int(columns[worst])
        message = f"only {share:.0%} of what is predicted as class {column} is labelled so"
        evidence = {"kind": "diagonal", "predicted": column}
        return Finding(obs.step, name, share, self.min_diag, message, at, evidence)
