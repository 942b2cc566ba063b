"""What ties a run to the training job that SageMaker started.

Container and SageMaker's description both know the ARN, the hyperparameters and the nonce, so both
can compute the identity. It lies in the manifest for all to read and to copy: it tells runs apart
that were mixed up by mistake. ``wire.seal`` tells who really wrote an object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from trainwarden.wire.fields import dump_json

IDENTITY_CHARS = 32
NONCE_TAG = "trainwarden:nonce"
NONCE_VARIABLE = "TRAINWARDEN_NONCE"


def identity(arn: str, hyperparameters: Mapping[str, str], nonce: str = "") -> str:
    """Return the identity of a run, 32 lower-case hex digits.

    Args:
        arn: ARN of the training job; empty outside SageMaker.
        hyperparameters: As given to CreateTrainingJob, values as strings.
        nonce: Value of the tag ``trainwarden:nonce``, in the container ``TRAINWARDEN_NONCE``.
    """
    known = known_to_both(arn, hyperparameters, nonce)
    return hashlib.sha256(known).hexdigest()[:IDENTITY_CHARS]


def known_to_both(arn: str, hyperparameters: Mapping[str, str], nonce: str) -> bytes:
    """Return what container and description both know as canonical JSON."""
    return dump_json(
        {
            "arn": arn,
            "hyperparameters": {str(k): str(v) for k, v in hyperparameters.items()},
            "nonce": nonce,
        }
    )
