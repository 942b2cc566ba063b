"""How a run learned: losses, other metrics, learning rate, and what it takes classes for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwarden.model import IntArray, Mode
from trainwarden.report import classes
from trainwarden.report.charts import COLOURS, Mark, bars, chart
from trainwarden.report.markup import Html, joined, share, table, tag
from trainwarden.report.reading import Recorded
from trainwarden.report.values import Line

_RATE = re.compile(r"(\d+\.)?lr_")  # of the first optimizer, or a further one's
_MAX_BARS = 50
_SHADES = 9
_MODES = {Mode.TRAIN: "training", Mode.EVAL: "validation"}


def curves(run: Recorded, marks: Sequence[Mark]) -> Html:
    """Return the curves of losses, metrics and learning rates; what is missing is said."""
    losses = chart("Loss", _both(run, "losses"), marks)
    parts = [losses or tag("p", "No loss was recorded: pass the loss function to watch().")]
    parts += [chart("Metrics", _both(run, "metrics"), marks)]
    parts += [chart("Learning rate", _rates(run), marks)]
    return tag("section", tag("h2", "Learning"), *parts)


def _both(run: Recorded, collection: str) -> list[Line]:
    return [
        line._replace(name=f"{line.name}, {told}")
        for mode, told in _MODES.items()
        for line in run.lines(collection, mode)
    ]


def _rates(run: Recorded) -> list[Line]:
    lines = run.lines("optimizer", Mode.TRAIN)
    return [line for line in lines if _RATE.match(line.name)]


def labels(run: Recorded) -> Html:
    """Return distribution of the classes, confusion and its measures; nothing without classes."""
    parts = [_of_mode(run, mode) for mode in _MODES]
    if not any(parts):
        return Html("")
    return tag("section", tag("h2", "Classes"), *parts)


def _of_mode(run: Recorded, mode: Mode) -> Html:
    found = classes.counted(run, mode)
    if found is None:
        return Html("")
    first, last = found.steps
    at = f"step {last}" if first == last else f"steps {first} to {last}"
    parts: list[object] = [tag("h3", f"{_MODES[mode].capitalize()}, {at}"), _distribution(found)]
    if found.correct:
        parts.append(tag("p", f"Accuracy: {share(classes.accuracy(found))} of these rows."))
        lines = classes.recalls(run, mode, COLOURS)
        parts.append(chart(f"Share of each class predicted right, {_MODES[mode]}", lines))
    if found.confusion is not None:
        parts += [_matrix(found.confusion), _measured(found.confusion)]
    return joined(*parts)


def _distribution(found: classes.Classes) -> Html:
    total, largest = sum(found.labels.values()), max(found.labels.values())
    shown = sorted(found.labels, key=lambda label: (-found.labels[label], label))[:_MAX_BARS]
    rows = [
        (
            f"class {label}",
            found.labels[label] / max(largest, 1),
            f"{found.labels[label]:,} ({share(found.labels[label] / max(total, 1))})"
            + (f", predicted {found.predicted.get(label, 0):,}" if found.predicted else ""),
        )
        for label in sorted(shown)
    ]
    more = len(found.labels) - len(shown)
    rest = tag("p", f"and {more} rarer classes") if more else ""
    return joined(tag("h4", "Distribution of the labels"), bars(("class", "rows"), rows), rest)


def _matrix(matrix: IntArray) -> Html:
    heads = tag("tr", tag("th", "label \\ predicted"), *(tag("th", i) for i in range(len(matrix))))
    rows = [
        tag("tr", tag("th", label), *(_cell(int(n), int(counts.sum())) for n in counts))
        for label, counts in enumerate(matrix)
    ]
    made = tag("table", tag("thead", heads), tag("tbody", *rows), class_="matrix")
    about = tag("h4", "Confusion: rows by label and prediction")
    return joined(about, tag("div", made, class_="wide"))


def _cell(count: int, total: int) -> Html:
    part = count / total if total > 0 else 0.0
    shade = min(_SHADES, max(0, round(_SHADES * part)))
    return tag("td", f"{count:,}", class_=f"h{shade}", title=share(part))


def _measured(matrix: IntArray) -> Html:
    rows: list[tuple[object, ...]] = [
        (f"class {one.label}", one.count, share(one.precision), share(one.recall), share(one.f1))
        for one in classes.measures(matrix)
    ]
    return joined(
        tag("h4", "Measures"), table(("class", "rows", "precision", "recall", "F1"), rows)
    )
