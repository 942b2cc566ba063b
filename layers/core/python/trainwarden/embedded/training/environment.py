"""The environment variables a training script finds on SageMaker."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwarden.embedded.clients import ISOLATION, client
from trainwarden.embedded.training.folders import (
    HOST,
    Folders,
    channels,
    input_data_config,
    resource_config,
    script_hyperparameters,
)
from trainwarden.model import Json

# The server's own settings are no business of a script's.
_SERVER_ONLY = ("GATEWAY_PORT", "BIND_HOST", "DOCKER_HOST", "S3_DATA_DIR", "STATE_DIR")
_SERVER_PREFIXES = ("AWS_", "MINISTACK_", "LAMBDA_", "SM_", "TRAINWARDEN_")


@dataclass(frozen=True)
class Cloud:
    """Where a script finds AWS: endpoint URL, region, account."""

    endpoint: str
    region: str
    account: str

    def client(self, service: str) -> Any:
        """Return a boto3 client for the account."""
        return client(service, endpoint=self.endpoint, region=self.region, key=self.account)

    def variables(self) -> dict[str, str]:
        """Return what AWS's SDKs read; the emulator tells accounts by the key."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.account,
            "AWS_SECRET_ACCESS_KEY": self.account,
            **ISOLATION,
        }


def arguments(request: Mapping[str, Json]) -> list[str]:
    """Hyperparameters as the command line that SageMaker's toolkit makes of them."""
    flat: list[str] = []
    for name, value in sorted(script_hyperparameters(request).items()):
        text = value if isinstance(value, str) else json.dumps(value)
        flat += [f"-{name}" if len(name) == 1 else f"--{name}", text]
    return flat


def variables(
    request: Mapping[str, Json], arn: str, folders: Folders, program: str, cloud: Cloud
) -> dict[str, str]:
    """All environment variables of the script, inherited ones included."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _SERVER_ONLY and not name.startswith(_SERVER_PREFIXES)
    }
    return {
        **inherited,
        **cloud.variables(),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folders.code), _python_path()))),
        "TRAINING_JOB_NAME": request["TrainingJobName"],
        "TRAINING_JOB_ARN": arn,
        "SAGEMAKER_BASE_DIR": str(folders.base),
        **_toolkit(request, folders, program),
        **request.get("Environment", {}),
    }


def _python_path() -> str:
    return os.environ.get("PYTHONPATH", "")


def _toolkit(request: Mapping[str, Json], folders: Folders, program: str) -> dict[str, str]:
    """SM_* variables, documented with SageMaker's training toolkit."""
    own = script_hyperparameters(request)
    names = sorted(channel["ChannelName"] for channel in channels(request))
    resources = resource_config(request)
    text = {
        "MODEL_DIR": str(folders.model),
        "INPUT_DIR": str(folders.base / "input"),
        "INPUT_CONFIG_DIR": str(folders.config),
        "OUTPUT_DIR": str(folders.output),
        "OUTPUT_DATA_DIR": str(folders.output_data),
        "OUTPUT_INTERMEDIATE_DIR": str(folders.output / "intermediate"),
        "CURRENT_HOST": HOST,
        "CURRENT_INSTANCE_TYPE": resources["current_instance_type"],
        "NETWORK_INTERFACE_NAME": resources["network_interface_name"],
        "NUM_CPUS": str(os.cpu_count() or 1),
        "NUM_GPUS": "0",
        "LOG_LEVEL": "20",
        "MODULE_DIR": str(folders.code),
        "MODULE_NAME": program.removesuffix(".py"),
        "USER_ENTRY_POINT": program,
        **{f"CHANNEL_{name.upper()}": str(folders.data / name) for name in names},
    }
    documents: dict[str, Json] = {
        "HOSTS": [HOST],
        "HPS": own,
        "CHANNELS": names,
        "USER_ARGS": arguments(request),
        "RESOURCE_CONFIG": resources,
        "INPUT_DATA_CONFIG": input_data_config(request),
        "TRAINING_ENV": {"job_name": request["TrainingJobName"], "hyperparameters": own},
    }
    documents |= {f"HP_{k.upper()}": v for k, v in own.items() if not isinstance(v, str)}
    text |= {f"HP_{k.upper()}": v for k, v in own.items() if isinstance(v, str)}
    return {f"SM_{k}": v for k, v in text.items()} | {
        f"SM_{k}": json.dumps(v) for k, v in documents.items()
    }
