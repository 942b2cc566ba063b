"""Observations on their way from the training thread to the uploader's: bounded, without a lock.

The training thread appends and counts, perhaps in a signal handler that interrupted the very same
call, so there must be no lock to deadlock on. Deque operations are atomic; each byte counter has
one writer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from trainwarden.model import Observation

_MAX_NEWS = 1000  # counts on their own before they are added up
OVERHEAD_BYTES = 512  # header, scalars and Python objects of one observation, roughly


class Item(NamedTuple):
    """One observation, its uncompressed bytes, and since when it waits (monotonic seconds)."""

    size: int
    since: float
    observation: Observation


class Waiting:
    """A queue that drops its oldest observations when they are too large together.

    Args:
        max_bytes: Uncompressed bytes that may wait.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: deque[Item] = deque()
        self._news: deque[tuple[str, int]] = deque()
        self._pushed = self._dropped = 0  # bytes, written by the training thread
        self._taken = 0  # bytes, written by the uploader's thread

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size(self) -> int:
        """Uncompressed bytes that wait."""
        return self._pushed - self._dropped - self._taken

    @property
    def since(self) -> float:
        """Since when the oldest one waits, in monotonic seconds; now if none does."""
        try:
            return self._items[0].since
        except IndexError:
            return time.monotonic()

    def push(self, observation: Observation) -> None:
        """Add an observation; in the training thread."""
        size = observation.stats.nbytes + OVERHEAD_BYTES
        self._pushed += size
        self._items.append(Item(size, time.monotonic(), observation))
        while self.size > self._max_bytes:
            try:
                self._dropped += self._items.popleft().size
            except IndexError:
                break
            self.count("steps")

    def count(self, reason: str, number: int = 1) -> None:
        """Count something that could not be saved; from any thread."""
        if len(self._news) > _MAX_NEWS:  # nothing was sent for long
            self._news.extend(self.news().items())
        self._news.append((reason, number))

    def news(self) -> dict[str, int]:
        """Take what was counted since the last call, by reason; from any thread."""
        found: dict[str, int] = {}
        with suppress(IndexError):  # another thread took the rest
            for _ in range(len(self._news)):
                reason, number = self._news.popleft()
                found[reason] = found.get(reason, 0) + number
        return found

    def take(self, *, most: int, size: int) -> list[Item]:
        """Take the oldest observations, at most so many and so large; in the uploader's thread."""
        taken: list[Item] = []
        total = 0
        while self._items and len(taken) < most:
            try:
                if taken and total + self._items[0].size > size:
                    break
                taken.append(self._items.popleft())
            except IndexError:  # the training thread dropped it just now
                break
            total += taken[-1].size
            self._taken += taken[-1].size
        return taken

    def give_back(self, items: Sequence[Item]) -> None:
        """Undo ``take`` for its last items; in the uploader's thread."""
        for item in reversed(items):
            self._taken -= item.size
            self._items.appendleft(item)

    def clear(self) -> None:
        """Forget everything that waits."""
        self.take(most=len(self._items), size=self.size + OVERHEAD_BYTES)
