"""The folder that stands for /opt/ml: SageMaker's files, in SageMaker's places."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwarden.model import Json

HOST = "algo-1"  # one instance: the only host name there is
OWN_PREFIX = "sagemaker_"  # hyperparameters meant for SageMaker's toolkit, not for the script


class Folders:
    """Paths below one job's base folder, which ``SAGEMAKER_BASE_DIR`` announces."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.code = base / "code"
        self.config = base / "input" / "config"
        self.data = base / "input" / "data"
        self.model = base / "model"
        self.checkpoints = base / "checkpoints"
        self.output = base / "output"
        self.output_data = self.output / "data"
        self.failure = self.output / "failure"
        self.log = base / "job.log"

    def create(self, request: Mapping[str, Json]) -> None:
        """Make the folders and write the configuration files that SageMaker writes."""
        for folder in (self.config, self.data, self.model):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.checkpoints, self.output_data, self.output / "intermediate"):
            folder.mkdir(parents=True, exist_ok=True)
        for name in (channel["ChannelName"] for channel in channels(request)):
            (self.data / name).mkdir(exist_ok=True)
        self._write("hyperparameters.json", request.get("HyperParameters", {}))
        self._write("resourceconfig.json", resource_config(request))
        self._write("inputdataconfig.json", input_data_config(request))
        for key, file in (
            ("DebugHookConfig", "debughookconfig.json"),
            ("CheckpointConfig", "checkpointconfig.json"),
        ):
            if request.get(key):
                self._write(file, request[key])

    def _write(self, name: str, document: Json) -> None:
        (self.config / name).write_text(json.dumps(document, indent=1), encoding="utf-8")


def channels(request: Mapping[str, Json]) -> Sequence[Mapping[str, Json]]:
    """Input channels of a CreateTrainingJob request."""
    return request.get("InputDataConfig") or ()


def resource_config(request: Mapping[str, Json]) -> dict[str, Json]:
    """Content of ``resourceconfig.json``."""
    instance = request["ResourceConfig"].get("InstanceType", "local")
    group = {"instance_group_name": "homogeneousCluster", "instance_type": instance}
    return {
        "current_host": HOST,
        "current_instance_type": instance,
        "current_group_name": group["instance_group_name"],
        "hosts": [HOST],
        "instance_groups": [{**group, "hosts": [HOST]}],
        "network_interface_name": "lo",
    }


def input_data_config(request: Mapping[str, Json]) -> dict[str, Json]:
    """Content of ``inputdataconfig.json``."""
    return {
        channel["ChannelName"]: {
            "TrainingInputMode": channel.get("InputMode", "File"),
            "S3DistributionType": channel["DataSource"]
            .get("S3DataSource", {})
            .get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        for channel in channels(request)
    }


def decoded(value: str) -> Json:
    """Decode a hyperparameter as SageMaker's toolkit does: JSON, or else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def script_hyperparameters(request: Mapping[str, Json]) -> dict[str, Json]:
    """Decoded hyperparameters that belong to the script."""
    raw: Mapping[str, str] = request.get("HyperParameters", {})
    return {k: decoded(v) for k, v in raw.items() if not k.startswith(OWN_PREFIX)}
