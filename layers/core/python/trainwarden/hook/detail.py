"""Detailed capture that was asked for from outside: for a while, every step is saved."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from trainwarden.wire.control import MAX_REQUESTS, DetailRequest

RAW_STEPS = 3  # of a request, saved with the suspects' tensors as they are


class _Running(NamedTuple):
    """A request that is being honoured, the ``number``-th of the run."""

    request: DetailRequest
    number: int
    first: int

    def covers(self, step: int) -> bool:
        since = step - self.first
        return 0 <= since < self.request.steps and since % self.request.interval == 0

    def saved(self, step: int) -> int:
        """Return how many steps were saved for it before ``step``."""
        return (step - self.first) // self.request.interval


class Detail:
    """Says which steps are saved because somebody asked for detail, and since when.

    Heard of in the background, picked up by the training thread at its next step. Requests may
    overlap: a step is saved if one of them wants it.

    Args:
        say: Told of each request, once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.active = False  # something is asked for; read at every step
        self._say = say
        self._known: set[str] = set()
        self._asked: deque[DetailRequest] = deque()
        self._running: list[_Running] = []
        self._number = 0

    def ask(self, requests: Iterable[DetailRequest]) -> None:
        """Hear of requests, old ones among them; in the background thread."""
        for request in requests:
            if request.id in self._known or len(self._known) >= MAX_REQUESTS:
                continue
            self._known.add(request.id)
            self._asked.append(request)
            self.active = True
            every = f", each {request.interval}th" if request.interval > 1 else ""
            self._say(f"the next {request.steps} steps are saved in detail{every} ({request.id})")

    def wants(self, step: int) -> bool:
        """Say whether the step to come is saved whatever the schedule says.

        Called before each step, in the training thread.
        """
        self.active = False  # before the look: what is asked for meanwhile sets it again
        while self._asked:
            self._number += 1
            self._running.append(_Running(self._asked.popleft(), self._number, step))
        self._running = [one for one in self._running if step < one.first + one.request.steps]
        if self._running:
            self.active = True
        return self.covers(step)

    def covers(self, step: int) -> bool:
        """Say whether a step is one of those that are saved for a request."""
        return any(one.covers(step) for one in self._running)

    def facts(self, step: int) -> dict[str, float]:
        """Return what is told beside a step that is saved for a request."""
        wanted = [one for one in self._running if one.covers(step)]
        if not wanted:
            return {}
        left = max(one.first + one.request.steps - step - 1 for one in wanted)
        return {"request": float(wanted[-1].number), "request_left": float(left)}

    def suspects(self, step: int, tensor: str) -> bool:
        """Say whether a tensor, or its layer, is to be saved as it is with this step."""
        return any(
            one.request.raw
            and one.covers(step)
            and one.saved(step) < RAW_STEPS
            and one.request.suspects(tensor)
            for one in self._running
        )
