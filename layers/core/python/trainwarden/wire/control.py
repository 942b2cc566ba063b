"""``control.json``: the document through which the cloud talks to the hook.

The hook polls it by ETag in the background. A higher ``version`` replaces a lower one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden.model import Json
from trainwarden.wire.fields import Fields, dump_json, malformed, parse_json

MAX_CONTROL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Control:
    """What the hook is asked to do.

    Attributes:
        version: Grows with each change, from 1.
        stop: Ask the loop to end cleanly after a checkpoint.
        reason: Why, for a person.
        capture: What else to capture, in the words of the manifest's ``capture``.
    """

    version: int = 1
    stop: bool = False
    reason: str = ""
    capture: Mapping[str, Json] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the document; equal values give equal bytes."""
        return dump_json(
            {
                "version": self.version,
                "stop": self.stop,
                "reason": self.reason,
                "capture": dict(self.capture),
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
        return cls(
            version=fields.integer("version", 1),
            stop=fields.flag("stop"),
            reason=fields.text("reason", 4096),
            capture=fields.mapping("capture"),
        )
