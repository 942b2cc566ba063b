"""What one call may cost: time, objects read and requests made, counted where they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwarden.store.ports import ObjectStore

FREE = 4  # manifest, end, object, the next: a call that starts late gets on by one step, too


class OverBudgetError(Exception):
    """A request that is left to the next call; what was folded before it stands."""


@dataclass
class Budget:
    """What one call may still do.

    Attributes:
        objects: Steps objects it may read.
        requests: Requests it may make of the bucket, whether they find anything or not.
        until: When to stop, by ``now``.
        now: The clock.
        used: Steps objects read.
        asked: Requests made.
    """

    objects: int
    requests: int
    until: float
    now: Callable[[], float]
    used: int = 0
    asked: int = 0

    @property
    def late(self) -> bool:
        """True if time or requests are used up; never before the first object is read."""
        if not self.used and self.asked < FREE:
            return False
        return self.asked >= self.requests or self.now() >= self.until

    @property
    def spent(self) -> bool:
        """True if no further object should be read."""
        return self.late or self.used >= self.objects

    def ask(self) -> None:
        """Count a request that is about to be made.

        Raises:
            OverBudgetError: it must not be made.
        """
        if self.late:
            raise OverBudgetError
        self.asked += 1


class Metered:
    """An ``ObjectStore`` to read from, whose requests count against the budget of the call."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.budget: Budget | None = None

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        """Read an object.

        Raises:
            OverBudgetError: left to the next call.
        """
        self._ask()
        return self._objects.get(key, max_bytes=max_bytes)

    def put(self, key: str, body: bytes) -> None:
        """Write an object; the pipeline never does."""
        self._objects.put(key, body)

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        """Write an object that nobody else has changed meanwhile: a control document."""
        self._objects.replace(key, body, before=before)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield keys.

        Raises:
            OverBudgetError: left to the next call.
        """
        self._ask()
        return self._objects.keys(prefix, after=after)

    def _ask(self) -> None:
        if self.budget is not None:
            self.budget.ask()
