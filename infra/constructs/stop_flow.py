"""The states of stopping a job: authorize, stop, confirm, record.

Authorize ─▶ allowed? ─yes─▶ StopTrainingJob ─▶ Describe ─▶ ending? ─yes─▶ Stopping ─┐
              │    │no                             ▲           │not yet              ├─▶ Record
    (outside  │    ▼                               └── Wait ◀──┤                     │
   SageMaker) │ Refused ───────────────────────────────────────┼─────────────────────┤
              └─▶ Ask ─────────────────────────────────────────┼─────────────────────┤
                                    (after six looks) NotStopped ◀ any error ────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

LOOKS = 6  # at the job after StopTrainingJob
PAUSE = Duration.seconds(5)  # between them
ERROR = "{% $states.errorOutput.Error & ': ' & $states.errorOutput.Cause %}"
JOB = {"TrainingJobName": "{% $job %}"}


class StopFlow(Construct):
    """Builds the states; variables hold job, rule, decision, status, looks and the last error.

    Attributes:
        start: The first state; takes a whole ``Verdict Changed`` event.
    """

    def __init__(
        self, scope: Construct, id_: str, *, stopper: lambda_.IFunction, training_jobs: str
    ) -> None:
        super().__init__(scope, id_)
        self._stopper, self._training_jobs = stopper, training_jobs
        self._record = self._ask(
            "Record", {"operation": "record", "kind": "stop", "result": "{% $states.input %}"}
        )
        self._gave_up = self._outcome("NotStopped", "failed", "$error")
        self.start = self._authorize()
        self.start.next(self._allowed(self._stop(self._confirm())))

    def _authorize(self) -> tasks.LambdaInvoke:
        detail = "$states.input.detail.data"
        state = tasks.LambdaInvoke.jsonata(
            self,
            "Authorize",
            state_name="Authorize",
            lambda_function=self._stopper,
            payload=sfn.TaskInput.from_object(
                {
                    "operation": "authorize",
                    "job": f"{{% {detail}.job %}}",
                    "rule": f"{{% {detail}.rule %}}",
                }
            ),
            assign={
                "job": f"{{% {detail}.job %}}",
                "rule": f"{{% {detail}.rule %}}",
                "decision": "{% $states.result.Payload %}",
                "looks": 0,
                "error": "SageMaker took the request, but the job goes on",
            },
        )
        _retry(state)
        state.add_catch(
            self._gave_up,
            assign={
                "job": f"{{% {detail}.job %}}",
                "rule": f"{{% {detail}.rule %}}",
                "error": ERROR,
            },
        )
        return state

    def _allowed(self, stop: sfn.IChainable) -> sfn.Choice:
        may = "{% $decision.allowed = true and $decision.dry_run = false %}"
        kind = "$decision.allowed and $decision.dry_run ? 'dry_run' : 'refused'"
        refused = self._outcome("Refused", f"{{% {kind} %}}", "$decision.reason")
        ask = self._ask("Ask", {"operation": "ask"})
        ask.add_catch(self._gave_up, assign={"error": ERROR})
        ask.next(self._record)
        choice = sfn.Choice.jsonata(self, "Allowed", state_name="Allowed?")
        elsewhere = may.replace(" %}", " and $decision.how = 'control' %}")
        choice.when(sfn.Condition.jsonata(elsewhere), ask)
        return choice.when(sfn.Condition.jsonata(may), stop).otherwise(refused)

    def _stop(self, confirm: sfn.IChainable) -> tasks.CallAwsService:
        """An error here may mean that the job ended a moment ago: looking at it decides."""
        state = self._sagemaker("StopTrainingJob", "stopTrainingJob")
        _retry(state)  # to ask twice does no harm
        state.add_catch(confirm, assign={"error": ERROR})
        state.next(confirm)
        return state

    def _confirm(self) -> tasks.CallAwsService:
        look = self._sagemaker(
            "DescribeTrainingJob",
            "describeTrainingJob",
            assign={
                "status": "{% $states.result.TrainingJobStatus %}",
                "looks": "{% $looks + 1 %}",
            },
        )
        _retry(look)
        look.add_catch(self._gave_up, assign={"error": ERROR})
        stopping = self._outcome("Stopping", "stopped", "'SageMaker says: ' & $status")
        ended = self._outcome("Ended", "refused", "'the job had ended by itself: ' & $status")
        wait = sfn.Wait.jsonata(self, "Wait", state_name="Wait", time=sfn.WaitTime.duration(PAUSE))
        choice = sfn.Choice.jsonata(self, "Ending", state_name="Ending?")
        choice.when(sfn.Condition.jsonata("{% $status in ['Stopping', 'Stopped'] %}"), stopping)
        choice.when(sfn.Condition.jsonata("{% $status in ['Completed', 'Failed'] %}"), ended)
        choice.when(sfn.Condition.jsonata(f"{{% $looks < {LOOKS} %}}"), wait)
        look.next(choice.otherwise(self._gave_up))
        wait.next(look)
        return look

    def _ask(self, name: str, payload: Mapping[str, Any]) -> tasks.LambdaInvoke:
        state = tasks.LambdaInvoke.jsonata(
            self,
            name,
            state_name=name,
            lambda_function=self._stopper,
            payload=sfn.TaskInput.from_object(
                {**payload, "job": "{% $job %}", "rule": "{% $rule %}"}
            ),
            outputs="{% $states.result.Payload %}",
        )
        _retry(state)
        return state

    def _sagemaker(
        self, name: str, action: str, assign: Mapping[str, Any] | None = None
    ) -> tasks.CallAwsService:
        return tasks.CallAwsService.jsonata(
            self,
            name,
            state_name=name,
            service="sagemaker",
            action=action,
            parameters=JOB,
            iam_resources=[self._training_jobs],
            assign=assign,
        )

    def _outcome(self, name: str, outcome: str, reason: str) -> sfn.Pass:
        """End with what is recorded: ``outcome`` (a word or an expression) and a reason."""
        outputs = {"outcome": outcome, "reason": f"{{% {reason} %}}"}
        state = sfn.Pass.jsonata(self, name, state_name=name, outputs=outputs)
        state.next(self._record)
        return state


def _retry(state: sfn.TaskStateBase) -> None:
    state.add_retry(max_attempts=3, interval=Duration.seconds(2), backoff_rate=2)
