"""What the rules say: a block for each root cause with its evidence, then the others in short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainwarden.model import Json
from trainwarden.report.charts import Mark
from trainwarden.report.markup import Html, joined, number, table, tag
from trainwarden.report.values import Judged, Row

_ILL = frozenset({"IssuesFound", "Error"})
_SHOWN = 8  # findings of a rule
_SURE = 0.995
_NOTHING = "inspected nothing: "


def causes(judged: Judged) -> list[Row]:
    """Return the verdicts with issues that stand for themselves."""
    return [row for row in judged.rows if row["status"] in _ILL and not row["cause"]]


def marks(judged: Judged) -> list[Mark]:
    """Return where each root cause began."""
    return [
        Mark(int(row["since_step"]), f"{row['rule']} since step {row['since_step']}")
        for row in causes(judged)
        if row["since_step"] is not None
    ]


def section(judged: Judged) -> Html:
    """Return everything that the rules say."""
    found = causes(judged)
    parts: list[object] = [_block(judged, row) for row in found]
    if not judged.rows:
        parts.append(tag("p", "No rule has judged this run."))
    elif not found:
        parts.append(tag("p", "No rule found an issue.", class_="fine"))
    parts += _short(judged)
    blind = [row for row in judged.rows if row["status"] == "not evaluated"]
    if blind:
        parts.append(tag("h3", "Not evaluated: nothing to look at"))
        told: dict[str, list[str]] = {}
        for row in blind:
            what = str(row["note"] or "").removeprefix(_NOTHING)
            told.setdefault(what, []).append(str(row["rule"]))
        rows = [(", ".join(names), what) for what, names in told.items()]
        parts.append(table(("rule", "what to capture"), [*rows], "text"))
    if judged.problems:
        parts.append(tag("h3", "Settings that were not understood"))
        parts.append(tag("ul", *(tag("li", one) for one in judged.problems)))
    return tag("section", tag("h2", "Verdicts"), *parts)


def _short(judged: Judged) -> Iterable[Html]:
    heads = {
        "InProgress": "Still looking",
        "NoIssuesFound": "No issues",
        "Stopped": "Stopped before they were done",
    }
    for status, head in heads.items():
        names = [str(row["rule"]) for row in judged.rows if row["status"] == status]
        if names:
            yield tag("p", tag("b", f"{head}: "), ", ".join(names))


def _block(judged: Judged, row: Row) -> Html:
    symptoms = [one for one in judged.rows if one["cause"] == row["rule"]]
    parts: list[object] = [_headline(row, "h3")]
    if row["note"]:
        parts.append(tag("p", row["note"]))
    if symptoms:
        told = [
            tag("li", _headline(one, "span"), f": {one['note']}" if one["note"] else "")
            for one in symptoms
        ]
        parts += [tag("h4", "Explains"), tag("ul", *told)]
    if row["remedies"]:
        remedies = [tag("li", one) for one in row["remedies"]]
        parts += [tag("h4", "What to try, most likely first"), tag("ol", *remedies)]
    parts += [_evidence(judged, one) for one in (row, *symptoms)]
    return tag("article", *parts, class_=f"verdict {_loudness(row)}")


def _loudness(row: Row) -> str:
    """Return the severity as a class of the page's style: a known word, whatever the row holds."""
    return str(row["severity"]) if row["severity"] in {"info", "warning", "error"} else "error"


def _headline(row: Row, name: str) -> Html:
    since = "" if row["since_step"] is None else f" since step {row['since_step']}"
    about = [str(row[key]) for key in ("severity", "code") if row[key]]
    if row["confidence"] is not None and float(row["confidence"]) < _SURE:
        about.append(f"{round(100 * float(row['confidence']))} % sure")
    words = (tag("b", row["rule"]), f" {row['status']}{since} ", tag("small", ", ".join(about)))
    return tag(name, *words)


def _evidence(judged: Judged, row: Row) -> Html:
    found = [one for one in judged.findings if one.get("rule") == row["rule"]]
    if not found:
        return Html("")
    rows: list[tuple[object, ...]] = [
        (one.get("step"), one.get("tensor"), one.get("value"), one.get("limit"),
         joined(one.get("message", ""), _numbers(one.get("evidence"))))
        for one in found[:_SHOWN]
    ]  # fmt: skip
    total = max(len(found), int(row["findings"] or 0))
    more = f", the first {len(rows)} of {total} findings" if total > len(rows) else ""
    head = tag("h4", f"Evidence of {row['rule']}{more}")
    return joined(head, table(("step", "tensor", "value", "limit", "what was seen"), rows))


def _numbers(evidence: Json) -> Html:
    if not isinstance(evidence, Mapping) or not evidence:
        return Html("")
    told = ", ".join(f"{name.replace('_', ' ')} {number(v)}" for name, v in evidence.items())
    return tag("small", told, class_="evidence")
