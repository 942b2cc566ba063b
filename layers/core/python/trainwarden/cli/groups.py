"""Verdicts as a person reads them: a group for each root cause, then the others in short.

A rule that looked at nothing comes with what to capture for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from trainwarden.cli.render import STYLES, Output
from trainwarden.cli.views import ILL, NOTHING
from trainwarden.model import Json

Row = Mapping[str, Json]
_SURE = 0.995
_HEADS = {
    "InProgress": "still looking",
    "NoIssuesFound": "no issues",
    "Stopped": "stopped before they were done",
}


def tell(rows: Sequence[Row], out: Output, empty: str) -> None:
    """Print all verdicts of a job; ``rows`` are in the order of ``views.verdict_rows``."""
    tell_judged(rows, out, empty)
    tell_blind([rows], out)


def tell_judged(rows: Sequence[Row], out: Output, empty: str) -> None:
    """Print the verdicts of rules that looked at something."""
    if not rows:
        out.line(empty)
    for row in rows:
        if row["status"] in ILL and not row["cause"]:
            group(row, [one for one in rows if one["cause"] == row["rule"]], out)
    tell_fine(rows, out)


def tell_fine(rows: Sequence[Row], out: Output) -> None:
    """Print which rules looked at something and found nothing, by name alone."""
    for status, head in _HEADS.items():
        names = [str(row["rule"]) for row in rows if row["status"] == status]
        if names:
            _print(out, Text.assemble((head, STYLES.get(status, "")), f": {', '.join(names)}"))


def tell_blind(runs: Collection[Sequence[Row]], out: Output) -> None:
    """Print the rules that had nothing to look at, by what would change that, for all runs."""
    count: Counter[tuple[str, str]] = Counter()
    for row in (one for run in runs for one in run if one["status"] == "not evaluated"):
        count[str(row["rule"]), str(row["note"] or "").removeprefix(NOTHING)] += 1
    told: dict[str, list[str]] = {}
    for (name, what), number in count.items():
        some = f" (in {number} of {len(runs)} runs)" if number < len(runs) else ""
        told.setdefault(what, []).append(f"{name}{some}")
    if told:
        _print(out, Text("not evaluated, nothing to look at:", style=STYLES["not evaluated"]))
    for what, names in told.items():
        _print(out, Text(f"{', '.join(names)}: {what}"), 2)


def group(cause: Row, symptoms: Iterable[Row], out: Output) -> None:
    """Print a verdict, what it explains, and what to try."""
    _print(out, _headline(cause))
    if cause["note"]:
        _print(out, Text(str(cause["note"])), 2)
    below = list(symptoms)
    if below:
        _print(out, Text("explains", style="bold"), 2)
    for row in below:
        _print(out, Text.assemble(_headline(row), f": {row['note']}" if row["note"] else ""), 4)
    remedies = cause["remedies"] or ()
    if remedies:
        _print(out, Text("what to try, most likely first", style="bold"), 2)
    for number, remedy in enumerate(remedies, start=1):
        _print(out, Text(f"{number}. {remedy}"), 4)
    out.print()


def _headline(row: Row) -> Text:
    since = "" if row["since_step"] is None else f" since step {row['since_step']}"
    status = str(row["status"])
    return Text.assemble(
        (str(row["rule"]), "bold"),
        " ",
        (status, STYLES.get(status, "")),
        f"{since} ({', '.join(_about(row))})",
    )


def _about(row: Row) -> Iterable[str]:
    if row["severity"]:
        yield str(row["severity"])
    yield str(row["code"])
    confidence: Any = row["confidence"]
    if confidence is not None and confidence < _SURE:
        yield f"{round(100 * confidence)} % sure"


def _print(out: Output, text: Text, indent: int = 0) -> None:
    out.print(Padding(text, (0, 0, 0, indent), expand=False))
