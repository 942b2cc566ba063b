"""What the features of a model's inputs look like, cumulated over batches; and its outputs.

Memory is bounded: so many features, and among few of them all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwarden.model import FloatArray, IntArray
from trainwarden.stats.blocks import dot
from trainwarden.stats.spread import FeatureSpread

MAX_FEATURES = 4096  # beyond these, evenly spread ones
MAX_PAIRED = 64  # of which all pairs are compared
FIRST_SAMPLES = 256  # that later batches are held against
MAX_COMPARED = 256  # features that may be copies of each other
_DENSE, _THINNED = 16, 4  # batches whose pairs all count; later one in so many
_RARE = 10.0  # standard deviations between the ends of a feature that is nearly always the same
_FEW = 32  # rows from which on a correlation says anything


class Features:
    """One input's features over the batches added so far.

    Args:
        features: F, as many as there are.

    Attributes:
        total: F.
        kept: Positions of those that are looked at (K,) int64.
        spread: Of those, over all batches.
    """

    def __init__(self, features: int) -> None:
        self.total = features
        self.kept = spread_over(features, MAX_FEATURES)
        self.spread = FeatureSpread(len(self.kept))
        self._reference: tuple[FloatArray, FloatArray] | None = None  # means, 1/std or 0
        self._alike: list[list[int]] | None = None  # groups of features that were equal so far
        self._pairs: _Pairs | None = None
        self._correlation: float | None = None
        self._seen = self._nonfinite = self._batches = 0

    def add(self, rows: FloatArray, *, samples: int, size: int) -> dict[str, float]:
        """Add a batch and return the facts.

        Args:
            rows: (R, K) float64; several rows belong to one sample if it is an image.
            samples: In ``rows``.
            size: Samples of the batch, those not looked at included.
        """
        self._nonfinite += self.spread.add(rows)
        self._seen += samples
        if self._pairs is None:
            self._pairs = _Pairs(rows, self.spread.constant)
        if self._batches < _DENSE or self._batches % _THINNED == 0:
            self._pairs.add(rows)
            self._correlation = self._pairs.largest()
        self._batches += 1
        self._compare(rows)
        facts = self._facts()
        facts["samples"] = float(size)
        if self._reference is not None:
            facts |= self._shift(rows)
        elif self._seen >= FIRST_SAMPLES:
            self._end_of_first()
        return facts

    def _facts(self) -> dict[str, float]:
        spread = self.spread
        constant, std = spread.constant, spread.std
        varying = std[~constant & (spread.n > 0)]
        found = {
            "features": float(self.total),
            "seen": float(self._seen),
            "nonfinite": float(self._nonfinite),
            "constant_features": float(np.count_nonzero(constant)),
            "duplicated_features": float(self._copies(constant)),
            **spread.whole(),
        }
        if "mean" in found:
            found["feature_mean_max"] = float(np.abs(spread.mean).max())
            found["feature_std_max"] = float(varying.max()) if varying.size else 0.0
        if varying.size:
            found["feature_std_min"] = float(varying.min())
        if self._correlation is not None:
            found["correlation_max"] = self._correlation
        return found

    def _compare(self, rows: FloatArray) -> None:
        """Keep those groups of features together that are equal in this batch too."""
        groups = [list(range(rows.shape[1]))] if self._alike is None else self._alike
        found: list[list[int]] = []
        for group in groups:
            split: dict[bytes, list[int]] = {}
            for feature in group:
                split.setdefault(rows[:, feature].tobytes(), []).append(feature)
            found.extend(one for one in split.values() if len(one) > 1)
        self._alike = _bounded(found)

    def _copies(self, constant: npt.NDArray[np.bool_]) -> int:
        """Count features that equal one before them and do vary."""
        return sum(len(group) - 1 for group in self._alike or () if not constant[group[0]])

    def _end_of_first(self) -> None:
        std = self.spread.std
        with np.errstate(all="ignore"):
            inverse = np.where((std > 0) & np.isfinite(std), 1.0 / std, 0.0)
        self._reference = (self.spread.mean, inverse)

    def _shift(self, rows: FloatArray) -> dict[str, float]:
        """Say how far the means of this batch lie from those of the first, in their std."""
        if self._reference is None:
            return {}
        means, inverse = self._reference
        with np.errstate(all="ignore"):
            apart = np.abs(rows.mean(axis=0) - means) * inverse
        apart = apart[(inverse > 0) & np.isfinite(apart)]
        return {"shift": float(apart.mean())} if apart.size else {}


def _bounded(groups: Sequence[list[int]]) -> list[list[int]]:
    """Return the first groups of two or more, ``MAX_COMPARED`` features in all, half in one."""
    kept, room = [], MAX_COMPARED
    for group in groups:
        part = group[: min(room, MAX_COMPARED // 2)]
        if len(part) > 1:
            kept.append(part)
            room -= len(part)
    return kept


class Held:
    """Inputs of an evaluation pass, held against those of training.

    Args:
        training: What is known of the same input in training.
    """

    def __init__(self, training: Features) -> None:
        self._training, self._seen = training, 0
        self._spread = FeatureSpread(len(training.kept))

    def add(self, rows: FloatArray, *, samples: int) -> dict[str, float]:
        """Add a batch and return the facts over the pass so far.

        ``apart``: mean over features of |mean - mean in training| / std in training.
        ``wider``: geometric mean over features of std / std in training. Features that are constant
        in training, or here, are left out; without any other there are no such facts. So are those
        whose ends in training lie far apart: some of a few samples have them, or none.

        Args:
            rows: (R, K) float64, the features that training kept.
            samples: In ``rows``.
        """
        self._spread.add(rows)
        self._seen += samples
        whole = self._spread.whole()
        facts = {"seen": float(self._seen)}
        facts |= {name: whole[name] for name in ("mean", "std") if name in whole}
        with np.errstate(all="ignore"):
            known, now = self._training.spread, self._spread.std
            before = np.where(known.high - known.low <= _RARE * known.std, known.std, np.nan)
            apart = np.abs(self._spread.mean - known.mean) / before
            wider = np.log(now / before)
        apart, wider = apart[np.isfinite(apart)], wider[np.isfinite(wider)]
        if apart.size and wider.size:
            facts["apart"] = float(apart.mean())
            facts["wider"] = math.exp(float(wider.mean()))
        return facts


class _Pairs:
    """Sums of products of some features, about the means of the first batch.

    Args:
        rows: The first batch (R, F).
        constant: Features that had one value in it (F,) bool.
    """

    def __init__(self, rows: FloatArray, constant: npt.NDArray[np.bool_]) -> None:
        usable = np.flatnonzero(np.isfinite(rows).all(axis=0) & ~constant)
        self._chosen = usable[spread_over(len(usable), MAX_PAIRED)]
        self._centre = rows[:, self._chosen].mean(axis=0)
        chosen = len(self._chosen)
        self._n, self._sums, self._products = 0, np.zeros(chosen), np.zeros((chosen, chosen))

    def add(self, rows: FloatArray) -> None:
        """Add rows; those with NaN or infinity in a chosen feature are left out."""
        if len(self._chosen) < 2:  # noqa: PLR2004 - a pair
            return
        apart = rows[:, self._chosen] - self._centre
        sums = apart.sum(axis=0)
        if not np.isfinite(sums).all():
            apart = apart[np.isfinite(apart).all(axis=1)]
            sums = apart.sum(axis=0)
        with np.errstate(all="ignore"):
            self._n += len(apart)
            self._sums += sums
            self._products += apart.T @ apart

    def largest(self) -> float | None:
        """Return the largest absolute correlation of two; None if it cannot be known."""
        if len(self._chosen) < 2 or self._n < _FEW:  # noqa: PLR2004 - a pair
            return None
        with np.errstate(all="ignore"):
            covariance = self._products - np.outer(self._sums, self._sums) / self._n
            scale = np.sqrt(np.diagonal(covariance))
            found = np.abs(covariance / np.outer(scale, scale))
        np.fill_diagonal(found, -1.0)
        found = found[np.isfinite(found)]
        return min(float(found.max()), 1.0) if found.size and found.max() >= 0 else None


def spread_over(count: int, most: int) -> IntArray:
    """Return ``most`` positions out of ``count``, evenly spread; all if there are no more."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(np.int64)


