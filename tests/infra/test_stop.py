from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.states import Task, TaskError, Walk
from tests.infra.synthesis import Synthesis, listed, synthesize

ROLE = "Stop/Role"
EVENT = {"detail": {"data": {"job": "resnet-7", "rule": "VanishingGradient"}}}
ALLOWED = {"allowed": True, "dry_run": False, "reason": "the job allows it"}
NOT_FOUND = TaskError("SageMaker.SageMakerException", "The request was rejected because …")


def definition(stack: Synthesis) -> dict[str, Any]:
    machine = stack.only("AWS::StepFunctions::StateMachine", "Stop")
    found: dict[str, Any] = json.loads(stack.readable(machine["DefinitionString"]))
    return found


def fails(error: TaskError) -> Task:
    def task(_: Any) -> Any:
        raise error

    return task


class Execution:
    """One execution of the machine that is deployed, against a pretended SageMaker."""

    def __init__(
        self,
        stack: Synthesis,
        *,
        decision: Any,
        statuses: Callable[[int], str] = lambda _look: "Stopping",
        stop: Task = lambda _: {},
    ) -> None:
        self.stopped: list[Any] = []
        self.recorded: list[Any] = []
        self.asked: list[Any] = []
        self.looks = 0
        self._statuses, self._stop, self._decision = statuses, stop, decision
        self.walk = Walk(
            definition(stack),
            {
                "Authorize": self._authorize,
                "StopTrainingJob": self._stop_training_job,
                "DescribeTrainingJob": self._describe,
                "Record": self._record,
                "Ask": self._ask,
            },
        )
        self.output = self.walk.run(EVENT)

    @property
    def result(self) -> Any:
        (one,) = self.recorded
        return one["result"]

    def _authorize(self, arguments: Any) -> Any:
        assert arguments["Payload"] == {
            "operation": "authorize",
            "job": "resnet-7",
            "rule": "VanishingGradient",
        }
        if isinstance(self._decision, TaskError):
            raise self._decision
        return {"Payload": self._decision}

    def _ask(self, arguments: Any) -> Any:
        self.asked.append(arguments["Payload"])
        return {"Payload": {"outcome": "asked", "reason": "the training loop was asked"}}

    def _stop_training_job(self, arguments: Any) -> Any:
        self.stopped.append(arguments)
        return self._stop(arguments)

    def _describe(self, arguments: Any) -> Any:
        assert arguments == {"TrainingJobName": "resnet-7"}
        self.looks += 1
        return {"TrainingJobStatus": self._statuses(self.looks)}

    def _record(self, arguments: Any) -> Any:
        self.recorded.append(arguments["Payload"])
        return {"Payload": arguments["Payload"]["result"]}


def test_an_allowed_job_is_stopped_by_its_exact_name_and_that_is_recorded(
    stack: Synthesis,
) -> None:
    done = Execution(stack, decision=ALLOWED)
    assert done.stopped == [{"TrainingJobName": "resnet-7"}]
    assert done.recorded == [
        {
            "operation": "record",
            "kind": "stop",
            "job": "resnet-7",
            "rule": "VanishingGradient",
            "result": {"outcome": "stopped", "reason": "SageMaker says: Stopping"},
        }
    ]


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        ({"allowed": False, "dry_run": False, "reason": "no tag"}, "refused"),
        ({"allowed": False, "dry_run": True, "reason": "no tag"}, "refused"),
        ({"allowed": True, "dry_run": True, "reason": "dry run"}, "dry_run"),
        ({"allowed": "true", "dry_run": False, "reason": "no boolean"}, "refused"),
        ({"allowed": True, "reason": "an answer without dry_run"}, "refused"),
        ({}, "refused"),
    ],
)
def test_anything_but_a_plain_yes_stops_nothing_and_is_recorded(
    stack: Synthesis, decision: dict[str, Any], outcome: str
) -> None:
    done = Execution(stack, decision=decision)
    assert done.stopped == []
    assert done.result["outcome"] == outcome
    assert done.result.get("reason") == decision.get("reason")


def test_a_loop_outside_sagemaker_is_asked_and_sagemaker_is_not(stack: Synthesis) -> None:
    done = Execution(stack, decision={**ALLOWED, "how": "control"})
    assert (done.stopped, done.looks) == ([], 0)
    assert done.asked == [
        {"operation": "ask", "job": "resnet-7", "rule": "VanishingGradient"},
    ]
    assert done.result == {"outcome": "asked", "reason": "the training loop was asked"}


@pytest.mark.parametrize("flag", [{"allowed": False}, {"dry_run": True}])
def test_a_loop_outside_sagemaker_is_not_asked_without_a_plain_yes(
    stack: Synthesis, flag: dict[str, bool]
) -> None:
    done = Execution(stack, decision={**ALLOWED, "how": "control", **flag})
    assert (done.asked, done.stopped) == ([], [])
    assert done.result["outcome"] in {"refused", "dry_run"}


def test_the_function_may_write_control_documents_and_nothing_else_of_a_job(
    stack: Synthesis,
) -> None:
    (written,) = stack.actions("Stop/Handler")["s3:PutObject"]
    assert written.endswith("/jobs/*/control.json")


