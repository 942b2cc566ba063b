"""Promises that every rule keeps, checked on random runs in which anything may happen."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rules.runs import FACTS, INF, NAN, Script, fold, matrices, tensor
from trainwarden.model import Channels, Finding, Mode, Observation
from trainwarden.rules import build, registry
from trainwarden.rules import names as rule_names
from trainwarden.stats.catalog import Flag

RELU = "activation/relu"
TENSORS = (
    *matrices("a", "b", "c"),
    tensor("scale", "weights", (4,), kind="BatchNorm1d", depth=1),
    tensor("frozen", "weights", depth=1, trainable=False),
    tensor(RELU, "activations", (4,), kind="ReLU", depth=1),
    tensor("input/0", "inputs"),
    tensor("input/1", "inputs", (3, 8, 8)),
    tensor("empty", "weights", (0,)),
)
OTHER: dict[
    str, dict[str, Any]
] = {  # what switches a rule to another meaning, if not meta.sagemaker
    "VanishingGradient": {"threshold": 1e-7},
    "UnchangedTensor": {"collection_names": "weights"},
    "LossNotDecreasing": {"num_steps": 3},
    "Overfit": {"ratio_threshold": 0.1},
    "StalledTrainingRule": {"threshold": 2.0},
    "DeadRelu": {"threshold_inactivity": 1.0, "min_seen": 10},
    "ClassImbalance": {"samples": 20},
    "Confusion": {"samples": 20, "category_no": 4},
    "CheckInputImages": {"saves": 1},
    "NotNormalizedData": {"threshold_samples": 1},
    "NLPSequenceRatio": {"token_values": "0,3"},
    "TokenImbalance": {"samples": 1, "saves": 1},
    "BadLabels": {"samples": 100, "steps": 1, "passes": 2},
    "DistributionShift": {"saves": 3, "patience": 2},
    "ExplodingTensor": {"max_skipped": 2},
    "TensorVariance": {"max_threshold": 4.0, "collection_names": "weights,activations"},
    "AllZero": {"collection_names": "gradients,weights"},
    "LearningRateTooHigh": {"max_ratio": 1e-3, "patience": 1},
    "LearningRateTooLow": {"max_ratio": 10.0, "min_steps": 1, "min_saves": 2},
    "LowPrecision": {"patience": 1, "min_steps": 0},
    "SaturatedActivation": {"share_at_start": 0.1, "min_saves": 1, "min_steps": 0},
    "GradientClipping": {"max_ratio": 2.0, "min_saves": 2, "min_steps": 1},
    "InitialLoss": {"max_ratio": 1.1, "min_steps": 1},
    "ExplodingGradient": {"growth": 2.0},
    "SimilarAcrossRuns": {"other_trial": "another"},
    "EarlyStopping": {"patience": 2},
    "HighLearningRate": {"threshold": 0.15},
    "Overtraining": {"patience": 1},
    "LossSpike": {"first_steps": 2, "patience": 2, "max_spikes": 2},
    "LearningRateSchedule": {"linger": 0.01, "patience": 5},
    "Threshold": {"collection": "weights", "statistic": "l2", "above": 1.0, "window": 3},
}
EVERY: list[tuple[str, dict[str, Any]]] = [
    (name, given_)
    for name, cls in registry().items()
    for given_ in ({}, dict(cls.meta.sagemaker or {}), OTHER.get(name, {}))
    if given_ or cls.meta.default
]
SIDE_TABLES = {
    "label/0": {0: 30, 1: 34},
    "predicted/0": {0: 30, 1: 34},
    "correct/0": {0: 29, 1: 33},
    "confusion/0": {0: 29, 1: 1, 10: 1, 11: 33},
    "input/0": dict.fromkeys(range(40), 9),
}
VALUES = st.sampled_from([0.0, 1.0, 1.0, 1e-9, 1e3, -2.0, NAN, INF, -INF])
FACT = st.sampled_from([0.0, 0.0, 1.0, 1.0, 0.5, 10.0, 1e-9, 1e9, -1.0, NAN, INF, -INF])
TABLE = st.sampled_from(sorted(SIDE_TABLES))
LOSS = st.none() | st.sampled_from([2.3, 2.2, 0.5, 0.0, -1.0, 40.0, NAN, INF, -INF])


@st.composite
def runs(draw: st.DrawFn) -> list[Observation]:
    """Any tensors captured, any values, both modes, gaps, resumes, skipped steps."""
    script, run, step, time = Script(*TENSORS), [], 0, 1e9
    for _ in range(draw(st.integers(0, 12))):
        step = max(0, step + draw(st.sampled_from([1, 1, 10, 10, 40, -5])))
        time += draw(st.sampled_from([0.0, 0.1, 1.0, 5.0, -3.0]))
        names = draw(st.sets(st.sampled_from([t.name for t in TENSORS])))
        counts = draw(st.none() | st.lists(st.integers(0, 64), min_size=4, max_size=4))
        labels = draw(st.none() | st.dictionaries(st.integers(-1, 4), st.integers(1, 60)))
        loss, skipped = draw(LOSS), draw(st.booleans())
        numbers = {"optimizer": {"lr_0": draw(st.sampled_from([0.0, 0.1, 0.2])),
                                 "found_inf": float(skipped)}}  # fmt: skip
        for collection in draw(st.sets(st.sampled_from(sorted(FACTS)))):
            told = draw(st.dictionaries(st.sampled_from(sorted(FACTS[collection])), FACT))
            numbers[collection] = {**told, **numbers.get(collection, {})}
        run.append(
            script.step(
                step,
                {n: draw(VALUES) if n != "empty" else np.empty(0) for n in sorted(names)},
                mode=draw(st.sampled_from([Mode.TRAIN, Mode.TRAIN, Mode.EVAL])),
                time=time,
                loss=loss,
                scalars=numbers,
                channels={} if counts is None else {RELU: Channels(np.array(counts), 64)},
                labels={} if labels is None else {draw(TABLE): labels, "label/0": labels},
                flags=Flag.SKIPPED if skipped else 0,
            )
        )
    return run


def check(finding: Finding, obs: Observation) -> None:
    """A finding is strict JSON, names its tensor and does not come before its first step."""
    json.dumps([finding.value, finding.limit, dict(finding.evidence)], allow_nan=False)
    assert math.isfinite(finding.value)
    assert math.isfinite(finding.limit)
    assert 0 <= finding.confidence <= 1
    assert finding.message
    assert finding.step == obs.step
    scalars = {name for named in obs.scalars.values() for name in named}
    known = {"", *obs.layout.names, *obs.labels, *scalars, "loss"}
    assert finding.tensor in known


# Drawing a run costs more than folding it, so each is folded by every rule.
@settings(deadline=None, max_examples=60)
@given(run=runs(), cut=st.integers(0, 12))
def test_a_split_run_equals_the_whole_run(run: list[Observation], cut: int) -> None:
    for name, given_ in EVERY:
        rule = build(name, given_)
        whole = fold(rule, run)
        first, early = fold(rule, run[:cut])
        last, late = fold(rule, run[cut:], first)
        assert (last, early + late) == whole, (name, given_)


@settings(deadline=None, max_examples=100)
@given(run=runs())
def test_findings_are_strict_json_about_something_that_was_there(run: list[Observation]) -> None:
    for name, given_ in EVERY:
        rule = build(name, given_)
        state = rule.start()
        for obs in run:
            state, found = rule.advance(state, obs)
            for finding in found:
                check(finding, obs)


@pytest.mark.parametrize("name", rule_names())
def test_a_run_without_anything_is_quiet_and_uninspected(name: str) -> None:
    rule = build(name)
    run = [Script().step(i) for i in range(5)]
    assert fold(rule, run)[1] == []
    if name != "StalledTrainingRule":
        assert not any(rule.inspects(obs) for obs in run)


@pytest.fixture(scope="module")
def healthy() -> list[Observation]:
    script, run = Script(*TENSORS), []
    for i in range(200):
        values = dict.fromkeys(("a", "b", "c"), 1.0 + i) | {f"gradient/{n}": 0.1 for n in "abc"}
        run.append(
            script.step(
                i,
                {**values, "scale": 1.0, "frozen": 1.0, "input/0": 0.5},
                loss=2.3 * 0.98**i + 0.1,
                scalars={**FACTS, "window": {**FACTS["window"], "loss_mean": 2.3 * 0.98**i + 0.1}},
                channels={RELU: Channels(np.array([9, 9, 0, 9]), 64)},
                labels=SIDE_TABLES,
            )
        )
        if i % 20 == 19:
            run.append(script.step(i, loss=2.3 * 0.98**i + 0.15, mode=Mode.EVAL))
    return run


@pytest.mark.parametrize("name", rule_names())
def test_a_healthy_run_is_quiet_and_inspected(name: str, healthy: list[Observation]) -> None:
    rule = build(name)
    assert fold(rule, healthy)[1] == []
    assert any(rule.inspects(obs) for obs in healthy)
