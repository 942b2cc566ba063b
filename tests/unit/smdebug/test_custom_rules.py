"""Classes written for SageMaker Debugger run unmodified: over a trial, and as rules in the fold."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from tests.unit.rules.runs import Script, matrices
from tests.unit.smdebug.custom_rules import (
    Comparison,
    CustomGradientRule,
    FarBack,
    GrowingGradient,
    Hoarder,
    LearningRateRule,
)
from tests.unit.trial.traces import FOLDER, read
from trainwarden.errors import BadInputError, ConfigError
from trainwarden.model import Finding, Json, Observation, Severity
from trainwarden.rules import parameters
from trainwarden.smdebug.adapter import SmdebugRule, as_rule
from trainwarden.smdebug.exceptions import RuleEvaluationConditionMet
from trainwarden.smdebug.rules import Rule, invoke_rule
from trainwarden.smdebug.trials import create_trial
from trainwarden.trial.observations import observations

Loop = list[Observation]


def ours(cls: type[Rule], **given: Json) -> SmdebugRule:
    made: Any = as_rule(cls)
    found: SmdebugRule = made(**given)
    return found


def fold(rule: SmdebugRule, run: Loop, state: Json = None) -> tuple[Json, list[Finding]]:
    state = rule.start() if state is None else state
    found: list[Finding] = []
    for obs in run:
        state = json.loads(json.dumps(state, allow_nan=False))
        state, new = rule.advance(state, obs)
        found += new
    return state, found


def rates(*values: float) -> Loop:
    script = Script()
    return [
        script.step(i, loss=1.0, scalars={"optimizer": {"lr_0": v}}) for i, v in enumerate(values)
    ]


def gradients(*sizes: float) -> Loop:
    script = Script(*matrices("a.weight"))
    return [script.step(i, {"gradient/a.weight": v}, loss=1.0) for i, v in enumerate(sizes)]


def test_invoke_rule_asks_about_every_step_and_passes_over_what_was_not_saved() -> None:
    rule = CustomGradientRule(create_trial(str(FOLDER / "pt_mlp_healthy")), threshold=0.01)
    train = [0, 5, 12, 17, 24, 29, 36, 41, 48, 53, 60, 65]
    assert invoke_rule(rule) == train
    assert invoke_rule(rule, start_step=6, end_step=18) == [12, 17]
    with pytest.raises(RuleEvaluationConditionMet, match="CustomGradientRule was met at step 5"):
        invoke_rule(rule, start_step=1, raise_eval_cond=True)


def test_in_the_fold_it_fires_where_it_does_over_the_trial() -> None:
    for trace in ("pt_mlp_healthy", "pt_mlp_exploding", "pt_mlp_vanishing"):
        run = list(observations(read(trace)))
        for cls in (CustomGradientRule, GrowingGradient):
            steps = invoke_rule(cls(read(trace)))
            first = [finding.step for finding in fold(as_rule(cls)(), run)[1]][:1]
            assert first == steps[:1]


def test_required_tensors_and_earlier_steps_are_there() -> None:
    rule = ours(GrowingGradient, factor=3.0)
    state, found = fold(rule, gradients(1, 2, 7, 8, 30))
    assert [finding.step for finding in found] == [2, 4]
    assert state["attributes"] == {"seen": {"gradient/a.weight": 4}}
    assert found[0].tensor == "gradient/a.weight"
    assert "GrowingGradient met its condition at step 2" in found[0].message


def test_what_a_rule_counts_in_self_outlives_the_step_and_a_cut() -> None:
    rule = ours(LearningRateRule, patience=3)
    run = rates(0.1, 0.3, 0.3, 0.1, 0.3, 0.3)
    whole, found = fold(rule, run)
    assert [finding.step for finding in found] == [4]
    for cut in range(len(run)):
        state, first = fold(rule, run[:cut])
        again, rest = fold(rule, run[cut:], state)
        assert (again, first + rest) == (whole, found)


def test_what_cannot_be_kept_is_said() -> None:
    with pytest.raises(BadInputError, match=r"self\.kept of Tensor"):
        fold(as_rule(Hoarder)(), rates(0.1))


def test_steps_that_were_not_kept_are_unavailable_and_the_state_stays_small() -> None:
    rule = as_rule(FarBack)()
    state, _ = fold(rule, rates(*[0.1] * 200))
    assert state["attributes"] == {"missed": 200}
    assert len(json.dumps(state)) < 10_000


def test_history_of_many_tensors_is_bounded() -> None:
    script = Script(*matrices(*(f"l{i}.weight" for i in range(80))))
    values = {name: 1.0 for name in script.layout.names if name.startswith("gradient/")}
    state, _ = fold(as_rule(CustomGradientRule)(), [script.step(i, values) for i in range(30)])
    assert len(json.dumps(state)) < 64 * 1024
    assert [one[0] for one in state["past"]] == [28, 29]


def test_arguments_become_parameters() -> None:
    found = as_rule(LearningRateRule, code="CUS901", severity=Severity.ERROR)
    assert [(p.name, p.type, p.default) for p in parameters(found)] == [
        ("limit", "float", 0.25), ("patience", "int", 2),
    ]  # fmt: skip
    meta = found.meta
    assert (meta.code, meta.name, meta.severity) == ("CUS901", "LearningRateRule", Severity.ERROR)
    assert not meta.default


def test_a_rule_about_two_jobs_and_what_is_no_rule_are_refused() -> None:
    with pytest.raises(ConfigError, match="about one job"):
        as_rule(Comparison)
    for other in (Rule, int):
        with pytest.raises(ConfigError, match="derived from"):
            as_rule(other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("rules", "Rule invoke_rule"),
        ("rules.rule", "Rule"),
        ("rules.rule_invoker", "invoke_rule"),
        ("rules.action", "Actions"),
        ("trials", "create_trial"),
        ("trials.utils", "create_trial"),
        ("core.modes", "ModeKeys"),
        ("analysis.utils", "no_refresh parse_bool parse_list_from_str refresh"),
        ("exceptions", "InvalidWorker NoMoreData RuleEvaluationConditionMet StepUnavailable"),
        ("exceptions", "TensorUnavailable TensorUnavailableForStep"),
    ],
)
def test_names_are_where_users_import_them(module: str, names: str) -> None:
    found = importlib.import_module(f"trainwarden.smdebug.{module}")
    assert all(hasattr(found, name) for name in names.split())
