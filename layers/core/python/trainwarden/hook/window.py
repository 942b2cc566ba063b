"""The losses of all steps since the last saved one, and what makes a step worth saving at once.

Whatever the framework: it is told numbers.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import NamedTuple

HISTORY = 32  # steps remembered
MAX_EVENTS = 8  # steps of a run saved out of turn
APART = 32  # steps from one event to the next
FOLLOWED = 2  # steps saved after such a step
SPIKE = 10.0  # medians of the last losses
_FEW = 8  # losses from which on one can be called a spike
_RENEWED = 16  # steps after which the limit is computed anew


class Moment(NamedTuple):
    """One step; an unknown rate is NaN. ``seen`` is False if no loss was seen."""

    step: int
    loss: float
    lr: float
    norm: float | None
    seen: bool


class Window:
    """Follows the losses of a run.

    Attributes:
        limit: A loss above it is a spike.
    """

    def __init__(self) -> None:
        self.limit = math.inf
        self._ring: deque[Moment] = deque(maxlen=HISTORY)
        self._age = self._events = 0
        self._last_event, self._until = -APART, -1
        self._ever_nonfinite = self._tells = False
        self._steps = self._nonfinite = 0
        self._nonfinite_step = self._max_step = -1
        self._n, self._sum, self._min, self._max = 0, 0.0, math.inf, -math.inf
        self._clips = self._clipped = 0
        self._max_norm = -math.inf

    # ---- events ---------------------------------------------------------------------------

    def suspicious(self, loss: float) -> bool:
        """Say if a loss is NaN, infinite or a spike."""
        return not -math.inf < loss < self.limit

    def event(self, step: int, loss: float) -> bool:
        """Ask if the step of a suspicious loss is worth saving; not too often."""
        first = not (math.isfinite(loss) or self._ever_nonfinite)
        self._ever_nonfinite |= first
        if self._events >= MAX_EVENTS or (step - self._last_event < APART and not first):
            return False
        self._events += 1
        self._last_event, self._tells = step, True
        return True

    def follow(self, step: int) -> None:
        """Save the steps after ``step`` too."""
        self._until = step + FOLLOWED

    def wants(self, step: int) -> bool:
        """Say if a step is saved because of what happened just before."""
        return step <= self._until

    def history(self) -> dict[str, float]:
        """Return the last steps once after an event: ``loss@STEP``, ``lr_0@…``, ``grad_norm@…``."""
        if not self._tells:
            return {}
        self._tells = False
        found: dict[str, float] = {}
        for one in self._ring:
            if one.seen:
                found[f"loss@{one.step}"] = one.loss
            if not math.isnan(one.lr):
                found[f"lr_0@{one.step}"] = one.lr
            if one.norm is not None:
                found[f"grad_norm@{one.step}"] = one.norm
        return found

    # ---- steps ----------------------------------------------------------------------------

    def clip(self, norm: float, limit: float) -> None:
        """Gradients were clipped to ``limit``, their norm was ``norm``."""
        self._clips += 1
        self._clipped += not norm <= limit
        self._max_norm = max(self._max_norm, norm)

    def close(self, moment: Moment) -> None:
        """A step is over."""
        if self._ring and self._ring[-1].step == moment.step:
            return  # a pass that counted as a step, and the step after all
        self._ring.append(moment)
        self._steps += 1
        loss = moment.loss
        if moment.seen:
            if math.isfinite(loss):
                self._n, self._sum = self._n + 1, self._sum + loss
                self._min = min(self._min, loss)
                if loss > self._max:
                    self._max, self._max_step = loss, moment.step
            else:
                self._nonfinite_step = self._nonfinite_step if self._nonfinite else moment.step
                self._nonfinite += 1
        self._age += 1
        if self._age >= _RENEWED or len(self._ring) == _FEW:
            self._renew()

    def _renew(self) -> None:
        self._age = 0
        losses = [one.loss for one in self._ring if one.seen and math.isfinite(one.loss)]
        middle = median(losses) if len(losses) >= _FEW else 0.0
        self.limit = max(SPIKE * middle, *losses) if middle > 0 else math.inf

    @property
    def last_loss(self) -> float | None:
        """Loss of the last step; None if none was seen."""
        return self._ring[-1].loss if self._ring and self._ring[-1].seen else None

    def facts(self) -> dict[str, float]:
        """Return what happened since the last call."""
        found = {"steps": float(self._steps)}
        if self._n or self._nonfinite:
            found["nonfinite_losses"] = float(self._nonfinite)
        if self._n:
            found |= {
                "loss_mean": self._sum / self._n,
                "loss_min": self._min,
                "loss_max": self._max,
                "loss_max_step": float(self._max_step),
            }
        if self._nonfinite:
            found["nonfinite_step"] = float(self._nonfinite_step)
        if self._clips:
            found["clipped"] = self._clipped / self._clips
            found["grad_norm_max"] = self._max_norm
        self._steps = self._nonfinite = self._n = self._clips = self._clipped = 0
        self._sum, self._min, self._max, self._max_norm = 0.0, math.inf, -math.inf, -math.inf
        return found
