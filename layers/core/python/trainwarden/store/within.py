"""A part of a store, seen as a store of its own."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden.errors import BadInputError
from trainwarden.store.ports import ObjectStore

S3 = "s3://"


class Within:
    """An ``ObjectStore`` of the objects below a prefix of another one, by the rest of their keys.

    Args:
        objects: The whole store.
        prefix: Ends with a slash.
    """

    def __init__(self, objects: ObjectStore, prefix: str) -> None:
        self._objects, self._prefix = objects, prefix

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return the object, None if there is none; raises what the whole store raises."""
        return self._objects.get(self._prefix + key, max_bytes=max_bytes)

    def put(self, key: str, body: bytes) -> None:
        """Write the object; raises what the whole store raises."""
        self._objects.put(self._prefix + key, body)

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        """Write the object if it is still ``before``; raises what the whole store raises."""
        self._objects.replace(self._prefix + key, body, before=before)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield keys below ``prefix`` in ascending order, those > ``after`` only."""
        start = self._prefix + after if after else ""
        for key in self._objects.keys(self._prefix + prefix, after=start):
            yield key[len(self._prefix) :]


def bucket_and_prefix(address: str) -> tuple[str, str]:
    """Take ``s3://bucket/prefix`` apart; the prefix ends with a slash or is empty.

    Raises:
        BadInputError: no bucket is named.
    """
    bucket, _, path = address.removeprefix(S3).partition("/")
    if not address.startswith(S3) or not bucket:
        raise BadInputError("s3://bucket or s3://bucket/prefix", repr(address))
    path = path.strip("/")
    return bucket, f"{path}/" if path else ""
