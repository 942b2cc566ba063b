"""Rules of the user's own: in a function that may do nothing, known to those that judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App

from infra import config, nag
from infra.stack import TrainwardenStack
from tests.infra.synthesis import FLAGS, ROOT, Synthesis, synthesize

FOLDER = ROOT / "examples" / "custom_rule" / "rules"
JUDGES = ("Evaluator", "Jobs", "Sweeper")
GOOD = (FOLDER / "one_layer_learns.py").read_text("utf-8")


@pytest.fixture(scope="module")
def custom() -> Synthesis:
    return synthesize(custom_rules=str(FOLDER), custom_rules_concurrency="5")


def test_the_function_may_write_its_own_log_and_nothing_else(custom: Synthesis) -> None:
    [log_group] = custom.actions("CustomRules/Handler/Role")["logs:PutLogEvents"]
    assert custom.actions("CustomRules/Handler/Role") == {
        "logs:CreateLogStream": {log_group},
        "logs:PutLogEvents": {log_group},
    }
    assert "CustomRules/Handler/Logs" in log_group
    role = custom.only("AWS::IAM::Role", "CustomRules/Handler/Role")
    assert "ManagedPolicyArns" not in role
    assert "Policies" not in role


def test_the_function_is_small_quick_and_outside_of_any_network(custom: Synthesis) -> None:
    found = custom.only("AWS::Lambda::Function", "CustomRules/Handler/Function")
    assert (found["MemorySize"], found["Timeout"]) == (512, 8)
    assert found["ReservedConcurrentExecutions"] == 5
    assert found.keys().isdisjoint({"VpcConfig", "TracingConfig", "DeadLetterConfig"})
    assert {*found["Environment"]["Variables"]} == {
        "POWERTOOLS_SERVICE_NAME",
        "POWERTOOLS_METRICS_NAMESPACE",
    }


def test_those_that_judge_may_invoke_it_and_no_version_of_it(custom: Synthesis) -> None:
    for judge in JUDGES:
        [resource] = custom.actions(f"{judge}/Handler/Role")["lambda:InvokeFunction"]
        assert resource.startswith("<CustomRules/Handler/Function")
        assert "*" not in resource
    for other in ("Stop/Handler", "Announcer/Handler", "Notifier/Handler", "CustomRules/Handler"):
        assert "lambda:InvokeFunction" not in custom.actions(f"{other}/Role")


def test_those_that_judge_know_its_rules(custom: Synthesis) -> None:
    layer = custom.id_of("AWS::Lambda::LayerVersion", "CustomRules/Known")
    for judge in (*JUDGES, "Stop"):
        found = custom.only("AWS::Lambda::Function", f"{judge}/Handler/Function")
        assert {"Ref": layer} in found["Layers"]
        assert "CUSTOM_RULES_FUNCTION" in found["Environment"]["Variables"]


def test_without_a_folder_there_is_nothing_of_it(stack: Synthesis) -> None:
    assert not any("CustomRules" in path for path in stack.of("AWS::Lambda::Function"))
    for judge in JUDGES:
        assert "lambda:InvokeFunction" not in stack.actions(f"{judge}/Handler/Role")
        found = stack.only("AWS::Lambda::Function", f"{judge}/Handler/Function")
        assert "CUSTOM_RULES_FUNCTION" not in found["Environment"]["Variables"]


def test_no_finding_of_nag_is_open() -> None:
    app = App(context={**FLAGS, "aws:cdk:bundling-stacks": []})
    TrainwardenStack(app, "Trainwarden", config=config.Config(custom_rules=str(FOLDER)))
    nag.check(app)
    app.synth()  # raises on an open finding


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("x = 1\n", "no rule lies in", id="no-rule"),
        pytest.param("import nowhere\n", "No module named 'nowhere'", id="cannot-be-imported"),
        pytest.param("raise SystemExit\n", "ends the process", id="ends-the-process"),
        pytest.param(GOOD.replace("USR901", "NUM001"), "a code like USR901", id="code"),
        pytest.param(
            GOOD.replace('"OneLayerLearns"', '"Overfit"'), "a rule name of its own", id="name"
        ),
        pytest.param(GOOD.replace("return [0, -1]", "return {1: 2}"), "start()", id="state"),
        pytest.param(GOOD.replace('"l2"', '"l3"'), "the name of a statistic", id="statistic"),
        pytest.param(GOOD.replace("frozen=True, ", ""), "frozen=True", id="not-frozen"),
        pytest.param(
            f'{GOOD}\nopen("left-behind", "w").close()\n', "has effects: open", id="writes-a-file"
        ),
        pytest.param(
            f'{GOOD}\nimport subprocess\nsubprocess.run(["true"])\n', "subprocess", id="runs"
        ),
    ],
)
def test_a_wrong_rule_is_told_before_anything_is_deployed(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "rule.py").write_text(text.replace("from __future__ import annotations\n", ""))
    with pytest.raises(config.ContextError) as caught:
        config.from_context({"trainwarden.custom_rules": str(tmp_path)})
    assert said in str(caught.value)
    assert "trainwarden.custom_rules" in str(caught.value)


def test_a_folder_that_is_not_there_is_told() -> None:
    with pytest.raises(config.ContextError, match="expected a folder of modules"):
        config.from_context({"trainwarden.custom_rules": "nowhere"})
