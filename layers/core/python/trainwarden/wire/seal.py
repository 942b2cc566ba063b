"""Seals: which objects a training job itself wrote, and under which key.

Whoever may write below ``jobs/`` can write any job's objects and may know its run and identity. A
seal is a MAC over an object's key and bytes. Its key is made of what only the job's container and
SageMaker's description of it hold, so that both can compute it and nothing in the bucket gives it
away. An object carries the seal in the first ``"seal"`` of its JSON.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

from trainwarden.wire.fields import Fields, malformed
from trainwarden.wire.identity import known_to_both

SEAL_CHARS = 64
FIELD = "seal"
BLANK = "0" * SEAL_CHARS
_START = b'"seal":"'
_ZEROS = BLANK.encode()
PLACEHOLDER = _START + _ZEROS + b'"'
_DOMAIN = b"trainwarden seal 1"
_FINGERPRINT_CHARS = 32
_LOOKED_THROUGH = 1024 * 1024
_DIGITS = re.compile(r"[0-9a-f]{64}")


def seal_key(arn: str, hyperparameters: Mapping[str, str], nonce: str = "") -> bytes:
    """Return the key of a run's seals, 32 bytes; the identity does not give it away.

    Args:
        arn: ARN of the training job.
        hyperparameters: As given to CreateTrainingJob, values as strings.
        nonce: Value of the tag ``trainwarden:nonce``, in the container ``TRAINWARDEN_NONCE``.
    """
    return hmac.digest(_DOMAIN, known_to_both(arn, hyperparameters, nonce), "sha256")


def fingerprint(key: bytes) -> str:
    """Return 32 hex digits that tell keys apart and give nothing of them away."""
    return hmac.new(key, b"fingerprint", hashlib.sha256).hexdigest()[:_FINGERPRINT_CHARS]


def sealed(body: bytes, key: bytes, name: str) -> bytes:
    """Return an object with its seal in the place of the placeholder's zeros.

    Args:
        body: With a placeholder, as ``sealable=True`` writes it.
        key: From ``seal_key``.
        name: Key under which the object will lie.

    Raises:
        MalformedObjectError: no placeholder where a reader looks for the seal.
    """
    at = _digits_at(body)
    if at < 0 or body[at : at + SEAL_CHARS] != _ZEROS:
        raise malformed("an object with a place for the seal", "none")
    return b"".join((body[:at], _mac(body, at, key, name), body[at + SEAL_CHARS :]))


def is_sealed(body: bytes, key: bytes, name: str) -> bool:
    """Return whether the holder of ``key`` wrote these bytes for the key ``name``; never raises."""
    at = _digits_at(body)
    return at >= 0 and hmac.compare_digest(body[at : at + SEAL_CHARS], _mac(body, at, key, name))


def check_seal(fields: Fields) -> None:
    """Refuse a seal that is there and no seal; whether it is right is not the codec's business.

    Raises:
        MalformedObjectError: not 64 lower-case hexadecimal digits.
    """
    if FIELD in fields and not _DIGITS.fullmatch(fields.text(FIELD, SEAL_CHARS)):
        raise malformed(f"a seal of {SEAL_CHARS} hexadecimal digits", fields.text(FIELD))


def _digits_at(body: bytes) -> int:
    """Return where the digits of the first seal begin, -1 if there is none."""
    start = body.find(_START, 0, _LOOKED_THROUGH)
    at = start + len(_START)
    end = at + SEAL_CHARS
    return at if start >= 0 and body[end : end + 1] == b'"' else -1


def _mac(body: bytes, at: int, key: bytes, name: str) -> bytes:
    view = memoryview(body)
    mac = hmac.new(key, name.encode("utf-8", "surrogatepass") + b"\0", hashlib.sha256)
    for part in (view[:at], _ZEROS, view[at + SEAL_CHARS :]):
        mac.update(part)
    return mac.hexdigest().encode()
