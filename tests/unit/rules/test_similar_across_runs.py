from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fold, matrices, tensor
from trainwarden.engine import RuleSpec, replay
from trainwarden.model import Finding, Mode, Observation, Status
from trainwarden.rules.similar_across_runs import SimilarAcrossRuns, paired

RULE = SimilarAcrossRuns(other_trial="other")
TENSORS = (*matrices("a", "b"), tensor("input/0", "inputs"))
NOISE = np.random.default_rng(0).standard_normal((4, 4))


def run_of(
    steps: Sequence[int], changes: Mapping[int, Mapping[str, float]] | None = None
) -> list[Observation]:
    """Weights that move alike; ``changes`` adds to a tensor from a step on."""
    script, run = Script(*TENSORS), []
    for step in steps:
        values = {t.name: NOISE + step for t in TENSORS}
        for since, added in (changes or {}).items():
            for name, by in added.items() if step >= since else ():
                values[name] = values[name] * (1 + by)
        run.append(script.step(step, values, loss=2.3 - 0.01 * step))
    return run


def compared(
    rule: SimilarAcrossRuns, run: Sequence[Observation], other: Sequence[Observation]
) -> list[Finding]:
    return fold(rule, list(paired(run, {"other": other})))[1]


def test_the_same_run_is_the_same() -> None:
    run = list(paired(run_of(range(5)), {"other": run_of(range(5))}))
    assert fold(RULE, run)[1] == []
    assert all(RULE.inspects(obs) for obs in run)


def test_the_first_difference_is_told_once_with_the_first_tensor_of_the_model() -> None:
    changed = run_of(range(9), {3: {"b": 1e-6, "gradient/a": 1e-6}, 5: {"input/0": 1.0}})
    (finding,) = compared(RULE, changed, run_of(range(9)))
    assert (finding.step, finding.first_step, finding.tensor) == (3, 3, "gradient/a")
    assert finding.evidence == {"compared": 6, "differ": ["gradient/a", "b"], "count": 2}
    assert "2 of 6 tensors differ from those of other" in finding.message


def test_inputs_come_first() -> None:
    changed = run_of(range(3), {1: {"a": 1e-3, "input/0": 1e-3}})
    assert [f.tensor for f in compared(RULE, changed, run_of(range(3)))] == ["input/0"]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        pytest.param(RULE, [2], id="bit-by-bit"),
        pytest.param(SimilarAcrossRuns(other_trial="other", rtol=1e-3), [], id="within-rtol"),
        pytest.param(SimilarAcrossRuns(other_trial="other", rtol=1e-6), [2], id="beyond-rtol"),
        pytest.param(
            SimilarAcrossRuns(other_trial="other", collection_names=("gradients",)), [], id="others"
        ),
        pytest.param(SimilarAcrossRuns(other_trial="other", tensor_regex=("a$",)), [2], id="regex"),
        pytest.param(SimilarAcrossRuns(other_trial="another"), [], id="a-run-that-is-not-there"),
    ],
)
def test_tolerance_and_selection(rule: SimilarAcrossRuns, told: list[int]) -> None:
    changed = run_of(range(4), {2: {"a": 1e-4}})
    assert [f.step for f in compared(rule, changed, run_of(range(4)))] == told


def test_only_steps_that_both_saved_are_compared() -> None:
    change = {3: {"a": 1e-4}}
    assert [f.step for f in compared(RULE, run_of(range(8), change), run_of([0, 2, 5, 7]))] == [5]
    other = [Script(*TENSORS).step(5, dict.fromkeys("ab", 9.0), mode=Mode.EVAL)]
    assert compared(RULE, run_of(range(8), change), other) == []


def test_losses_are_compared_and_nan_is_nan() -> None:
    script = Script()
    mine = [script.step(i, loss=v) for i, v in enumerate([1.0, NAN, 0.5])]
    assert compared(RULE, mine, [script.step(i, loss=v) for i, v in enumerate([1.0, NAN, 0.5])]) \
        == []  # fmt: skip
    other = [script.step(i, loss=v) for i, v in enumerate([1.0, NAN, 0.6])]
    assert [(f.step, f.tensor) for f in compared(RULE, mine, other)] == [(2, "loss")]


def test_runs_that_are_meant_to_differ() -> None:
    rule = SimilarAcrossRuns(other_trial="other", expect_difference=True)
    (finding,) = compared(rule, run_of(range(9)), run_of(range(9)))
    assert (finding.step, finding.first_step) == (2, 0)
    assert compared(rule, run_of(range(9), {0: {"a": 0.1}}), run_of(range(9))) == []


def test_nothing_in_common_is_not_inspected() -> None:
    spec = RuleSpec("S", "SimilarAcrossRuns", {"other_trial": "other"})
    (verdict,) = replay([spec], run_of(range(3))).changed
    assert verdict.status is Status.NO_ISSUES_FOUND
    assert not verdict.evaluated
    (verdict,) = replay([spec], paired(run_of(range(3)), {"other": run_of(range(3))})).changed
    assert verdict.evaluated
