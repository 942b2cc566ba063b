from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.wrong_mode import WrongMode

RULE = WrongMode()
SOUND = {
    "batchnorms": 2.0, "batchnorms_in_eval": 0.0, "batchnorms_in_eval_trainable": 0.0,
    "dropouts": 2.0, "dropouts_in_eval": 0.0, "dropout_max": 0.3, "batchnorm_momentum_max": 0.1,
    "validation_in_training_mode": 0.0,
}  # fmt: skip
NORMS = {"batchnorms_in_eval": 2.0, "batchnorms_in_eval_trainable": 2.0}
DROPS = {"dropouts_in_eval": 2.0}
MEAN = tensor("bn.running_mean", "buffers", (4,), kind="BatchNorm1d")
VARIANCE = tensor("bn.running_var", "buffers", (4,), kind="BatchNorm1d")


def run_of(
    loops: Sequence[Mapping[str, float]],
    *,
    whole: float = 1.0,
    every: int = 1,
    statistics: Any = None,
) -> list[Observation]:
    """One dict of deviations from a sound loop a saved step; ``statistics(i)`` of the buffers."""
    script, run = Script(MEAN, VARIANCE), []
    for i, loop in enumerate(loops):
        facts = {"loop": {**SOUND, **loop}, "optimizer": {"train_mode": whole}}
        values = {} if statistics is None else dict(zip(
            ("bn.running_mean", "bn.running_var"), statistics(i), strict=True))  # fmt: skip
        run.append(script.step(i * every, values, scalars=facts))
    return run


def told(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


EVAL = [(2, "eval_mode")]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(run_of([{}] * 9), [], id="sound"),
        pytest.param(run_of([{**NORMS, **DROPS}] * 9, whole=0.0), EVAL, id="left-in-eval"),
        pytest.param(run_of([NORMS] * 9, whole=0.0), EVAL, id="batch-norm-only"),
        pytest.param(run_of([{**DROPS, "batchnorms": 0.0}] * 9, whole=0.0), EVAL,
                     id="dropout-only"),
        pytest.param(run_of([DROPS | {"dropout_max": 0.0}] * 9, whole=0.0), [],
                     id="dropout-that-drops-nothing"),
        pytest.param(run_of([{"batchnorms_in_eval": 2.0, "dropouts": 0.0}] * 9, whole=0.0), [],
                     id="frozen-batch-norm"),
        pytest.param(run_of([{}] * 9, whole=0.0), [], id="a-model-without-modes"),
        pytest.param(run_of([NORMS] * 9), [], id="batch-norm-alone-is-in-eval-on-purpose"),
        pytest.param(run_of([NORMS] * 9, statistics=lambda _: (0.0, 1.0)), EVAL,
                     id="batch-norm-that-has-no-statistics"),
        pytest.param(run_of([NORMS] * 9, statistics=lambda _: (0.2, 1.3)), [],
                     id="batch-norm-with-pre-trained-statistics"),
        pytest.param(run_of([DROPS] * 9), [], id="dropout-off-from-the-start"),
        pytest.param(run_of([*[{}] * 3, *[DROPS] * 9]), [(5, "eval_mode")],
                     id="dropout-off-after-the-first-validation"),
        pytest.param(run_of([{}, NORMS] * 9, whole=0.0), [], id="not-in-a-row"),
        pytest.param(run_of([{"batchnorm_momentum_max": 0.99}] * 9),
                     [(2, "batchnorm_momentum")], id="keras-momentum"),
        pytest.param(run_of([{"batchnorm_momentum_max": 0.99, **NORMS}] * 9), [],
                     id="momentum-of-batch-norm-that-rests"),
        pytest.param(run_of([{"batchnorm_momentum_max": 0.5}] * 9), [], id="a-high-momentum"),
        pytest.param(run_of([{}] * 20, statistics=lambda _: (0.0, 1.0)),
                     [(11, "batchnorm_stale")], id="statistics-at-rest"),
        pytest.param(run_of([{}] * 20, statistics=lambda i: (0.1 * i, 1.0)), [],
                     id="statistics-that-move"),
        pytest.param(run_of([dict.fromkeys(SOUND, NAN)] * 9, whole=NAN), [], id="unknown"),
    ],
)  # fmt: skip
def test_modes(run: list[Observation], expected: list[Any]) -> None:
    assert told(run) == expected


def test_the_same_verdict_at_wider_intervals() -> None:
    assert told(run_of([NORMS] * 9, whole=0.0, every=50)) == [(100, "eval_mode")]
    resting = run_of([{}] * 9, statistics=lambda _: (0.0, 1.0), every=50)
    assert told(resting) == [(150, "batchnorm_stale")]


CHECK = {"validation_in_training_mode": 5.0}
MODELESS = {"batchnorms": 0.0, "dropouts": 0.0}


@pytest.mark.parametrize(
    ("loops", "every", "expected"),
    [
        pytest.param([*[{}] * 9, CHECK] * 3, 1, [19], id="every-tenth-step"),
        pytest.param([CHECK] * 5, 50, [50], id="at-each-saved-step-of-a-wide-interval"),
        pytest.param([CHECK] * 5, 1, [], id="at-each-step-it-belongs-to-the-algorithm"),
        pytest.param([*[CHECK] * 3, *[{}, CHECK] * 9], 1, [], id="even-if-it-pauses-later"),
        pytest.param([CHECK, CHECK, {}, {}, CHECK], 1, [4], id="in-two-parts-and-again"),
        pytest.param([*[{}] * 9, CHECK], 1, [], id="once"),
        pytest.param([{**MODELESS, **c} for c in ({}, CHECK, {}, CHECK)], 1, [],
                     id="a-model-without-modes"),
    ],
)  # fmt: skip
def test_validation_in_training_mode(
    loops: list[Mapping[str, float]], every: int, expected: list[int]
) -> None:
    assert fired(RULE, run_of(loops, every=every)) == expected


def test_one_evaluation_in_eval_mode_answers_for_all() -> None:
    run = run_of([*[{}] * 9, CHECK] * 3)
    assert fired(RULE, [Script().step(0, loss=2.3, mode=Mode.EVAL), *run]) == []


@pytest.mark.parametrize(
    ("momentum", "validation", "fired_at"),
    [
        pytest.param(1e-4, 2.0, [40], id="hardly-anything-absorbed"),
        pytest.param(0.0, 1.1, [10], id="a-momentum-of-0-is-never-right"),
        pytest.param(1e-4, 1.1, [], id="statistics-that-fit-from-before"),
        pytest.param(5e-3, 2.0, [], id="slow-but-absorbed-by-the-second"),
        pytest.param(0.1, 2.0, [], id="the-usual-momentum"),
        pytest.param(1e-4, NAN, [], id="nan"),
    ],
)
def test_slow_statistics_explain_a_poor_validation(
    momentum: float, validation: float, fired_at: list[int]
) -> None:
    loop, run = {**SOUND, "batchnorm_momentum_max": momentum}, []
    for i in range(100):
        run.append(Script().step(i, loss=1.0, scalars={"loop": loop}))
        if i % 20 == 19:
            run.append(Script().step(i + 1, loss=validation, mode=Mode.EVAL))
    assert fired(RULE, run) == fired_at


def test_the_message_counts_modules() -> None:
    (finding,) = fold(RULE, run_of([{**NORMS, **DROPS}] * 5, whole=0.0))[1]
    assert "2 of 2 batch normalisation and 2 of 2 dropout layers" in finding.message
    assert finding.remedies[0].startswith("Call model.train()")
