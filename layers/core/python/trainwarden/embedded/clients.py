"""AWS clients that talk to the embedded AWS and to nothing else, whatever the user has set up."""

from __future__ import annotations

import os
from typing import Any

# No profile, no files: a user's settings for the real AWS must not reach the embedded one.
_NOTHING_OF_THE_USER = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
# The same for programs that are started: AWS's SDKs and tools in any language read these.
ISOLATION = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def client(service: str, *, endpoint: str, region: str, key: str, **config: Any) -> Any:
    """Return a boto3 client; ``key`` is id and secret alike, ``config`` is botocore's."""
    import boto3
    import botocore.session
    from botocore.config import Config

    session = boto3.Session(
        aws_access_key_id=key,
        aws_secret_access_key=key,
        region_name=region,
        botocore_session=botocore.session.Session(session_vars=_NOTHING_OF_THE_USER),
    )
    return session.client(service, endpoint_url=endpoint, config=Config(**config))  # type: ignore[call-overload]
