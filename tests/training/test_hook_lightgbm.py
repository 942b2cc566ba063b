"""Boosted trainings under the real LightGBM callback, judged as the cloud would."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

lgb = pytest.importorskip("lightgbm")
datasets = pytest.importorskip("sklearn.datasets")

from benchmarks.detection import judge, observations  # noqa: E402 - needs torch
from trainwarden import LightGBMCallback  # noqa: E402 - needs lightgbm
from trainwarden.errors import NotFoundError  # noqa: E402
from trainwarden.model import Mode, Observation, Severity  # noqa: E402
from trainwarden.store.memory import MemoryObjects  # noqa: E402
from trainwarden.wire.control import Control  # noqa: E402

QUIET = {"num_threads": 1, "verbosity": -1}
Data = tuple[Any, Any]


def split(x: Any, y: Any, *, first: int, seed: int = 0) -> tuple[Data, Data]:
    order = np.random.RandomState(seed).permutation(len(x))
    return (x[order[:first]], y[order[:first]]), (x[order[first:]], y[order[first:]])


def train(
    parameters: Mapping[str, Any], training: Data, validation: Data, rounds: int, **more: Any
) -> tuple[list[Observation], Any]:
    """Train under the callback with a validation set; what it stored, and the booster."""
    store = MemoryObjects()
    data = lgb.Dataset(*training)
    callback = LightGBMCallback(data, job="case", out="memory", strict=True, _store=store, **more)
    booster = lgb.train(
        {**QUIET, **parameters},
        data,
        rounds,
        valid_sets=[lgb.Dataset(*validation, reference=data)],
        callbacks=[callback],
    )
    return list(observations(store)), booster


def told(seen: list[Observation]) -> set[str]:
    return {finding.rule for finding in judge(seen) if finding.severity is not Severity.INFO}


DIABETES = split(*datasets.load_diabetes(return_X_y=True), first=320)
DIGITS = split(*datasets.load_digits(return_X_y=True), first=1200)
CANCER = split(*datasets.load_breast_cancer(return_X_y=True), first=400)
DEEP = {"objective": "regression", "num_leaves": 300, "learning_rate": 0.3, "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 0}  # fmt: skip
SHALLOW = {"objective": "regression", "num_leaves": 4, "learning_rate": 0.05,
           "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.8}  # fmt: skip
SOFTMAX = {"objective": "multiclass", "num_class": 10, "num_leaves": 8, "learning_rate": 0.1,
           "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.8}  # fmt: skip
BINARY = {"objective": "binary", "num_leaves": 6}


def test_rounds_are_saved_densely_first_and_then_every_tenth() -> None:
    seen, _ = train(SHALLOW, *DIABETES, 45)
    assert [o.step for o in seen if o.mode is Mode.TRAIN] == [*range(10), 10, 20, 30, 40]
    assert [o.mode_step for o in seen if o.mode is Mode.EVAL] == list(range(14))


def test_losses_trees_importances_and_predictions_are_what_lightgbm_says() -> None:
    seen, booster = train(SOFTMAX, *DIGITS, 5)
    last = [o for o in seen if o.mode is Mode.TRAIN][-1]
    predicted, labels = booster.predict(DIGITS[0][0]), DIGITS[0][1]
    right = predicted.argmax(axis=1) == labels
    loss = -np.log(predicted[np.arange(len(labels)), labels]).mean()
    assert last.scalars["losses"] == {"multi_logloss": pytest.approx(loss, rel=1e-5)}
    assert last.scalars["objective"]["multiclass.accuracy"] == pytest.approx(right.mean())
    assert last.labels["correct/0"] == {i: int((labels[right] == i).sum()) for i in range(10)}
    assert sum(last.labels["confusion/0"].values()) == len(labels)
    assert last.scalars["optimizer"]["lr_0"] == 0.1
    shape = last.scalars["trees"]
    newest = booster.dump_model(start_iteration=4)["tree_info"]
    assert shape["depth"] == max(depth(one["tree_structure"]) for one in newest)
    assert (shape["leaves"], shape["trees"], shape["samples"]) == (8, 10, 1200)
    raw = dict(zip(booster.feature_name(), booster.feature_importance("gain"), strict=True))
    gains = {
        name.removeprefix("total_gain/"): share
        for name, share in last.scalars["feature_importance"].items()
        if name.startswith("total_gain/C")
    }
    assert gains == {n: pytest.approx(raw[n] / sum(raw.values()), rel=1e-4) for n in gains}
    assert last.scalars["feature_importance"]["total_gain/"] == sum(v > 0 for v in raw.values())
    validation = [o for o in seen if o.mode is Mode.EVAL][-1].scalars["losses"]
    other = booster.predict(DIGITS[1][0])
    loss = -np.log(other[np.arange(len(other)), DIGITS[1][1]]).mean()
    assert validation == {"multi_logloss": pytest.approx(loss, rel=1e-5)}


def depth(node: dict[str, Any]) -> int:
    """Edges to the deepest leaf below."""
    below = [node[side] for side in ("left_child", "right_child") if side in node]
    return 1 + max(map(depth, below)) if below else 0


def test_the_order_of_a_binary_models_scores_is_counted_and_a_regressions_residuals_are() -> None:
    seen, _ = train(BINARY, *CANCER, 3)
    table = [o for o in seen if o.mode is Mode.TRAIN][-1].labels["ranked/0"]
    assert sum(n for key, n in table.items() if key % 2) == CANCER[0][1].sum()
    seen, booster = train(SHALLOW, *DIABETES, 3)
    last = [o for o in seen if o.mode is Mode.TRAIN][-1]
    errors = DIABETES[0][1] - booster.predict(DIABETES[0][0])
    spread = last.scalars["residuals"]
    rows = [spread[f"range_{i}.rows"] for i in range(8)]
    mean = sum(n * spread[f"range_{i}.abs_mean"] for i, n in enumerate(rows)) / sum(rows)
    assert mean == pytest.approx(np.abs(errors).mean(), rel=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("parameters", [DEEP, SHALLOW, {**SHALLOW, "boosting": "dart"}])
def test_the_model_is_the_same_with_and_without_the_callback(
    parameters: dict[str, Any], threads: int
) -> None:
    settings = {**parameters, "num_threads": threads}
    _, watched = train(settings, *DIABETES, 25)
    data = lgb.Dataset(*DIABETES[0])
    valid = lgb.Dataset(*DIABETES[1], reference=data)
    alone = lgb.train({**QUIET, **settings}, data, 25, valid_sets=[valid])
    assert watched.model_to_string() == alone.model_to_string()


def test_deep_trees_on_few_rows_are_named() -> None:
    assert "TreeDepth" in told(train(DEEP, *DIABETES, 60)[0])


def test_shallow_trees_are_left_alone() -> None:
    assert told(train(SHALLOW, *DIABETES, 60)[0]) == set()


def test_boosting_far_past_the_best_round_is_named() -> None:
    assert told(train({"objective": "regression"}, *DIABETES, 150)[0]) == {"Overfit"}


@pytest.mark.parametrize("seed", range(3))
def test_healthy_digits_are_left_alone(seed: int) -> None:
    assert told(train({**SOFTMAX, "seed": seed}, *DIGITS, 40)[0]) == set()


@pytest.mark.parametrize("leak", [True, False])
def test_a_feature_that_holds_the_answer_is_named(*, leak: bool) -> None:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    column = y if leak else np.random.RandomState(0).rand(len(y))
    x = np.c_[x, column + np.random.RandomState(1).normal(0, 0.01, len(y))]
    parameters = {**BINARY, "learning_rate": 0.3}
    assert ("TargetLeakage" in told(train(parameters, *split(x, y, first=400), 40)[0])) is leak


@pytest.mark.parametrize(("share", "expected"), [(0.98, True), (0.5, False)])
def test_rare_positives_are_named(share: float, *, expected: bool) -> None:
    x, y = datasets.make_classification(
        6000, 20, n_informative=5, weights=[share], class_sep=0.7, flip_y=0.01, random_state=3
    )
    found = told(train(BINARY, *split(x, y, first=4000), 60)[0])
    assert ("ClassImbalance" in found) is expected
    assert found <= {"ClassImbalance"}


def watching(store: MemoryObjects, train: Any = None) -> LightGBMCallback:
    return LightGBMCallback(train, job="case", out="memory", strict=True, _store=store)


def ended(store: MemoryObjects) -> bool:
    return store.get("jobs/case/end/0000.tw", max_bytes=10**6) is not None


def test_early_stopping_cross_validation_and_the_scikit_learn_interface() -> None:
    data = lgb.Dataset(*DIABETES[0])
    valid = lgb.Dataset(*DIABETES[1], reference=data)
    store, stop = MemoryObjects(), lgb.early_stopping(2, verbose=False)
    with watching(store) as callback:
        booster = lgb.train({**QUIET, **DEEP}, data, 200, valid_sets=[valid],
                            callbacks=[callback, stop])  # fmt: skip
    assert 0 < booster.best_iteration < 200
    assert ended(store)
    store = MemoryObjects()
    lgb.cv({**QUIET, **SHALLOW}, lgb.Dataset(*DIABETES[0]), 5, nfold=3, stratified=False,
           callbacks=[watching(store)], eval_train_metric=True)  # fmt: skip
    assert [o.mode for o in observations(store)] == [Mode.TRAIN, Mode.EVAL] * 5
    assert ended(store)
    store = MemoryObjects()
    model = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbosity=-1)
    model.fit(
        *DIGITS[0], eval_X=DIGITS[1][0], eval_y=DIGITS[1][1], callbacks=[watching(store, DIGITS[0])]
    )
    seen = list(observations(store))
    assert [sorted(o.scalars["losses"]) for o in seen] == [["multi_logloss"]] * 6
    assert "confusion/0" in seen[0].labels


def test_without_validation_or_with_ones_own_objective_the_rest_is_captured() -> None:
    store, data = MemoryObjects(), lgb.Dataset(*DIABETES[0])

    def squares(predicted: Any, wanted: Any) -> tuple[Any, Any]:
        return predicted - wanted.get_label(), np.ones_like(predicted)

    lgb.train({**QUIET, "objective": squares, "metric": "l2"}, data, 3,
              callbacks=[watching(store, data)])  # fmt: skip
    seen = list(observations(store))
    assert [o.mode for o in seen] == [Mode.TRAIN] * 3
    losses = [o.scalars["losses"]["l2"] for o in seen]
    assert all(map(math.isfinite, losses))
    assert losses[0] > losses[2]
    assert seen[0].scalars["trees"]["depth"] > 1
    assert seen[0].scalars["residuals"]


def test_the_cloud_ends_a_training() -> None:
    store, data = MemoryObjects(), lgb.Dataset(*DIABETES[0])
    callback = watching(store, data)
    session = callback._watching.session
    assert session is not None
    session._control(Control(1, stop=True, reason="enough"))
    booster = lgb.train({**QUIET, **SHALLOW}, data, 50, callbacks=[callback])
    assert booster.current_iteration() == 1
    assert b"stopped" in (store.get("jobs/case/end/0000.tw", max_bytes=10**6) or b"")


class Refusing(MemoryObjects):
    """A store that takes nothing."""

    def put(self, *_: Any, **__: Any) -> Any:
        raise NotFoundError("no such bucket")


def test_training_goes_on_whatever_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = lgb.Dataset(*DIABETES[0]).construct()
    wrong: list[dict[str, Any]] = [
        {"job": "not a job!"},
        {"_store": Refusing()},
        {"save_interval": -1},
        {"train": 17},
        {"train": used},
        {"train": (DIABETES[0][0][:, :3], DIABETES[0][1])},  # of another width
    ]
    for options in wrong:
        data = lgb.Dataset(*DIABETES[0])
        callback = LightGBMCallback(**{"job": "j", "out": tmp_path, **options})
        booster = lgb.train({**QUIET, **SHALLOW}, data, 3, callbacks=[callback])
        assert booster.num_trees() == 3
        callback.close()
    assert "training is not watched" in caplog.text
    assert "does not hold its rows any more" in caplog.text
    assert "capture is switched off after an error in it" in caplog.text
