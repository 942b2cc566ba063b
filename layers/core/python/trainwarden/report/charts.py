"""Curves and bars as inline SVG, in the colours of the page's style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trainwarden.report.markup import Html, joined, number, tag
from trainwarden.report.values import Line

COLOURS = 8  # that the page's style has; further curves are left out and counted
WIDTH, HEIGHT = 640.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 12.0, 12.0, 30.0
MAX_POINTS = 600
_LOG_FROM = 50.0  # largest over smallest value from which on an axis is logarithmic


class Mark(NamedTuple):
    """A vertical line at a step."""

    step: int
    label: str


class Axis(NamedTuple):
    """A scale from ``low`` to ``high`` in data, mapped to ``start`` to ``end`` in the picture."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return where a value lies in the picture."""
        low, high = self._told(self.low), self._told(self.high)
        return self.start + (self._told(value) - low) / (high - low) * (self.end - self.start)

    def _told(self, value: float) -> float:
        return math.log10(value) if self.log else value / 4  # a quarter: differences stay finite

    def ticks(self) -> list[float]:
        """Return round values within the scale."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            stride = max(1, (last - first) // 4)
            powers = [10.0**power for power in range(first, last + 1, stride)]
            return powers if len(powers) > 1 else [self.low, self.high]
        return _round_values(self.low, self.high)


def _round_values(low: float, high: float) -> list[float]:
    raw = high / 4 - low / 4
    if not 0 < raw < 1e300:  # noqa: PLR2004 - beyond it, powers of ten overflow
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    stride = next((m * power for m in (1, 2, 5) if m * power >= raw), 10 * power)
    first = math.ceil(low / stride)
    return [i * stride for i in range(first, first + 8) if i * stride <= high * (1 + 1e-12)]


def chart(
    title: str, lines: Sequence[Line], marks: Sequence[Mark] = (), *, parts: bool = False
) -> Html:
    """Return a figure of curves over steps with its legend; nothing where no number is finite.

    ``parts``: both axes are shares from 0 to 1 instead.
    """
    drawn = [line for line in lines if any(map(math.isfinite, line.values))]
    shown = drawn[:COLOURS]
    if not shown:
        return Html("")
    finite = [v for line in shown for v in line.values if math.isfinite(v)]
    steps = [s for line in shown for s in line.steps]
    across = Axis(*_room(min(steps), max(steps), 0.0), LEFT, WIDTH - RIGHT)
    log = not parts and min(finite) > 0 and max(finite) / _LOG_FROM > min(finite)
    low, high = (min(finite), max(finite)) if log else _room(min(finite), max(finite), 0.05)
    up = Axis(low, high, HEIGHT - BOTTOM, TOP, log)
    if parts:
        across, up = across._replace(low=0.0, high=1.0), up._replace(low=0.0, high=1.0)
    drawing = [tag("title", title), *_grid(across, up, whole=not parts), *_marked(marks, across)]
    drawing += [_curve(line, position, across, up) for position, line in enumerate(shown)]
    picture = tag("svg", *drawing, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img", class_="chart")
    caption = tag("figcaption", title, " (logarithmic)" if log else "", _hidden(drawn))
    return tag("figure", caption, picture, _legend(shown, marks))


def _hidden(lines: Sequence[Line]) -> str:
    more = len(lines) - COLOURS
    return f", the first {COLOURS} of {len(lines)}" if more > 0 else ""


def _room(low: float, high: float, share: float) -> tuple[float, float]:
    """Return bounds with some room; never equal."""
    if low == high:
        half = abs(low) / 2 or 0.5
        return (low - half, high + half) if abs(low) < 1e300 else (low / 2, high / 2 + low)  # noqa: PLR2004 - may overflow
    room = share * (high / 2 - low / 2)
    return max(low - room, -1.7e308), min(high + room, 1.7e308)


def _grid(across: Axis, up: Axis, *, whole: bool) -> Iterator[Html]:
    for value in up.ticks():
        y = up.at(value)
        yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
        yield tag("text", number(value), x=LEFT - 6, y=y + 4, text_anchor="end")
    for value in across.ticks():
        if not whole or value == int(value):
            x = across.at(value)
            told = number(int(value) if value == int(value) else value)
            yield tag("text", told, x=x, y=HEIGHT - 10, text_anchor="middle")


def _marked(marks: Sequence[Mark], across: Axis) -> Iterator[Html]:
    for mark in marks:
        if across.low <= mark.step <= across.high:
            x = across.at(mark.step)
            label = tag("title", mark.label)
            yield tag("line", label, x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="mark")


def _curve(line: Line, position: int, across: Axis, up: Axis) -> Html:
    """Draw a curve in pieces: where a value is not finite there is a gap, a lone value is a dot."""
    path, dots = list[str](), list[Html]()
    for piece in _pieces(line):
        places = [(across.at(step), up.at(value)) for step, value in _thinned(piece)]
        if len(places) == 1:
            dots.append(tag("circle", cx=places[0][0], cy=places[0][1], r="2.5"))
        else:
            path.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places))
    drawn = [tag("path", d="".join(path))] if path else []
    return tag("g", *drawn, *dots, class_=f"curve s{position}")


def _pieces(line: Line) -> Iterator[list[tuple[float, float]]]:
    piece: list[tuple[float, float]] = []
    for step, value in zip(line.steps, line.values, strict=True):
        if math.isfinite(value):
            piece.append((step, value))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _thinned(piece: list[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    """Keep the extremes of each of at most 300 stretches, so that no spike is lost."""
    if len(piece) <= MAX_POINTS:
        return piece
    length = math.ceil(len(piece) / (MAX_POINTS // 2))
    kept = [piece[0]]
    for start in range(0, len(piece), length):
        part = piece[start : start + length]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return [*kept, piece[-1]]


def _legend(lines: Sequence[Line], marks: Sequence[Mark]) -> Html:
    named = [
        tag("li", tag("span", "", class_=f"key s{position}"), line.name)
        for position, line in enumerate(lines)
    ]
    told = [tag("li", tag("span", "", class_="key mark"), mark.label) for mark in marks]
    return tag("ul", *named, *told, class_="legend")


def bars(head: tuple[str, str], rows: Sequence[tuple[str, float, str]]) -> Html:
    """Return a table of bars: a name, a part of the longest bar from 0 to 1, and a text."""
    cells = [
        tag(
            "tr",
            tag("td", name),
            tag("td", _bar(length), class_="bar"),
            tag("td", told, class_="number"),
        )
        for name, length, told in rows
    ]
    heads = joined(tag("th", head[0]), tag("th", ""), tag("th", head[1]))
    return tag(
        "div",
        tag("table", tag("thead", tag("tr", heads)), tag("tbody", *cells), class_="bars"),
        class_="wide",
    )


def _bar(length: float) -> Html:
    width = f"{100 * min(max(length, 0.0), 1.0):.1f}%" if math.isfinite(length) else "0%"
    return tag("svg", tag("rect", width=width, height="100%"), class_="bar", aria_hidden="true")