def duplicated(samples: npt.NDArray[Any]) -> float:
    """Return the share of samples (N, …), N ≥ 1, that equal one before them, bit by bit."""
    body, count = samples.tobytes(), len(samples)
    width = max(1, len(body) // count)
    return 1.0 - len({body[i : i + width] for i in range(0, len(body), width)}) / count


def output_facts(samples: FloatArray) -> dict[str, float]:
    """Say how alike a model's outputs (N, …) float64 are within a batch, N ≥ 2.

    ``batch_spread``: standard deviation over the batch (root mean of the features' variances)
    by the RMS of all; ``cosine``: mean cosine of two samples. Nothing if values are not finite.
    """
    n = len(samples)
    with np.errstate(all="ignore"):
        squares = np.einsum("nf,nf->n", samples, samples)
        power = float(squares.sum()) / samples.size
        mean = samples.sum(axis=0) / n
        variance = max(power - dot(mean, mean) / mean.size, 0.0)
        if not (math.isfinite(power) and math.isfinite(variance)):
            return {}
        found = {"batch_spread": math.sqrt(variance / power) if power else 0.0}
        directed = squares > 0
        n = int(np.count_nonzero(directed))
        if n > 1:
            total = (samples[directed] / np.sqrt(squares[directed])[:, None]).sum(axis=0)
            found["cosine"] = (dot(total, total) - n) / (n * (n - 1))
    return found
