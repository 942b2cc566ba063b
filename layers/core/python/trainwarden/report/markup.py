"""HTML that escapes everything by itself: a name in a training script may be anything."""

from __future__ import annotations

import html
import math
import re

# Control characters, lone surrogates, and marks that turn the direction of writing.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)
_ROUND = 1e6  # up to it a whole number is written in full
_VOID = frozenset({"meta", "br"})
Attribute = str | float | None


class Html(str):
    """Text that is HTML already; only this module makes it."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return anything as text of a page; what is HTML already stays."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))


def tag(name: str, /, *children: object, **attributes: Attribute) -> Html:
    """Return an element; children that are not HTML are escaped, None among attributes is left out.

    ``class_`` means ``class``, other underscores are hyphens.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{''.join(text(child) for child in children)}</{name}>")


def joined(*parts: object) -> Html:
    """Return parts one after the other, what is not HTML escaped."""
    return Html("".join(text(part) for part in parts))


def _value(value: str | float) -> str:
    return text(f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value)


def number(value: object) -> str:
    """Return a number in four digits, anything else as it is; a dash for nothing."""
    if value is None or value == "":
        return "\N{EN DASH}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    whole = isinstance(value, int) or (abs(value) < _ROUND and value == int(value))
    if whole:
        return f"{int(value):,}"
    return f"{value:.4g}"


def share(value: float) -> str:
    """Return a part of the whole, from 0 to 1, in percent."""
    return "\N{EN DASH}" if math.isnan(value) else f"{100 * value:.1f} %"


def table(head: tuple[str, ...], rows: list[tuple[object, ...]], class_: str = "") -> Html:
    """Return a table; a wide one scrolls by itself."""
    cells = tag("tr", *(tag("th", one, scope="col") for one in head))
    body = joined(*(tag("tr", *(_cell(one) for one in row)) for row in rows))
    made = tag("table", tag("thead", cells), tag("tbody", body), class_=class_ or None)
    return tag("div", made, class_="wide")


def _cell(value: object) -> Html:
    if isinstance(value, Html):
        return tag("td", value)
    return tag("td", number(value), class_="number" if isinstance(value, int | float) else None)
