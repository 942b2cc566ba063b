"""Changes of a job's control document, the only ones there are; writers may race."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainwarden.errors import BadInputError, ConflictError, MalformedObjectError
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.control import (
    MAX_CONTROL_BYTES,
    MAX_REASON_CHARS,
    MAX_REQUESTS,
    Control,
    DetailRequest,
)
from trainwarden.wire.keys import control_key

MAX_CONFLICTS = 10  # each is another writer's change
_MAX_DETAIL_BYTES = MAX_CONTROL_BYTES - 8 * MAX_REASON_CHARS  # a stop always finds room


def ask_to_stop(objects: ObjectStore, job: str, reason: str) -> Control:
    """Ask a training loop to end; returns the document as it is then.

    Asked again, the document says so: a run that was continued since hears of it. What else it
    asks for stays.

    Raises:
        BadInputError: access denied.
        RetryableError: unreachable, or too many other writers.
    """

    def change(control: Control) -> Control:
        version, said = control.version + 1, reason[:MAX_REASON_CHARS]
        return replace(control, version=version, stop=True, reason=said, stop_version=version)

    return _change(objects, job, change)


def ask_for_detail(objects: ObjectStore, job: str, request: DetailRequest) -> Control:
    """Ask a hook to capture in detail; returns the document as it is then.

    A second request of the same id changes nothing. What else the document asks for stays.

    Raises:
        BadInputError: access denied, or the document takes no more requests.
        RetryableError: unreachable, or too many other writers.
    """

    def change(control: Control) -> Control:
        if any(one.id == request.id for one in control.details):
            return control
        if len(control.details) >= MAX_REQUESTS:
            most = f"at most {MAX_REQUESTS} requests for detail in a run"
            raise BadInputError(most, "one more", "save more often")
        details = (*control.details, request)
        asked = replace(control, version=control.version + 1, details=details)
        if len(asked.to_bytes()) > _MAX_DETAIL_BYTES:
            most = f"requests of at most {_MAX_DETAIL_BYTES} bytes in all"
            raise BadInputError(most, "more", "name fewer tensors")
        return asked

    return _change(objects, job, change)


def _change(objects: ObjectStore, job: str, change: Callable[[Control], Control]) -> Control:
    for _ in range(MAX_CONFLICTS):
        try:
            return _try(objects, control_key(job), change)
        except ConflictError:  # noqa: PERF203 - a conflict is another writer's change
            continue
    return _try(objects, control_key(job), change)


def _try(objects: ObjectStore, key: str, change: Callable[[Control], Control]) -> Control:
    body = objects.get(key, max_bytes=MAX_CONTROL_BYTES)
    try:
        before = Control.from_bytes(body) if body else Control(version=0)
    except MalformedObjectError:
        before = Control(version=0)
    asked = change(before)
    if asked == before:
        return before
    objects.replace(key, asked.to_bytes(), before=body)
    return asked
