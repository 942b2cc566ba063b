"""Step Functions: the ``aws-sdk:sagemaker`` integration, and the role an execution runs as."""

from __future__ import annotations

from ministack.services import stepfunctions

from trainwarden.embedded.extensions import caller
from trainwarden.embedded.settings import ServerSettings

# Step Functions names errors after the Java SDK's exception classes; codes without a class of
# their own arrive as the service's base exception.
ERRORS = {
    "ResourceInUse": "ResourceInUseException",
    "ResourceLimitExceeded": "ResourceLimitExceededException",
    "ResourceNotFound": "ResourceNotFoundException",
    "ValidationException": "SageMakerException",
    "AccessDeniedException": "SageMakerException",
    "SerializationException": "SageMakerException",
    "UnknownOperationException": "SageMakerException",
}


def install(_settings: ServerSettings) -> None:
    """Route the integration, and remember each execution's role while it runs."""
    stepfunctions._AWS_SDK_SERVICE_MAP["sagemaker"] = {
        "target_prefix": "SageMaker",
        "protocol": "json",
        "service_key": "sagemaker",
    }
    stepfunctions._AWS_SDK_ERROR_PREFIX["sagemaker"] = "SageMaker"
    stepfunctions._AWS_SDK_ERROR_CODE_OVERRIDES["sagemaker"] = ERRORS
    run = stepfunctions._run_execution

    def run_as_role(execution_arn: str) -> None:
        execution = stepfunctions._executions.get(execution_arn) or {}
        machine = stepfunctions._state_machines.get(execution.get("stateMachineArn"), {})
        token = caller.ROLE.set(machine.get("roleArn", ""))
        try:
            run(execution_arn)
        finally:
            caller.ROLE.reset(token)

    stepfunctions._run_execution = run_as_role
