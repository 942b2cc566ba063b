"""What only a boosted run has: trees, importances of the features, residuals."""

from __future__ import annotations

from trainwarden.model import Mode, Need, Observation
from trainwarden.report.charts import bars, chart
from trainwarden.report.markup import Html, joined, share, table, tag
from trainwarden.report.reading import Recorded
from trainwarden.report.values import Line
from trainwarden.stats.derived import column

KINDS = {
    "weight": "how often a feature splits",
    "gain": "mean gain of its splits",
    "cover": "mean rows its splits see",
    "total_gain": "gain of all its splits",
    "total_cover": "rows of all its splits",
}
_MAX_BARS = 20
_STATISTICS = ("min", "max", "mean", "std", "rms", "abs_mean")


def trees(run: Recorded) -> Html:
    """Return the shape of the trees over the rounds; nothing without trees."""
    lines = {line.name: line for line in run.lines("trees", Mode.TRAIN)}
    drawn = [chart("Depth of the deepest tree, edges", _one(lines, "depth")),
             chart("Leaves of the largest tree", _one(lines, "leaves"))]  # fmt: skip
    if not any(drawn):
        return Html("")
    rows: list[tuple[object, ...]] = [
        (name.replace("_", " "), line.values[-1]) for name, line in lines.items()
    ]
    last = max(line.steps[-1] for line in lines.values())
    told = joined(tag("h3", f"Round {last}"), table(("of the trees", "number"), rows))
    return tag("section", tag("h2", "Trees"), *drawn, told)


def _one(lines: dict[str, Line], name: str) -> list[Line]:
    return [lines[name]] if name in lines else []


def importances(run: Recorded) -> Html:
    """Return what each feature is worth, by every kind of importance; nothing without any."""
    found = [obs for obs in run.of(Mode.TRAIN) if obs.scalars.get("feature_importance")]
    if not found:
        return Html("")
    parts: list[object] = []
    for kind, meaning in KINDS.items():
        parts += _kind(found[-1], kind, meaning)
    head = tag("h2", f"Feature importance, round {found[-1].step}")
    return tag("section", head, *parts)


def _kind(obs: Observation, kind: str, meaning: str) -> list[Html]:
    told = obs.scalars["feature_importance"]
    values = {
        name.partition("/")[2]: value
        for name, value in told.items()
        if name.startswith(f"{kind}/") and name != f"{kind}/" and value == value  # noqa: PLR0124 - not NaN
    }
    if not values:
        return []
    names = sorted(values, key=lambda name: (-values[name], name))
    largest = values[names[0]] or 1.0
    rows = [(name, values[name] / largest, share(values[name])) for name in names[:_MAX_BARS]]
    total = max(int(told.get(f"{kind}/", 0)), len(values))
    more = f", the first {len(rows)} of {total} features" if total > len(rows) else ""
    return [tag("h3", f"{kind}: {meaning}{more}"), bars(("feature", "share of all"), rows)]


def residuals(run: Recorded) -> Html:
    """Return statistics of labels, predictions and residuals; nothing without them."""
    found = [obs for obs in run.of(Mode.TRAIN) if "residual/0" in _names(obs)]
    if not found:
        return Html("")
    last, rows = found[-1], list[tuple[object, ...]]()
    for name, told in (("label/0", "label"), ("output/0", "prediction"),
                       ("residual/0", "residual (label - prediction)")):  # fmt: skip
        if name in _names(last):
            rows.append((told, *(_value(last, name, stat) for stat in _STATISTICS)))
    lines = [
        Line(told, [obs.step for obs in found], [_value(obs, "residual/0", s) for obs in found])
        for s, told in (("rms", "root mean square"), ("abs_mean", "mean of the absolute"))
    ]
    extremes = [
        Line(s, [obs.step for obs in found], [_value(obs, "residual/0", s) for obs in found])
        for s in ("max", "mean", "min")
    ]
    heads = ("of", "smallest", "largest", "mean", "deviation", "root mean square", "mean of |x|")
    return tag(
        "section",
        tag("h2", f"Residuals, round {last.step}"),
        table(heads, rows),
        chart("Size of the residuals", lines),
        chart("Range of the residuals", extremes),
    )


def _names(obs: Observation) -> set[str]:
    return {obs.layout.names[row] for row in range(len(obs.there)) if obs.there[row]}


def _value(obs: Observation, name: str, statistic: str) -> float:
    collection = str(obs.layout.tensors[obs.layout.row_of[name]].collection)
    found = column(obs, Need(collection, statistic))
    return float(found.values[found.names.index(name)]) if name in found.names else float("nan")
