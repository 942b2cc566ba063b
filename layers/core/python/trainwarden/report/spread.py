"""Where predictions lie against labels: ROC and precision-recall, errors by range of the label."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainwarden.model import FloatArray, Mode, Observation
from trainwarden.report.charts import bars, chart
from trainwarden.report.markup import Html, number, share, table, tag
from trainwarden.report.reading import Recorded
from trainwarden.report.values import Line

RANKED, RESIDUALS = "ranked/0", "residuals"
_MAX_RANKS = 10_000
_LARGEST = 1e300  # sums of what is larger may not be finite
_RANGE = re.compile(r"range_(\d{1,3})\.(from|to|rows|mean|abs_mean)")


@dataclass(frozen=True)
class Ranking:
    """Rows of both labels along the order of a model's scores.

    Attributes:
        positives: (R,) rows of label 1, from the highest scores down.
        negatives: (R,) the same of label 0.
    """

    positives: FloatArray
    negatives: FloatArray

    @property
    def found(self) -> FloatArray:
        """Share of the positives above each limit, (R + 1,) from 0 to 1."""
        return _shares(self.positives)

    @property
    def taken(self) -> FloatArray:
        """Share of the negatives above each limit, (R + 1,) from 0 to 1."""
        return _shares(self.negatives)

    @property
    def precision(self) -> FloatArray:
        """Share of positives among all rows above each limit, (R,)."""
        right = np.cumsum(self.positives)
        found: FloatArray = right / (right + np.cumsum(self.negatives))
        return found

    @property
    def area(self) -> tuple[float, float]:
        """Area under the ROC curve, and how far off it may be, for ranks hold several scores."""
        found, taken = self.found, self.taken
        area = float(np.sum(np.diff(taken) * (found[1:] + found[:-1]) / 2))
        return area, float(np.sum(np.diff(taken) * np.diff(found)) / 2)

    @property
    def average_precision(self) -> float:
        """Precision at each rank, weighted by the positives that it adds."""
        return float(np.sum(np.diff(self.found) * self.precision))


def _shares(counts: FloatArray) -> FloatArray:
    found: FloatArray = np.concatenate(([0.0], np.cumsum(counts))) / counts.sum()
    return found


def ranking(obs: Observation) -> Ranking | None:
    """Read how labels lie along the scores; None without both labels, or where it is nonsense."""
    told = obs.labels.get(RANKED, {})
    if not told or min(told) < 0 or max(told) >= 2 * _MAX_RANKS or min(told.values()) < 0:
        return None
    counts = np.zeros((max(told) // 2 + 1, 2))
    for key, count in told.items():
        counts[divmod(key, 2)] = count
    counts = counts[counts.sum(axis=1) > 0][::-1]
    if not counts.size or not counts.sum(axis=0).all():
        return None
    return Ranking(counts[:, 1], counts[:, 0])


def curves(run: Recorded) -> Html:
    """Return ROC and precision-recall curves of the last round and their areas over the rounds.

    Nothing unless one worker of a boosted run counted them: ranks of several are not the same.
    """
    alone = run.of(Mode.TRAIN) if len(run.manifest.workers) <= 1 else ()
    told = [(obs.step, found) for obs in alone if (found := ranking(obs)) is not None]
    if not told:
        return Html("")
    step, last = told[-1]
    steps = [one for one, _ in told]
    area, off = last.area
    base = float(last.positives.sum() / (last.positives.sum() + last.negatives.sum()))
    rows: list[tuple[object, ...]] = [
        ("area under the ROC curve", f"{area:.4f} ± {off:.4f}"),
        ("average precision", f"{last.average_precision:.4f}"),
        ("share of positives", share(base)),
        ("ranks", len(last.positives)),
    ]
    roc = [Line("model", last.taken.tolist(), last.found.tolist()), Line("chance", [0, 1], [0, 1])]
    precision = [
        Line("model", last.found[1:].tolist(), last.precision.tolist()),
        Line("chance", [0, 1], [base, base]),
    ]
    areas = [
        Line("area under the ROC curve", steps, [found.area[0] for _, found in told]),
        Line("average precision", steps, [found.average_precision for _, found in told]),
    ]
    return tag(
        "section",
        tag("h2", f"Ranking, round {step}"),
        table(("of the training rows", "number"), rows),
        chart("ROC: positives found over negatives taken", roc, parts=True),
        chart("Precision over positives found", precision, parts=True),
        chart("Areas over the rounds", areas),
    )


def errors(run: Recorded) -> Html:
    """Return residuals by range of the label and how they are spread; nothing without them."""
    found = [obs for obs in run.of(Mode.TRAIN) if _ranges(obs)]
    if not found or len(run.manifest.workers) > 1:
        return Html("")
    last = _ranges(found[-1])
    rows: list[tuple[object, ...]] = [
        (_span(one), one["rows"], one["abs_mean"], one["mean"])
        for one in (last[place] for place in sorted(last))
    ]
    lines = [
        Line(
            f"label {_span(last[place])}",
            [obs.step for obs in found],
            [_ranges(obs).get(place, {}).get("abs_mean", float("nan")) for obs in found],
        )
        for place in sorted(last)
    ]
    return tag(
        "section",
        tag("h2", f"Error by range of the label, round {found[-1].step}"),
        table(("label", "rows", "mean of |residual|", "mean residual"), rows),
        chart("Mean absolute residual of each range", lines),
        _spread(found[-1]),
    )


def _ranges(obs: Observation) -> dict[int, dict[str, float]]:
    """Range → what is told of it, whole ranges only."""
    found: dict[int, dict[str, float]] = {}
    for name, value in obs.scalars.get(RESIDUALS, {}).items():
        match = _RANGE.fullmatch(name)
        if match and math.isfinite(value):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return {place: one for place, one in found.items() if len(one) == 5}  # noqa: PLR2004 - as in _RANGE


def _span(one: dict[str, float]) -> str:
    low, high = number(one["from"]), number(one["to"])
    return low if low == high else f"{low} to {high}"


def _spread(obs: Observation) -> Html:
    told = {k: v for k, v in obs.scalars[RESIDUALS].items() if abs(v) < _LARGEST}
    names = [f"bin_{place}.rows" for place in range(len(told))]
    counts = [told[name] for name in names if told.get(name, -1.0) >= 0]
    largest = max(counts, default=0.0)
    if not largest > 0 or not {"low", "high"} <= told.keys():
        return Html("")
    edges = np.linspace(told["low"], told["high"], len(counts) + 1).tolist()
    rows = [
        (f"{number(low)} to {number(high)}", count / largest, number(count))
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
    ]
    return Html(tag("h3", "Distribution of the residuals") + bars(("residual", "rows"), rows))
