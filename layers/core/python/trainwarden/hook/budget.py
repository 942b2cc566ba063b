"""The share of the training's time that saved steps may take, and what they took."""

from __future__ import annotations

import time
from collections.abc import Callable

FREE = 100
"""Saved steps that are not counted. Most faults show in them, and a run that is over by then never
cost much: at a quarter of a step each they take as long as 25 steps of training."""
EXACT_PART = 0.5
"""Of the share, what saved steps may have taken if the next one is to be measured whole. Beyond it
large tensors are measured from samples, at about a fifth of the cost: looking often comes first,
and exact steps go on as often as half of the share pays for."""
MAX_GAP = 1000  # steps after which one is saved whatever it costs: a run is never left alone


class Budget:
    """Weighs what saved steps cost against the time that went by, once the free ones are used up.

    Args:
        share: Of the time, above 0; None for no limit.
        clock: Seconds, of any origin. Time and not CPU time: where a copy from an accelerator is
            waited for, the training waits.
    """

    def __init__(self, share: float | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._share, self._clock = share, clock
        self.running = False  # what the hook does now is part of a saved step
        self._entered: float | None = None  # since when it does
        self._free = FREE
        self._spent, self._since = 0.0, 0.0
        self._last, self._left_out = -MAX_GAP, 0

    # ---- the clock ------------------------------------------------------------------------

    def enter(self) -> None:
        """The hook begins to work."""
        self._entered = self._clock()

    def leave(self) -> None:
        """The hook hands back to the training."""
        if self._entered is not None:
            self._spent += self._clock() - self._entered
            self._entered = None

    # ---- steps ----------------------------------------------------------------------------

    def allows(self, step: int) -> bool:
        """Say whether one more step may be saved, and remember it if not."""
        if self._share is None or self._free > 0 or step - self._last >= MAX_GAP:
            return True
        if self._spent <= self._share * (self._clock() - self._since):
            return True
        self._left_out += 1
        return False

    @property
    def ample(self) -> bool:
        """True if the next saved step may be measured whole."""
        if self._share is None or self._free > 0:
            return True
        return self._spent <= EXACT_PART * self._share * (self._clock() - self._since)

    def begin(self, step: int) -> dict[str, float]:
        """Begin a saved step; returns what was left out before it, if anything was."""
        self.running, self._last = True, step
        if self._entered is None:
            self.enter()
        if not self._left_out:
            return {}
        left_out, self._left_out = self._left_out, 0
        elapsed = max(self._clock() - self._since, 1e-9)
        return {"left_out": float(left_out), "share": self._spent / elapsed}

    def end(self, step: int) -> None:
        """A saved step is submitted; the next one may have begun."""
        self.leave()
        self.running = step < self._last
        if self.running:
            self.enter()
        if self._free > 0:
            self._free -= 1
            if not self._free:
                self._spent, self._since = 0.0, self._clock()
