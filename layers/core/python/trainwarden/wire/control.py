"""``control.json``: the document through which the cloud talks to the hook.

The hook polls it in the background. A higher ``version`` replaces a lower one.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from trainwarden.errors import BadInputError
from trainwarden.model import Json
from trainwarden.wire.fields import Fields, dump_json, malformed, parse_json

MAX_CONTROL_BYTES = 64 * 1024
MAX_REASON_CHARS = 4_096
MAX_REQUESTS = 16  # for detail, of one run
MAX_DETAIL_STEPS = 1_000
MAX_NAMES = 16  # of tensors, in one request
MAX_WILDCARDS = 4  # in one name: each multiplies the time that comparing takes
_MAX_CHARS = 1_024
_ID = re.compile(r"[^\s]{1,128}")


@dataclass(frozen=True)
class DetailRequest:
    """A request for detailed capture: every step saved for a while, whatever the schedule says.

    Attributes:
        id: Honoured once in a run.
        steps: Training steps that it lasts, from the first one made after the hook heard of it.
        interval: Of these each so many-th is saved.
        tensors: Names of suspect tensors; ``*`` stands for anything.
        raw: In the first of these steps the tensors of the suspects' layers are saved as they are,
            not their statistics alone.
    """

    id: str
    steps: int = 50
    interval: int = 1
    tensors: tuple[str, ...] = ()
    raw: bool = True

    def __post_init__(self) -> None:
        """Refuse what has no bounds."""
        for name, value in (("steps", self.steps), ("interval", self.interval)):
            if type(value) is not int or not 1 <= value <= MAX_DETAIL_STEPS:
                raise BadInputError(f"{name} from 1 to {MAX_DETAIL_STEPS}", repr(value))
        if not _ID.fullmatch(self.id):
            raise BadInputError("an id of 1 to 128 characters without spaces", repr(self.id))
        if len(self.tensors) > MAX_NAMES:
            raise BadInputError(f"at most {MAX_NAMES} names of tensors", str(len(self.tensors)))
        for name in self.tensors:
            if not name or len(name) > _MAX_CHARS or name.count("*") > MAX_WILDCARDS:
                raise BadInputError(f"a name with at most {MAX_WILDCARDS} *", repr(name[:100]))

    def suspects(self, tensor: str) -> bool:
        """Say whether a tensor is named."""
        return any(_matches(name, tensor) for name in self.tensors)


@dataclass(frozen=True)
class Control:
    """What the hook is asked to do.

    Attributes:
        version: Grows with each change, from 1.
        stop: Ask the loop to end cleanly after a checkpoint.
        reason: Why, for a person.
        details: Requests for detailed capture, in the order in which they were made.
        stop_version: The version with which the stop was asked for last; 0 if it never was.
    """

    version: int = 1
    stop: bool = False
    reason: str = ""
    details: tuple[DetailRequest, ...] = ()
    stop_version: int = 0

    def to_bytes(self) -> bytes:
        """Return the document; equal values give equal bytes."""
        requests: list[Json] = [{**asdict(one), "tensors": [*one.tensors]} for one in self.details]
        return dump_json(
            {
                "version": self.version,
                "stop": self.stop,
                "stop_version": self.stop_version,
                "reason": self.reason,
                "capture": {"requests": requests} if requests else {},
            }
        )

    @classmethod
    def from_bytes(cls, body: bytes) -> Control:
        """Read the document.

        Raises:
            MalformedObjectError: anything else than what ``to_bytes`` writes.
        """
        if len(body) > MAX_CONTROL_BYTES:
            raise malformed(
                f"a control document of at most {MAX_CONTROL_BYTES} bytes", str(len(body))
            )
        fields = Fields(parse_json(body, "control document"), "control document")
        capture = Fields(fields.mapping("capture"), "control document: capture")
        asked = capture.objects("requests", MAX_REQUESTS) if "requests" in capture else []
        return cls(
            version=fields.integer("version", 1),
            stop=fields.flag("stop"),
            reason=fields.text("reason", MAX_REASON_CHARS),
            details=tuple(_request(one) for one in asked),
            stop_version=fields.integer("stop_version") if "stop_version" in fields else 0,
        )


def _request(fields: Fields) -> DetailRequest:
    try:
        return DetailRequest(
            id=fields.text("id", 128),
            steps=fields.integer("steps", 1, MAX_DETAIL_STEPS),
            interval=fields.integer("interval", 1, MAX_DETAIL_STEPS),
            tensors=tuple(fields.texts("tensors", MAX_NAMES, _MAX_CHARS)),
            raw=fields.flag("raw"),
        )
    except BadInputError as error:
        raise malformed(error.expected, error.found) from error


def _matches(name: str, tensor: str) -> bool:
    if "*" not in name:
        return name == tensor
    return re.fullmatch(".*".join(map(re.escape, name.split("*"))), tensor, re.DOTALL) is not None
