"""Loops of ``partial_fit`` under the real hook, judged as the cloud would."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import base, datasets, linear_model, naive_bayes, neural_network, preprocessing

from benchmarks.detection import judge, observations
from trainwarden import PartialFit
from trainwarden.errors import NotFoundError
from trainwarden.hook.sklearn.network import network
from trainwarden.hook.sklearn.objectives import MARGINS, RESIDUALS, SOFTMAX, Objective
from trainwarden.hook.sklearn.objectives import judge as loss_of
from trainwarden.model import Mode, Observation, Severity
from trainwarden.stats.derived import STATISTICS
from trainwarden.store.memory import MemoryObjects

SGD, MLP = linear_model.SGDClassifier, neural_network.MLPClassifier
STEADY = {"learning_rate": "constant", "eta0": 0.01, "random_state": 0}
Data = tuple[Any, Any]


def scaled(data: Data) -> Data:
    return preprocessing.StandardScaler().fit_transform(data[0]), data[1]


CANCER = datasets.load_breast_cancer(return_X_y=True)
DIGITS = datasets.load_digits(return_X_y=True)
WINE = datasets.load_wine(return_X_y=True)
DIABETES = datasets.load_diabetes(return_X_y=True)


def batches(data: Data, steps: int, size: int = 32) -> list[Data]:
    """Draw batches from three quarters of the rows; the last one holds the others."""
    random = np.random.RandomState(0)
    order = random.permutation(len(data[0]))
    x, y = data[0][order].astype(np.float64), data[1][order]
    first = len(x) * 3 // 4
    chosen = [random.choice(first, size, replace=False) for _ in range(steps)]
    return [(x[rows], y[rows]) for rows in chosen] + [(x[first:], y[first:])]


def classes_of(model: Any, data: Data) -> dict[str, Any]:
    return {"classes": np.unique(data[1])} if base.is_classifier(model) else {}


def train(model: Any, data: Data, steps: int, **more: Any) -> list[Observation]:
    """Train under the hook; what it stored."""
    store = MemoryObjects()
    *training, validation = batches(data, steps)
    options = {"job": "case", "out": "memory", "strict": True, "_store": store, **more}
    with PartialFit(model, validation=validation, **options) as watched:
        for x, y in training:
            watched.partial_fit(x, y, **classes_of(model, data))
    return list(observations(store))


def told(seen: list[Observation]) -> set[str]:
    return {finding.rule for finding in judge(seen) if finding.severity is not Severity.INFO}


def value(obs: Observation, name: str, statistic: str) -> float:
    row = obs.layout.row_of[name]
    return float(STATISTICS[statistic].compute(obs.stats[row : row + 1])[0])


def layers(model: Any) -> list[Any]:
    return [*model.coefs_, *model.intercepts_] if hasattr(model, "coefs_") else [
        model.coef_, model.intercept_]  # fmt: skip


MODELS = [
    SGD(random_state=0),
    SGD(loss="log_loss", **STEADY),
    SGD(loss="modified_huber", average=True, random_state=0),
    linear_model.Perceptron(random_state=0),
    MLP((16,), random_state=0),
    MLP((16, 8), activation="tanh", solver="sgd", random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__}-{m.get_params()}"[:40])
def test_the_model_is_the_same_with_and_without_the_hook(model: Any) -> None:
    watched, alone = base.clone(model), base.clone(model)
    train(watched, DIGITS, 25)
    for x, y in batches(DIGITS, 25)[:-1]:
        alone.partial_fit(x, y, classes=np.unique(DIGITS[1]))
    pairs = zip(layers(watched), layers(alone), strict=True)
    assert all(one.tobytes() == other.tobytes() for one, other in pairs)


def test_steps_are_saved_densely_first_and_then_every_tenth() -> None:
    seen = train(SGD(random_state=0), scaled(DIGITS), 45)
    assert [o.step for o in seen if o.mode is Mode.TRAIN] == [*range(10), 10, 20, 30, 40]
    assert [o.mode_step for o in seen if o.mode is Mode.EVAL] == list(range(14))


def test_what_is_told_of_a_linear_step_is_what_the_model_was_before_it() -> None:
    data, model = scaled(CANCER), SGD(loss="log_loss", **STEADY)
    seen = [o for o in train(model, data, 4) if o.mode is Mode.TRAIN]
    again, steps = SGD(loss="log_loss", **STEADY), batches(data, 4)
    again.partial_fit(*steps[0], classes=[0, 1])
    first = again.coef_.copy()
    again.partial_fit(*steps[1])
    x, y = steps[2]
    loss = -np.log(again.predict_proba(x)[np.arange(32), y]).mean()
    obs = seen[2]
    assert obs.scalars["losses"]["loss"] == pytest.approx(loss)
    assert obs.scalars["objective"]["log_loss.accuracy"] == again.score(x, y)
    assert obs.scalars["optimizer"]["lr_0"] == 0.01
    assert obs.labels["label/0"] == {i: int((y == i).sum()) for i in (0, 1)}
    assert sum(obs.labels["confusion/0"].values()) == 32
    assert value(obs, "coef_", "l2") == pytest.approx(np.linalg.norm(again.coef_))
    # One row is one update: what is told is the change of one.
    change = np.linalg.norm(again.coef_ - first) / 32
    assert value(obs, "coef_", "update_l2") == pytest.approx(change)
    assert value(seen[0], "coef_", "l2") == 0
    assert seen[0].scalars["losses"]["loss"] == pytest.approx(np.log(2))
    assert obs.scalars["batch"]["input/0.features"] == 30


def test_what_is_told_of_a_network_is_what_scikit_learn_computes() -> None:
    data = scaled(DIGITS)
    model = MLP((16, 8), random_state=0, alpha=0)
    seen = [o for o in train(model, data, 3) if o.mode is Mode.TRAIN]
    again, steps = MLP((16, 8), random_state=0, alpha=0), batches(data, 3)
    for (x, y), obs in zip(steps, seen, strict=False):
        before = network(again)
        again.partial_fit(x, y, classes=np.arange(10))
        assert obs.scalars["losses"]["loss"] == pytest.approx(again.loss_)
        assert (before is None) == ("activations" not in obs.present_tensors)
        if before is not None:
            hidden = np.maximum(x @ before.weights[0].T + before.biases[0], 0)
            assert value(obs, "activation/0", "mean") == pytest.approx(hidden.mean())
            assert obs.channels["activation/0"].active.tolist() == (hidden > 0).sum(axis=0).tolist()
            assert value(obs, "coefs_.1", "l2") == pytest.approx(np.linalg.norm(before.weights[1]))
    assert [name for name in seen[1].layout.names if name.startswith("gradient/")] == [
        f"gradient/{kind}.{i}" for i in range(3) for kind in ("coefs_", "intercepts_")
    ]


@pytest.mark.parametrize("name", [*MARGINS, *RESIDUALS, SOFTMAX])
@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_gradients_are_the_slopes_of_the_loss(name: str, hidden: tuple[int, ...]) -> None:
    random = np.random.RandomState(1)
    x, y = random.normal(size=(40, 6)), random.randint(3, size=40)
    model = MLP(hidden or (3,), activation="tanh", random_state=0)
    model.partial_fit(x, y, classes=[0, 1, 2])
    found = network(model)
    assert found is not None
    wanted = np.eye(3)[y] if name not in RESIDUALS else random.normal(size=(40, 3))
    objective = Objective(name, classes=True)

    def loss() -> float:
        judged = loss_of(objective, found.forward(x)[-1], wanted)
        assert judged is not None
        return judged[0]

    passed = found.forward(x)
    judged = loss_of(objective, passed[-1], wanted)
    assert judged is not None
    gradients = found.backward(passed, judged[1])
    for number, pair in enumerate(zip(found.weights, found.biases, strict=True)):
        for which, values in enumerate(pair):
            place = (0,) * values.ndim
            kept, small = values[place], 1e-6
            values[place] = kept + small
            above = loss()
            values[place] = kept - small
            below = loss()
            values[place] = kept
            slope = (above - below) / (2 * small)
            assert gradients[number][which][place] == pytest.approx(slope, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (SGD(loss="log_loss", random_state=0), CANCER),
        (SGD(random_state=0), WINE),
        (MLP((32,), random_state=0), WINE),
        (MLP((32,), random_state=0), CANCER),
    ],
    ids=["logistic-cancer", "hinge-wine", "network-wine", "network-cancer"],
)
def test_inputs_that_are_not_normalised_are_named_and_normalised_ones_are_left_alone(
    model: Any, data: Data
) -> None:
    found = judge(train(base.clone(model), data, 120))
    assert "NotNormalizedData" in {finding.rule for finding in found if finding.step < 30}
    assert told(train(base.clone(model), scaled(data), 120)) == set()


@pytest.mark.parametrize(("rate", "expected"), [(0.001, False), (5.0, True)])
def test_a_networks_learning_rate_that_is_too_high_is_named(rate: float, *, expected: bool) -> None:
    model = MLP((32,), learning_rate_init=rate, random_state=0)
    found = told(train(model, scaled(DIGITS), 120))
    assert ("LearningRateTooHigh" in found) is expected
    assert found == set() or expected


@pytest.mark.parametrize(("rate", "expected"), [(0.001, False), (1.0, True)])
def test_a_regression_that_blows_up_is_named(rate: float, *, expected: bool) -> None:
    target = preprocessing.scale(DIABETES[1])
    model = linear_model.SGDRegressor(learning_rate="constant", eta0=rate, random_state=0)
    found = told(train(model, scaled((DIABETES[0], target)), 120))
    assert ("ExplodingGradient" in found) is expected
    assert found == set() or expected


@pytest.mark.parametrize(("activation", "expected"), [("relu", False), ("logistic", True)])
def test_a_deep_network_of_sigmoids_does_not_pass_gradients_back(
    activation: str, *, expected: bool
) -> None:
    model = MLP((24,) * 8, activation=activation, solver="sgd", learning_rate_init=0.05,
                random_state=0)  # fmt: skip
    found = told(train(model, scaled(DIGITS), 150))
    assert bool(found & {"VanishingGradient", "Collapse", "LossNotDecreasing"}) is expected
    assert found == set() or expected


def test_losses_are_judged_once_the_optimal_schedule_has_calmed_down() -> None:
    random, (x, y) = np.random.RandomState(0), scaled(DIGITS)
    store, model = MemoryObjects(), SGD(loss="log_loss", random_state=0)
    options: dict[str, Any] = {"job": "case", "out": "memory", "strict": True, "_store": store}
    with PartialFit(model, validation=(x[1200:], y[1200:]), **options) as watched:
        for _ in range(100):
            rows = random.choice(1200, 200, replace=False)
            watched.partial_fit(x[rows], y[rows], classes=np.arange(10))
    seen = list(observations(store))
    training = [o for o in seen if o.mode is Mode.TRAIN]
    calm = {o.step for o in training if o.scalars["optimizer"]["lr_0"] <= 1}
    assert calm == {50, 60, 70, 80, 90}
    assert calm == {o.step for o in seen if "losses" in o.scalars}
    assert all("loss" in o.scalars["metrics"] for o in seen if o.step not in calm)
    assert told(seen) == set()


@pytest.mark.parametrize("seed", range(3))
def test_healthy_digits_are_left_alone(seed: int) -> None:
    for model in (SGD(loss="log_loss", random_state=seed), MLP((32,), random_state=seed)):
        assert told(train(model, scaled(DIGITS), 120)) == set()


def test_sparse_matrices_words_as_labels_weights_of_rows_and_other_estimators() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    words = np.array(["no", "yes"])
    for model in (SGD(**STEADY), MLP((4,), random_state=0), naive_bayes.GaussianNB()):
        store = MemoryObjects()
        with PartialFit(model, job="case", out="memory", strict=True, _store=store) as watched:
            for x, y in batches(scaled(CANCER), 3)[:-1]:
                rows = x if isinstance(model, naive_bayes.GaussianNB) else sparse.csr_matrix(x)
                weights = {} if isinstance(model, MLP) else {"sample_weight": np.ones(len(x))}
                watched.partial_fit(rows, words[y], classes=words, **weights)
        seen = list(observations(store))
        assert [sum(o.labels["label/0"].values()) for o in seen] == [32] * 3
        known = {name for o in seen for name in o.scalars.get("losses", {})}
        assert known == (set() if isinstance(model, naive_bayes.GaussianNB) else {"loss"})


def test_several_labels_of_one_row_and_several_targets_have_a_loss() -> None:
    x, y = datasets.make_multilabel_classification(400, 8, n_classes=3, random_state=0)
    store = MemoryObjects()
    with PartialFit(
        MLP((8,), random_state=0), job="case", out="memory", strict=True, _store=store
    ) as watched:
        for begin in range(0, 400, 40):
            rows = slice(begin, begin + 40)
            watched.partial_fit(x[rows], y[rows], classes=[0, 1, 2])
    losses = [o.scalars["losses"]["loss"] for o in observations(store)]
    assert losses[1] == pytest.approx(network_loss(x[40:80], y[40:80]))
    store = MemoryObjects()
    model = neural_network.MLPRegressor(hidden_layer_sizes=(8,), random_state=0)
    with PartialFit(model, job="case", out="memory", strict=True, _store=store) as watched:
        for _ in range(3):
            watched.partial_fit(x, np.c_[x[:, 0], x[:, 1]])
    assert len({o.scalars["losses"]["loss"] for o in observations(store)}) == 3


def network_loss(x: Any, y: Any) -> float:
    """Mean over labels of the loss after one step on the first 40 rows."""
    data = datasets.make_multilabel_classification(400, 8, n_classes=3, random_state=0)
    model = MLP((8,), random_state=0)
    model.partial_fit(data[0][:40], data[1][:40], classes=[0, 1, 2])
    shares = model.predict_proba(x)
    return float(-np.log(np.where(y == 1, shares, 1 - shares)).mean())


class Refusing(MemoryObjects):
    """A store that takes nothing."""

    def put(self, *_: Any, **__: Any) -> Any:
        raise NotFoundError("no such bucket")


def test_training_goes_on_whatever_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: list[dict[str, Any]] = [
        {"job": "not a job!"},
        {"_store": Refusing()},
        {"save_interval": -1},
        {"validation": 17},
        {"validation": (np.zeros((5, 2)), np.zeros(5))},  # of another width
    ]
    for options in wrong:
        model = SGD(random_state=0)
        with PartialFit(model, **{"job": "j", "out": tmp_path, **options}) as watched:
            for x, y in batches(DIGITS, 3)[:-1]:
                watched.partial_fit(x, y, classes=np.arange(10))
        assert model.t_ == 1 + 3 * 32
    assert "training is not watched" in caplog.text
    assert "capture is switched off after an error in it" in caplog.text


def test_what_the_estimator_raises_goes_through(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = MemoryObjects()
    watched = PartialFit(SGD(), job="case", out="memory", strict=True, _store=store)
    x, y = batches(CANCER, 2)[0]
    watched.partial_fit(x, y, classes=[0, 1])
    x[3, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"), watched:
        watched.partial_fit(x, y)
    seen = list(observations(store))
    assert seen[1].scalars["batch"]["input/0.nonfinite"] == 1
    assert b"failed" in (store.get("jobs/case/end/0000.tw", max_bytes=10**6) or b"")
