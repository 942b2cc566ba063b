"""What SageMaker copies into the container before a job and out of it afterwards."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from trainwarden.embedded.training.folders import Folders, channels, decoded
from trainwarden.errors import BadInputError
from trainwarden.model import Json

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PROGRAM = "sagemaker_program"
SUBMIT_DIRECTORY = "sagemaker_submit_directory"


def fetch_code(request: Mapping[str, Json], folders: Folders, s3: S3Client) -> str:
    """Put the script into ``folders.code`` and return its file name.

    The script is named by hyperparameters, as SageMaker's SDK does: ``sagemaker_program`` and
    ``sagemaker_submit_directory``, a folder of this machine or an ``s3://….tar.gz``.

    Raises:
        BadInputError: no script is named, or it is not there.
    """
    hyperparameters = request.get("HyperParameters", {})
    program = str(decoded(hyperparameters.get(PROGRAM, "")))
    source = str(decoded(hyperparameters.get(SUBMIT_DIRECTORY, "")))
    if not program or not source:
        raise BadInputError(
            f"the hyperparameters {PROGRAM} and {SUBMIT_DIRECTORY}",
            f"{PROGRAM}={program!r}, {SUBMIT_DIRECTORY}={source!r}",
            "embedded jobs run a script, not an image: name it, or use `trainwarden local train`",
        )
    if source.startswith("s3://"):
        folders.code.mkdir(exist_ok=True)
        _unpack(source, folders.code, s3)
    else:
        local = Path(source.removeprefix("file://")).absolute()
        folders.code.symlink_to(local, target_is_directory=True)
    if not (folders.code / program).is_file():
        raise BadInputError(f"{program} in {source}", "no such file")
    return program


def fetch_data(request: Mapping[str, Json], folders: Folders, s3: S3Client) -> None:
    """Download every S3 channel into its folder below ``folders.data``.

    Raises:
        BadInputError: a channel that is not in S3, or not there.
    """
    for channel in channels(request):
        uri = channel["DataSource"].get("S3DataSource", {}).get("S3Uri", "")
        if not uri.startswith("s3://"):
            raise BadInputError(f"an S3 source for channel {channel['ChannelName']}", repr(uri))
        bucket, prefix = split(uri)
        target = folders.data / channel["ChannelName"]
        try:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
            for key in keys:
                _download(s3, bucket, key, target / _below(key, prefix))
        except ClientError as exc:
            raise BadInputError(f"data below {uri}", str(exc)) from exc
        if not keys:
            raise BadInputError(f"data below {uri}", "no S3 objects there")


def upload_results(request: Mapping[str, Json], folders: Folders, s3: S3Client) -> str:
    """Upload what the script left, and return the S3 URI of the model, empty if there is none.

    Raises:
        BadInputError: the bucket cannot be written.
    """
    place = (
        f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}"
    )
    model = f"{place}/output/model.tar.gz"
    has_model = _upload_archive(folders.model, model, s3)
    _upload_archive(folders.output_data, f"{place}/output/output.tar.gz", s3)
    checkpoints = request.get("CheckpointConfig", {}).get("S3Uri", "")
    if checkpoints:
        bucket, prefix = split(checkpoints)
        for file in (p for p in sorted(folders.checkpoints.rglob("*")) if p.is_file()):
            name = file.relative_to(folders.checkpoints).as_posix()
            _upload(s3, file, bucket, f"{prefix.rstrip('/')}/{name}".lstrip("/"))
    return model if has_model else ""


def split(uri: str) -> tuple[str, str]:
    """Take ``s3://bucket/key`` apart."""
    parts = urlsplit(uri)
    return parts.netloc, parts.path.lstrip("/")


def _below(key: str, prefix: str) -> str:
    if key == prefix:
        return PurePosixPath(key).name
    # SageMaker keeps the path below the prefix's last slash.
    name = PurePosixPath(
        key[prefix.rfind("/") + 1 :] if not prefix.endswith("/") else key[len(prefix) :]
    )
    if name.is_absolute() or ".." in name.parts:
        raise BadInputError("a key that stays below its prefix", repr(key))
    return str(name)


def _download(s3: S3Client, bucket: str, key: str, target: Path) -> None:
    if key.endswith("/"):  # a folder marker of the S3 console
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    s3.download_file(bucket, key, str(target))


def _unpack(uri: str, target: Path, s3: S3Client) -> None:
    bucket, key = split(uri)
    with tempfile.TemporaryFile() as archive:
        try:
            s3.download_fileobj(bucket, key, archive)
        except ClientError as exc:
            raise BadInputError(f"an archive at {uri}", str(exc)) from exc
        archive.seek(0)
        try:
            with tarfile.open(fileobj=archive, mode="r:gz") as tar:
                tar.extractall(target, filter="data")
        except tarfile.TarError as exc:
            raise BadInputError(f"a .tar.gz at {uri}", str(exc)) from exc


def _upload_archive(folder: Path, uri: str, s3: S3Client) -> bool:
    if not any(folder.iterdir()):
        return False
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as archive:
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            tar.add(folder, arcname=".")
        archive.flush()
        _upload(s3, Path(archive.name), *split(uri))
    return True


def _upload(s3: S3Client, file: Path, bucket: str, key: str) -> None:
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=file.read_bytes())
    except ClientError as exc:
        raise BadInputError(f"a writable s3://{bucket}/{key}", str(exc)) from exc
