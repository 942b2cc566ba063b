"""Events → what a person reads: an e-mail understood in ten seconds, an SMS of 140 characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainwarden.messages import jobs, verdicts
from trainwarden.messages.text import Data, Message

__all__ = ["Message", "compose"]

_COMPOSERS: Mapping[str, Callable[[Data], Message | None]] = {
    "Verdict Changed": verdicts.changed,
    "Action Taken": jobs.action_taken,
    "Data Lost": jobs.data_lost,
    "Job Opened": jobs.opened,
}


def compose(detail_type: str, detail: Data) -> Message | None:
    """Return the message for an event's ``detail``; None if there is nothing to tell a person."""
    data = detail.get("data") or {}
    composer = _COMPOSERS.get(detail_type)
    if composer is None or data.get("muted") is True:
        return None
    return composer(data)