def test_a_job_that_takes_its_time_is_looked_at_until_it_ends(stack: Synthesis) -> None:
    done = Execution(
        stack, decision=ALLOWED, statuses=lambda look: "InProgress" if look < 4 else "Stopped"
    )
    assert done.looks == 4
    assert done.result == {"outcome": "stopped", "reason": "SageMaker says: Stopped"}


def test_a_job_that_goes_on_is_recorded_as_not_stopped_after_six_looks(stack: Synthesis) -> None:
    done = Execution(stack, decision=ALLOWED, statuses=lambda _: "InProgress")
    assert done.looks == 6
    assert done.result["outcome"] == "failed"
    assert "the job goes on" in done.result["reason"]


def test_a_refused_stop_is_no_failure_if_the_job_had_ended(stack: Synthesis) -> None:
    done = Execution(stack, decision=ALLOWED, stop=fails(NOT_FOUND), statuses=lambda _: "Completed")
    assert done.result == {
        "outcome": "refused",
        "reason": "the job had ended by itself: Completed",
    }


def test_a_denied_stop_is_recorded_with_what_sagemaker_said(stack: Synthesis) -> None:
    denied = TaskError("SageMaker.SageMakerException", "explicit deny")
    done = Execution(stack, decision=ALLOWED, stop=fails(denied), statuses=lambda _: "InProgress")
    assert done.result == {
        "outcome": "failed",
        "reason": "SageMaker.SageMakerException: explicit deny",
    }


def test_a_failed_authorization_stops_nothing_and_is_recorded(stack: Synthesis) -> None:
    done = Execution(stack, decision=TaskError("NotFoundError", "no job resnet-7 in the ledger"))
    assert done.stopped == []
    assert done.result == {
        "outcome": "failed",
        "reason": "NotFoundError: no job resnet-7 in the ledger",
    }


def test_everything_that_may_be_throttled_is_tried_again(
    stack: Synthesis,
) -> None:
    states = definition(stack)["States"]
    tried_again = {name for name, state in states.items() if "Retry" in state}
    assert tried_again == {name for name, state in states.items() if state["Type"] == "Task"}
    assert len(tried_again) == 5


def test_the_machine_speaks_to_sagemaker_itself(stack: Synthesis) -> None:
    states = definition(stack)["States"]
    assert states["StopTrainingJob"]["Resource"].endswith(":aws-sdk:sagemaker:stopTrainingJob")
    assert states["DescribeTrainingJob"]["Resource"].endswith("sagemaker:describeTrainingJob")
    assert definition(stack)["QueryLanguage"] == "JSONata"


def test_only_a_job_with_the_tag_can_be_stopped_whatever_the_function_says(
    stack: Synthesis,
) -> None:
    (deny,) = (s for s in stack.statements(ROLE) if s["Effect"] == "Deny")
    assert deny["Action"] == "sagemaker:StopTrainingJob"
    assert deny["Resource"] == "*"
    # StringNotEquals also holds where there is no such tag.
    assert deny["Condition"] == {"StringNotEquals": {"aws:ResourceTag/trainwarden:stop": "allow"}}


def test_a_dry_run_is_denied_every_stop() -> None:
    found = synthesize(dry_run="true")
    (deny,) = (s for s in found.statements(ROLE) if s["Effect"] == "Deny")
    assert (deny["Action"], deny["Resource"]) == ("sagemaker:StopTrainingJob", "*")
    assert "Condition" not in deny


def test_the_machine_may_stop_training_jobs_and_ask_its_function_nothing_else(
    stack: Synthesis,
) -> None:
    allowed = stack.actions(ROLE)
    jobs = "arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:training-job/*"
    assert allowed["sagemaker:stopTrainingJob"] == {jobs}
    assert allowed["sagemaker:describeTrainingJob"] == {jobs}
    assert allowed["lambda:InvokeFunction"] == {
        "<Stop/Handler/Function>",
        "<Stop/Handler/Function>:*",
    }
    services = {action.split(":")[0] for action in allowed}
    assert services == {"sagemaker", "lambda", "logs", "xray"}


def test_nobody_else_in_the_stack_may_stop_a_job(stack: Synthesis) -> None:
    able = {
        path
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        for path, policy in stack.of(kind).items()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if any("stoptrainingjob" in a.lower() for a in listed(statement["Action"]))
    }
    assert able == {"Stop/Role/DefaultPolicy/Resource"}


def test_only_a_verdict_that_asks_for_it_starts_the_machine(stack: Synthesis) -> None:
    rule = stack.only("AWS::Events::Rule", "Stop/Requested")
    assert rule["EventPattern"] == {
        "source": ["trainwarden"],
        "detail-type": ["Verdict Changed"],
        "detail": {"data": {"stop_requested": [True]}},
    }
    assert rule["EventBusName"] == {"Ref": stack.id_of("AWS::Events::EventBus", "Bus")}
    (target,) = rule["Targets"]
    assert target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0] == stack.id_of(
        "AWS::SQS::Queue", "Stop/Handler/DeadLetters"
    )
    assert "Input" not in target
    assert "InputTransformer" not in target


def test_executions_are_logged_and_traced(stack: Synthesis) -> None:
    machine = stack.only("AWS::StepFunctions::StateMachine", "Stop")
    assert machine["TracingConfiguration"] == {"Enabled": True}
    assert machine["LoggingConfiguration"]["Level"] == "ALL"
