from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.rules.runs import Script, fired, fold
from trainwarden.model import Observation
from trainwarden.rules.confusion import Confusion

SAGEMAKER = Confusion(min_diag=0.9, max_off_diag=0.1, samples=1, patience=1)
C = 10


def step(at: int, labels: Sequence[int], predicted: Sequence[int]) -> Observation:
    pairs, counts = np.unique(np.array(labels) * C + np.array(predicted), return_counts=True)
    table = dict(zip(pairs.tolist(), counts.tolist(), strict=True))
    scalars = {"objective": {"cross_entropy.classes": float(C)}}
    return Script().step(at, labels={"confusion/0": table}, scalars=scalars)


def test_sagemakers_vectors() -> None:
    right = list(range(C))
    wrong = [0, 1, 2, 3, 7, 5, 6, 7, 8, 9]
    assert fired(SAGEMAKER, [step(0, right, right)]) == []
    assert fired(SAGEMAKER, [step(0, right, wrong)]) == [0]
    tolerant = Confusion(min_diag=0.0, max_off_diag=0.01, samples=1, patience=1)
    assert fired(tolerant, [step(0, right, wrong)]) == [0]


def test_the_finding_names_the_two_classes() -> None:
    (finding,) = fold(SAGEMAKER, [step(3, [4, 7], [7, 7])])[1]
    assert finding.evidence == {"kind": "off_diagonal", "predicted": 7, "label": 4}
    assert (finding.value, finding.limit) == (0.5, 0.1)


def test_a_diagonal_that_many_classes_share_out_is_told_too() -> None:
    rule = Confusion(min_diag=0.9, max_off_diag=0.5, samples=1, patience=1)
    (finding,) = fold(rule, [step(0, [1, 1, 2, 3], [1, 1, 1, 1])])[1]
    assert finding.evidence == {"kind": "diagonal", "predicted": 1}


@pytest.mark.parametrize(("ill", "fires"), [([1, 1, 1], [2]), ([1, 0, 1, 1, 1], [4]), ([1, 1], [])])
def test_patience_counts_full_tables_in_a_row(ill: list[int], fires: list[int]) -> None:
    labels = [i % C for i in range(500)]
    mixed = [(label + (i % 3 == 0)) % C for i, label in enumerate(labels)]
    run = [step(i, labels, mixed if one else labels) for i, one in enumerate(ill)]
    assert fired(Confusion(), run) == fires


def test_pairs_are_collected_over_steps_and_told_once() -> None:
    rule = Confusion(samples=20, patience=1)
    run = [step(i, list(range(C)), [0] * C) for i in range(6)]
    assert fired(rule, run) == [1]


def test_classes_that_are_unknown_or_do_not_fit_are_not_judged() -> None:
    blind = Script().step(0, labels={"confusion/0": {7: 3}})
    assert fired(SAGEMAKER, [blind]) == []
    assert fired(Confusion(category_no=2, samples=1, patience=1), [blind]) == []
    assert fired(Confusion(category_no=3, samples=1, patience=1), [blind]) == [0]
