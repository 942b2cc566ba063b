"""Where jobs are looked up: an AWS account, the embedded AWS, or a folder of recorded runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.embedded import launcher
from trainwarden.embedded.settings import KEY
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.hook.config import LOCAL_OUT
from trainwarden.pipeline import judge_all
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import Ledger, ObjectStore

if TYPE_CHECKING:
    import boto3

DEFAULT_STACK = "Trainwarden"


@dataclass(frozen=True)
class Place:
    """A ledger with its objects, and how to say where that is.

    Attributes:
        title: For a person: ``the embedded AWS at http://127.0.0.1:4566``.
        flag: What to append to a command so that it looks at the same place.
        session: boto3 session; None for a folder.
        endpoint: Endpoint of the embedded AWS; None on AWS.
        outputs: Outputs of the stack by name; empty for a folder.
        stack: Name of the CloudFormation stack; empty for a folder.
        refresh: Judges what came since; on AWS the deployed evaluator does.
    """

    title: str
    flag: str
    ledger: Ledger
    objects: ObjectStore
    session: boto3.Session | None = None
    endpoint: str | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    refresh: Callable[[], None] = lambda: None
    stack: str = ""

    def client(self, service: str) -> Any:
        """Make a boto3 client for this place.

        Raises:
            BadInputError: a folder has no AWS services.
        """
        return client(self.session, service, self.endpoint)


def client(session: boto3.Session | None, service: str, endpoint: str | None) -> Any:
    """Make a boto3 client that gives up within seconds instead of minutes."""
    if session is None:
        raise BadInputError("AWS or the embedded AWS", "a folder", "leave --at away")
    from botocore.config import Config

    limits = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 3})
    return session.client(service, endpoint_url=endpoint, config=limits)  # type: ignore[call-overload]


def resolve(at: str | None, *, stack: str | None, region: str | None, profile: str | None) -> Place:
    """Find the place a command should look at.

    ``at`` is ``aws``, ``local`` or a folder; without it the embedded AWS is taken if one runs
    from the current folder, else AWS.

    Raises:
        NotFoundError: no such folder, no such stack, or no embedded AWS.
    """
    stack = stack or os.environ.get("TRAINWARDEN_STACK") or DEFAULT_STACK
    at = at or _usual()
    if at not in {"aws", "local"}:
        return _folder(Path(at))
    session, endpoint = embedded_or_aws(at, region, profile)
    if endpoint is not None:
        return _deployed(session, endpoint, stack, f"the embedded AWS at {endpoint}", "--at local")
    if session.region_name is None:
        raise NotFoundError(f"no AWS region is set: pass --region, or set AWS_REGION{_or_here()}")
    return _deployed(session, None, stack, f"AWS {session.region_name}", "--at aws")


def _or_here() -> str:
    return f"; for runs recorded here: --at {LOCAL_OUT}" if Path(LOCAL_OUT).is_dir() else ""


def _usual() -> str:
    return os.environ.get("TRAINWARDEN_AT") or ("local" if launcher.find(Path.cwd()) else "aws")


def embedded_or_aws(
    at: str | None, region: str | None, profile: str | None
) -> tuple[boto3.Session, str | None]:
    """Return a session and, on the embedded AWS, its endpoint.

    Args:
        at: ``aws`` or ``local``; None takes what commands take without ``--at``.
        region: AWS region; None leaves it to the environment.
        profile: AWS profile; None leaves it to the environment.

    Raises:
        NotFoundError: no embedded AWS, or no such profile.
        BadInputError: anything else than ``aws`` or ``local``.
    """
    import boto3
    from botocore.exceptions import ProfileNotFound

    at = at or ("local" if _usual() == "local" else "aws")
    if at == "local":
        server = launcher.running(Path.cwd())
        return boto3.Session(KEY, KEY, region_name=server.region), server.endpoint
    if at != "aws":
        raise BadInputError("--at aws or --at local", repr(at))
    try:  # boto3 itself reads AWS_DEFAULT_REGION only
        region = region or os.environ.get("AWS_REGION") or None
        return boto3.Session(profile_name=profile, region_name=region), None
    except ProfileNotFound as exc:
        raise NotFoundError(f"{exc}: see `aws configure list-profiles`") from exc


def _folder(root: Path) -> Place:
    if not root.is_dir():
        raise NotFoundError(
            f"there is no folder {root}: give --at aws, --at local, or the folder that "
            "trainwarden.watch(out=...) wrote to"
        )
    objects, ledger = FolderObjects(root), MemoryLedger()

    def refresh() -> None:
        judge_all(objects, ledger)

    refresh()
    return Place(f"the folder {root}", f"--at {root}", ledger, objects, refresh=refresh)


def _deployed(
    session: boto3.Session, endpoint: str | None, stack: str, title: str, flag: str
) -> Place:
    from trainwarden.store.dynamo import DynamoLedger
    from trainwarden.store.s3 import S3Objects

    outputs = stack_outputs(session, endpoint, stack, title)
    return Place(
        title,
        flag,
        DynamoLedger(outputs["TableName"], client(session, "dynamodb", endpoint)),
        S3Objects(outputs["BucketName"], client(session, "s3", endpoint)),
        session,
        endpoint,
        outputs,
        stack=stack,
    )


def stack_outputs(
    session: boto3.Session, endpoint: str | None, stack: str, title: str
) -> Mapping[str, str]:
    """Read the outputs of the deployed stack.

    Raises:
        NotFoundError: no such stack, no credentials, or nobody answers.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found = client(session, "cloudformation", endpoint).describe_stacks(StackName=stack)
    except ClientError as exc:
        if exc.response["Error"]["Code"] != "ValidationError":
            raise NotFoundError(f"cannot look at {title}: {exc}") from exc
        raise NotFoundError(
            f"no stack named {stack} on {title}: deploy it first "
            "(`npx aws-cdk@2 deploy`, or `trainwarden local deploy`), or name yours with --stack"
        ) from exc
    except BotoCoreError as exc:
        raise NotFoundError(f"cannot look at {title}: {exc}") from exc
    outputs = {o["OutputKey"]: o["OutputValue"] for o in found["Stacks"][0].get("Outputs", [])}
    missing = {"TableName", "BucketName"} - outputs.keys()
    if missing:
        status = found["Stacks"][0]["StackStatus"]
        raise NotFoundError(
            f"stack {stack} on {title} is {status} and lacks {', '.join(sorted(missing))}: "
            "deploy it again"
        )
    return outputs
