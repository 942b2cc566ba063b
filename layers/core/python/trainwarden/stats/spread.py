"""Moments and range of numbers that come in parts, whole or a feature at a time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from trainwarden.model import FloatArray
from trainwarden.stats.blocks import dot


class Spread:
    """Number, mean, variance and range of all finite values added so far; Chan's formula.

    Attributes:
        n: Finite values.
        nonfinite: NaN and infinite values, which are left out of everything else.
        low: Smallest; inf without values.
        high: Largest; -inf without values.
    """

    __slots__ = ("_m2", "_mean", "high", "low", "n", "nonfinite")

    def __init__(self) -> None:
        self.n = self.nonfinite = 0
        self._mean = self._m2 = 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, values: FloatArray) -> tuple[float, float]:
        """Add values of any shape, float64; returns the range of those that are finite."""
        values = values.reshape(-1)
        if not values.size:
            return math.inf, -math.inf
        low, high = float(values.min()), float(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            finite = np.isfinite(values)
            self.nonfinite += int(values.size - np.count_nonzero(finite))
            values = values[finite]
            if not values.size:
                return math.inf, -math.inf
            low, high = float(values.min()), float(values.max())
        n, total = values.size, self.n + values.size
        with np.errstate(all="ignore"):
            mean = float(values.sum()) / n
            centred = values - mean
            m2 = dot(centred, centred)
        away = mean - self._mean
        self._m2 += m2 + away * away * (self.n * n / total)
        self._mean += away * (n / total)
        self.n = total
        self.low, self.high = min(self.low, low), max(self.high, high)
        return low, high

    @property
    def mean(self) -> float:
        """Mean; NaN without values."""
        return self._mean if self.n else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the population; NaN without values."""
        return math.sqrt(self._m2 / self.n) if self.n else math.nan


class FeatureSpread:
    """The same for each of F features; all arrays are (F,) float64.

    Args:
        features: F.
    """

    __slots__ = ("_m2", "high", "low", "mean", "n")

    def __init__(self, features: int) -> None:
        self.n = np.zeros(features)
        self.mean, self._m2 = np.zeros(features), np.zeros(features)
        self.low, self.high = np.full(features, np.inf), np.full(features, -np.inf)

    def add(self, values: FloatArray) -> int:
        """Add rows (R, F) float64; returns how many values are NaN or infinite."""
        bad = 0
        with np.errstate(all="ignore"):
            low, high = values.min(axis=0), values.max(axis=0)
            n: FloatArray | float = float(len(values))
            mean = values.sum(axis=0) / n
            centred = values - mean
            m2 = np.einsum("rf,rf->f", centred, centred)
            if not math.isfinite(m2.sum()):
                finite = np.isfinite(values)
                counted = finite.sum(axis=0)
                bad = int(values.size - counted.sum())
                n = counted.astype(np.float64)
                low = np.where(finite, values, np.inf).min(axis=0)
                high = np.where(finite, values, -np.inf).max(axis=0)
                mean = np.where(finite, values, 0.0).sum(axis=0) / np.maximum(n, 1.0)
                centred = np.where(finite, values - mean, 0.0)
                m2 = np.einsum("rf,rf->f", centred, centred)
            total = np.maximum(self.n + n, 1.0)
            away = mean - self.mean
            self._m2 += m2 + away * away * (self.n * n / total)
            self.mean = self.mean + away * (n / total)
        self.n = self.n + n
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        return bad

    @property
    def std(self) -> FloatArray:
        """Standard deviations of the population, (F,); NaN for a feature without values."""
        with np.errstate(all="ignore"):
            found: FloatArray = np.sqrt(self._m2 / np.where(self.n > 0, self.n, np.nan))
        return found

    @property
    def constant(self) -> npt.NDArray[np.bool_]:
        """True for features that had one single value so far, (F,) bool."""
        found: npt.NDArray[np.bool_] = self.low == self.high
        return found

    def whole(self) -> dict[str, float]:
        """Return mean, std, min and max of all features together; nothing without values."""
        total = float(self.n.sum())
        if not total:
            return {}
        with np.errstate(all="ignore"):
            mean = dot(self.n, self.mean) / total
            m2 = float(self._m2.sum()) + dot(self.n, (self.mean - mean) ** 2)
        return {
            "mean": mean,
            "std": math.sqrt(m2 / total),
            "min": float(self.low.min()),
            "max": float(self.high.max()),
        }
