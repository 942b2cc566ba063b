"""ROC, precision-recall and errors by range of the label, from counts alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from tests.unit.report.made import JOB, Page, written
from tests.unit.rules.runs import Script
from trainwarden.hook.boosted.spread import ranked, residual_facts
from trainwarden.model import Observation
from trainwarden.report import Judged, read, render
from trainwarden.report.spread import ranking


def seen(told: dict[int, int]) -> Observation:
    return Script().step(0, labels={"ranked/0": told})


def page(*runs: list[Observation]) -> Page:
    store = written(*runs, framework="xgboost 3.0")
    return Page(render(Judged(JOB), read(store, JOB)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.5, 0.03])
@pytest.mark.parametrize("digits", [1, 6])
def test_the_area_is_right_within_what_it_says(seed: int, share: float, digits: int) -> None:
    random = np.random.default_rng(seed)
    labels = (random.random(2000) < share).astype(np.float32)
    scores = np.round(random.normal(size=2000) + labels, digits).astype(np.float32)
    found = ranking(seen(ranked(scores, labels)))
    assert found is not None
    area, off = found.area
    assert abs(area - roc_auc_score(labels, scores)) <= off + 1e-9
    assert off < 0.02
    exact = average_precision_score(labels, scores)
    assert found.average_precision == pytest.approx(exact, abs=0.03)


def test_a_perfect_and_a_reversed_order() -> None:
    labels = np.array([0, 0, 1, 1], np.float32)
    scores = np.array([0.1, 0.2, 0.8, 0.9], np.float32)
    for given, expected in ((scores, 1.0), (-scores, 0.0)):
        found = ranking(seen(ranked(given, labels)))
        assert found is not None
        assert found.area == (expected, 0.0)
        assert found.found.tolist()[-1] == found.taken.tolist()[-1] == 1.0


@pytest.mark.parametrize("told", [{}, {1: 5, 3: 5}, {0: 5}, {-1: 5, 0: 5}, {0: 5, 10**9 + 1: 5}])
def test_one_label_alone_or_nonsense_is_left_out(told: dict[int, int]) -> None:
    assert ranking(seen(told)) is None
    assert "Ranking" not in page([seen(told)]).text


def test_the_curves_of_the_last_round_and_the_areas_of_all() -> None:
    rounds = [
        Script().step(0, loss=1.0, labels={"ranked/0": {0: 5, 1: 5, 2: 5, 3: 5}}),
        Script().step(1, loss=0.5, labels={"ranked/0": {0: 10, 3: 10}}),
    ]
    found = page(rounds)
    for words in (
        "Ranking, round 1",
        "area under the ROC curve 1.0000 ± 0.0000",
        "average precision 1.0000",
        "share of positives 50.0 %",
        "ROC: positives found over negatives taken",
        "Precision over positives found",
        "Areas over the rounds",
    ):
        assert words in found.text


def test_errors_by_range_and_their_distribution() -> None:
    labels = np.arange(80, dtype=np.float32)
    residuals = np.where(labels < 10, -3.0, 0.5).astype(np.float32)
    told = {"residuals": residual_facts(labels, residuals)}
    found = page([Script().step(step, loss=1.0, scalars=told) for step in range(3)])
    for words in (
        "Error by range of the label, round 2",
        "0 to 9 10 3 -3",
        "70 to 79 10 0.5 0.5",
        "Mean absolute residual of each range",
        "label 10 to 19",
        "Distribution of the residuals",
        "-3 to -2.883 10",
    ):
        assert words in found.text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1.7e308])
def test_nonsense_in_residuals_is_left_out(value: float) -> None:
    names = ("range_0.from", "range_0.to", "range_0.rows", "range_0.mean", "range_0.abs_mean",
             "bin_0.rows", "bin_1.rows", "low", "high", "range_x.from", "bin_-1.rows")  # fmt: skip
    obs = Script().step(0, loss=1.0, scalars={"residuals": dict.fromkeys(names, value)})
    assert "nan" not in page([obs]).text.lower()


def test_several_workers_ranks_and_ranges_are_not_one() -> None:
    told = {"residuals": residual_facts(np.arange(9, dtype=np.float32), np.ones(9, np.float32))}
    obs = Script().step(0, loss=1.0, scalars=told, labels={"ranked/0": {0: 10, 3: 10}})
    text = page([obs], [obs]).text
    assert "Ranking" not in text
    assert "Error by range" not in text
