"""The budget of one of several processes that each save a part of the same steps.

A step is of use only if all of them save it, and they do not talk. So each thins its steps out by
powers of two: every 2nd, 4th, 8th, … of those that are due, counted in the same way everywhere.
Whatever two processes settle on, what the slower one saves is saved by the other as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainwarden.hook.budget import MAX_GAP, Budget

RELAX = 0.5
"""Of the share, what was spent when steps are thinned out less: saving twice as often costs twice
as much."""


class SharedBudget(Budget):
    """Allows each ``2**level``-th step that is due.

    Args:
        share: Of the time, above 0; None for no limit.
        number: Of a step among those that are due, the same in every process.
        interval: Steps from one of them to the next, about.
        clock: Seconds, of any origin.
    """

    def __init__(
        self,
        share: float | None,
        number: Callable[[int], int],
        interval: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(share, clock)
        self._number = number
        self._most = max(MAX_GAP // interval, 1).bit_length() - 1
        self._level = 0

    def allows(self, step: int) -> bool:
        """Say whether one more step may be saved, and remember it if not."""
        if self._share is None or self._free > 0:
            return True
        number = self._number(step)
        if not number % 2**self._level:
            afforded = self._share * (self._clock() - self._since)
            if self._spent > afforded:
                self._level = min(self._level + 1, self._most)
            elif self._spent <= RELAX * afforded:
                self._level = max(self._level - 1, 0)
        if not number % 2**self._level:
            return True
        self._left_out += 1
        return False
