"""Boosted trainings under the real callback, judged as the cloud would."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")
datasets = pytest.importorskip("sklearn.datasets")

from benchmarks.detection import judge, observations  # noqa: E402 - needs torch
from tests.unit.hook.recording import read  # noqa: E402 - as above
from trainwarden import XGBoostCallback  # noqa: E402 - needs xgboost
from trainwarden.errors import NotFoundError  # noqa: E402
from trainwarden.model import Mode, Observation, Severity  # noqa: E402
from trainwarden.store.memory import MemoryObjects  # noqa: E402

QUIET = {"nthread": 1, "verbosity": 0}
Data = tuple[Any, Any]


def split(x: Any, y: Any, *, first: int, seed: int = 0) -> tuple[Data, Data]:
    order = np.random.RandomState(seed).permutation(len(x))
    return (x[order[:first]], y[order[:first]]), (x[order[first:]], y[order[first:]])


def train(
    parameters: Mapping[str, Any], training: Data, validation: Data, rounds: int, **more: Any
) -> tuple[list[Observation], Any]:
    """Train under the callback; what it stored, and the booster."""
    store = MemoryObjects()
    matrix, other = xgb.DMatrix(*training), xgb.DMatrix(*validation)
    callback = XGBoostCallback(matrix, job="case", out="memory", strict=True, _store=store, **more)
    booster = xgb.train(
        {**QUIET, **parameters},
        matrix,
        rounds,
        evals=[(matrix, "train"), (other, "validation")],
        verbose_eval=False,
        callbacks=[callback],
    )
    return list(observations(store)), booster


def told(seen: list[Observation]) -> set[str]:
    return {finding.rule for finding in judge(seen) if finding.severity is not Severity.INFO}


DIABETES = split(*datasets.load_diabetes(return_X_y=True), first=320)
DIGITS = split(*datasets.load_digits(return_X_y=True), first=1200)
DEEP = {"objective": "reg:squarederror", "max_depth": 14, "eta": 0.3, "min_child_weight": 0,
        "reg_lambda": 0}  # fmt: skip
SHALLOW = {"objective": "reg:squarederror", "max_depth": 2, "eta": 0.05, "subsample": 0.8}
SOFTPROB = {"objective": "multi:softprob", "num_class": 10, "max_depth": 3, "eta": 0.2,
            "subsample": 0.8, "colsample_bytree": 0.8}  # fmt: skip


def test_rounds_are_saved_densely_first_and_then_every_tenth() -> None:
    seen, _ = train(SHALLOW, *DIABETES, 45)
    assert [o.step for o in seen if o.mode is Mode.TRAIN] == [*range(10), 10, 20, 30, 40]
    assert [o.mode_step for o in seen if o.mode is Mode.EVAL] == list(range(14))


def test_losses_trees_importances_and_predictions_are_what_xgboost_says() -> None:
    seen, booster = train(SOFTPROB, *DIGITS, 5)
    last = [o for o in seen if o.mode is Mode.TRAIN][-1]
    matrix = xgb.DMatrix(*DIGITS[0])
    predicted = booster.predict(matrix)
    classes, labels = predicted.argmax(axis=1), DIGITS[0][1]
    right = classes == labels
    loss = -np.log(predicted[np.arange(len(labels)), labels.astype(int)]).mean()
    assert last.scalars["losses"] == {"mlogloss": pytest.approx(loss, rel=1e-5)}
    assert last.scalars["objective"]["softprob.accuracy"] == pytest.approx(right.mean())
    assert last.labels["correct/0"] == {i: int((labels[right] == i).sum()) for i in range(10)}
    confusion = last.labels["confusion/0"]
    assert sum(confusion.values()) == len(labels)
    assert confusion[11] == last.labels["correct/0"][1]
    assert last.scalars["trees"]["depth"] == 3
    assert last.scalars["trees"]["leaves"] <= 8
    assert last.scalars["trees"]["trees"] == 10
    gains = {
        name.removeprefix("total_gain/"): share
        for name, share in last.scalars["feature_importance"].items()
        if name.startswith("total_gain/f")
    }
    raw = booster.get_score(importance_type="total_gain")
    assert gains == {n: pytest.approx(v / sum(raw.values())) for n, v in raw.items()}
    assert last.scalars["optimizer"]["lr_0"] == pytest.approx(0.2)


def test_the_order_of_a_binary_models_scores_is_counted_and_a_regressions_residuals_are() -> None:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    training, validation = split(x, y, first=400)
    seen, booster = train({"objective": "binary:logistic"}, training, validation, 3)
    last = [o for o in seen if o.mode is Mode.TRAIN][-1]
    table = last.labels["ranked/0"]
    assert sum(n for key, n in table.items() if key % 2) == training[1].sum()
    scores = booster.predict(xgb.DMatrix(training[0]))
    lowest = (training[1][scores == scores.min()] == 0).sum()
    assert table[0] >= lowest > 0
    assert "residuals" not in last.scalars
    seen, booster = train(SHALLOW, *DIABETES, 3)
    last = [o for o in seen if o.mode is Mode.TRAIN][-1]
    errors = DIABETES[0][1] - booster.predict(xgb.DMatrix(DIABETES[0][0]))
    told = last.scalars["residuals"]
    rows = [told[f"range_{i}.rows"] for i in range(8)]
    assert sum(rows) == len(errors)
    mean = sum(n * told[f"range_{i}.abs_mean"] for i, n in enumerate(rows)) / sum(rows)
    assert mean == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    assert "ranked/0" not in last.labels


def test_the_model_is_the_same_with_and_without_the_callback() -> None:
    _, watched = train(DEEP, *DIABETES, 12)
    alone = xgb.train({**QUIET, **DEEP}, xgb.DMatrix(*DIABETES[0]), 12)
    assert watched.get_dump(with_stats=True) == alone.get_dump(with_stats=True)


def test_deep_trees_on_few_rows_are_named() -> None:
    assert "TreeDepth" in told(train(DEEP, *DIABETES, 150)[0])


def test_shallow_trees_are_left_alone() -> None:
    assert told(train(SHALLOW, *DIABETES, 60)[0]) == set()


@pytest.mark.parametrize("seed", range(3))
def test_healthy_digits_are_left_alone(seed: int) -> None:
    assert told(train({**SOFTPROB, "seed": seed}, *DIGITS, 60)[0]) == set()


@pytest.mark.parametrize(("share", "expected"), [(0.98, True), (0.5, False)])
def test_rare_positives_are_named(share: float, *, expected: bool) -> None:
    x, y = datasets.make_classification(
        6000, 20, n_informative=5, weights=[share], class_sep=0.7, flip_y=0.01, random_state=3
    )
    parameters = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.1}
    found = told(train(parameters, *split(x, y, first=4000), 60)[0])
    assert ("ClassImbalance" in found) is expected
    assert found <= {"ClassImbalance"}


@pytest.mark.parametrize("leak", [True, False])
def test_a_feature_that_holds_the_answer_is_named(*, leak: bool) -> None:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    column = y if leak else np.random.RandomState(0).rand(len(y))
    x = np.c_[x, column + np.random.RandomState(1).normal(0, 0.01, len(y))]
    parameters = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.3}
    assert ("TargetLeakage" in told(train(parameters, *split(x, y, first=400), 40)[0])) is leak


def test_no_matrix_linear_boosters_cross_validation_and_early_stopping() -> None:
    matrix = xgb.DMatrix(*DIABETES[0])
    for parameters in (SHALLOW, {"booster": "gblinear", "objective": "reg:squarederror"}):
        store = MemoryObjects()
        callback = XGBoostCallback(job="case", out="memory", strict=True, _store=store)
        stop = xgb.callback.EarlyStopping(rounds=3)
        xgb.train({**QUIET, **parameters}, matrix, 9, evals=[(matrix, "eval")], verbose_eval=False,
                  callbacks=[callback, stop])  # fmt: skip
        assert [o.mode for o in observations(store)] == [Mode.TRAIN] * 9
    store = MemoryObjects()
    callback = XGBoostCallback(job="case", out="memory", strict=True, _store=store)
    xgb.cv({**QUIET, **SHALLOW}, matrix, num_boost_round=5, nfold=3, callbacks=[callback])
    callback.close()
    assert {o.mode for o in observations(store)} == {Mode.TRAIN, Mode.EVAL}


def test_an_estimator_with_the_callback_is_cloned_copied_and_pickled() -> None:
    base = pytest.importorskip("sklearn.base")
    store = MemoryObjects()
    callback = XGBoostCallback(job="case", out="memory", strict=True, _store=store)
    model = base.clone(xgb.XGBClassifier(n_estimators=3, n_jobs=1, callbacks=[callback]))
    model.fit(*DIGITS[0], eval_set=[DIGITS[0], DIGITS[1]], verbose=False)
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))  # noqa: S301 - our own
    assert (again.predict(DIGITS[1][0]) == model.predict(DIGITS[1][0])).all()
    losses = [o.scalars["losses"] for o in observations(store)]
    assert [sorted(one) for one in losses] == [["mlogloss"]] * 6


class Refusing(MemoryObjects):
    """A store that takes nothing."""

    def put(self, *_: Any, **__: Any) -> Any:
        raise NotFoundError("no such bucket")


def test_training_goes_on_whatever_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    matrix = xgb.DMatrix(*DIABETES[0])
    wrong: list[dict[str, Any]] = [
        {"job": "not a job!"},
        {"_store": Refusing()},
        {"save_interval": -1},
    ]
    for options in wrong:
        callback = XGBoostCallback(matrix, **{"job": "j", "out": tmp_path, **options})
        booster = xgb.train({**QUIET, **SHALLOW}, matrix, 3, callbacks=[callback])
        assert booster.num_boosted_rounds() == 3
    assert "training is not watched" in caplog.text or "trainwarden" in caplog.text


def test_what_the_job_says_of_saved_steps_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "input/config"
    place.mkdir(parents=True)
    hook = {"HookParameters": {"save_interval": "4", "save_steps": "13"}}
    (place / "debughookconfig.json").write_text(json.dumps(hook))
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    store = MemoryObjects()
    data = xgb.DMatrix(np.eye(8), label=np.arange(8) % 2)
    callback = XGBoostCallback(data, job="job", dense_steps=0, strict=True, _store=store)
    xgb.train(QUIET, data, 18, callbacks=[callback])
    assert read(store).steps == [0, 4, 8, 12, 13, 16]
