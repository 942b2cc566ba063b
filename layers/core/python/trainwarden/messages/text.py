"""The small crafts of writing to people: numbers, columns, and lines that must not be too long."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# An event's ``data``. Nothing here imports numpy: the notifier starts without it.
Data = Mapping[str, Any]
MAX_SUBJECT = 99  # SNS: ASCII, fewer than 100 characters, no line breaks
MAX_SMS = 140
WIDTH = 78
MAX_LINES_OF_EVIDENCE = 8
_LABEL = 10
_LEAST_TENSOR = 12
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class Message(NamedTuple):
    """One message: ``subject`` ≤ 99 ASCII characters, ``sms`` ≤ 140, ``email`` plain text."""

    subject: str
    email: str
    sms: str


def line(value: object) -> str:
    """Return text without line breaks and control characters: it may come from a training job."""
    return _UNPRINTABLE.sub(" ", str(value)).strip()


def sentence(value: object) -> str:
    """Return ``value`` as a sentence: capital first, full stop last."""
    found = line(value)
    if not found:
        return ""
    first = found[0].upper() if found.split(" ", 1)[0].isalpha() else found[0]
    return first + found[1:] + ("" if found[-1] in ".!?…" else ".")


def ascii_only(value: object) -> str:
    """Return text in ASCII; telephones and subjects know nothing else for sure."""
    return line(value).replace("…", "..").encode("ascii", "replace").decode("ascii")


def short(value: object, chars: int) -> str:
    """Return text of at most ``chars`` characters; the end of a name tells more than its start."""
    found = line(value)
    if len(found) <= chars:
        return found
    head = max(0, (chars - 2) // 3)
    return found[:head] + ".." + found[len(found) - (chars - 2 - head) :]


def amount(value: Any) -> str:
    """Return a number with four digits, a list or mapping on one line, text as it is."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{line(key)} {amount(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(amount(item) for item in value)
    return line(value)


def columns(rows: Iterable[tuple[str, str]]) -> str:
    """Return label and text side by side; rows without text are left out, long text is wrapped."""
    done = []
    for label, text in rows:
        if text:
            start = f"  {label:<{_LABEL}} "
            rest = " " * len(start)
            done.append(textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=rest))
    return "\n".join(done)


def numbered(items: Iterable[object]) -> str:
    """Return a numbered list."""
    done = []
    for number, item in enumerate(items, start=1):
        start = f"  {number}. "
        done.append(
            textwrap.fill(sentence(item), WIDTH, initial_indent=start, subsequent_indent="     ")
        )
    return "\n".join(done)


def wrapped(text: str) -> str:
    """Return a paragraph."""
    return textwrap.fill(line(text), WIDTH, break_long_words=False, break_on_hyphens=False)


def indented(text: str) -> str:
    """Return a paragraph set in by two characters."""
    return textwrap.fill(line(text), WIDTH, initial_indent="  ", subsequent_indent="  ")


def commands(title: str, *lines: str) -> str:
    """Return a title and one command a line, never wrapped: people copy them."""
    return "\n".join([title, *(f"  {command}" for command in lines if command)])


def lines(*blocks: str) -> str:
    """Return blocks directly below one another; empty ones are left out."""
    return "\n".join(block for block in blocks if block)


def letter(*paragraphs: str) -> str:
    """Return paragraphs with an empty line between them; empty ones are left out."""
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def evidence(data: Data) -> str:
    """Return observed value, limit and the finding's further numbers, one a line, as columns."""
    rows = []
    if data.get("value") is not None and data.get("limit") is not None:
        rows.append(f"observed {amount(data['value'])}, limit {amount(data['limit'])}")
    further = dict(data.get("evidence") or {})
    others = further.pop("others", 0)
    for key, value in list(further.items())[:MAX_LINES_OF_EVIDENCE]:
        name, seconds = line(key).removesuffix("_s"), line(key).endswith("_s")
        rows.append(f"{name.replace('_', ' ')}: {short(amount(value), 200)}{' s' * seconds}")
    if others:
        rows.append(f"and {amount(others)} more like it at this step")
    labels = ["evidence"] + [""] * len(rows)
    return columns(zip(labels, rows, strict=False))


def subject(text: str, *optional: str) -> str:
    """Return a subject; optional parts are added as long as they fit."""
    whole = ascii_only(text)
    for part in optional:
        added = f" {ascii_only(part)}"
        if part and len(whole) + len(added) <= MAX_SUBJECT:
            whole += added
    return whole[:MAX_SUBJECT].rstrip() or "Trainwarden"


def sms(text: str, tensor: str = "", tail: str = "") -> str:
    """Return an SMS; the tail goes first when it gets too long, then the tensor is shortened."""
    head, end = ascii_only(text), ascii_only(tail)
    name = ascii_only(tensor)
    at = " at " if name else ""
    room = MAX_SMS - len(head) - len(at) - 1
    if end and room - len(end) - 1 < min(len(name), 24):
        end = ""
    room -= len(end) + 1 if end else 0
    if room < min(len(name), _LEAST_TENSOR):
        at, name = "", ""
    whole = f"{head}{at}{short(name, room)}." + (f" {end}" if end else "")
    return whole if len(whole) <= MAX_SMS else whole[: MAX_SMS - 2] + ".."
