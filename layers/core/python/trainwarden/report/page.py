"""The page as a whole. Its policy allows nothing to be loaded or run, whatever a name holds."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.resources import files

from trainwarden.report import boosted, learning, spread, verdicts
from trainwarden.report.markup import Html, joined, tag
from trainwarden.report.reading import Recorded
from trainwarden.report.values import Judged

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(judged: Judged, run: Recorded) -> str:
    """Return the report of a run, one HTML document."""
    marks = verdicts.marks(judged)
    body = [
        tag("header", tag("h1", judged.job), _facts(judged, run)),
        verdicts.section(judged),
        learning.curves(run, marks),
        learning.labels(run),
        spread.curves(run),
        boosted.importances(run),
        boosted.residuals(run),
        spread.errors(run),
        boosted.trees(run),
        tag("footer", f"Trainwarden {judged.version}, {judged.made}"),
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{judged.job}: training report"),
        tag("style", _style()),
    ]
    page = tag("html", tag("head", *head), tag("body", tag("main", *body)), lang="en")
    return joined(Html("<!DOCTYPE html>\n"), page, "\n")


def _style() -> Html:
    return Html(files(__package__).joinpath("style.css").read_text("utf-8"))


def _facts(judged: Judged, run: Recorded) -> Html:
    manifest, steps = run.manifest, [obs.step for obs in run.points]
    times = [obs.time for obs in run.points]
    told = {
        "State": judged.state,
        "Where": judged.place,
        "Framework": manifest.framework,
        "Workers": len(manifest.workers),
        "Saved": f"{len(steps)} observations, steps {min(steps)} to {max(steps)}" if steps else
        "nothing",
        "Time": f"{_when(min(times))} to {_when(max(times))}" if times else "",
        "Unreadable": f"{run.unread} objects, left out here" if run.unread else "",
    }  # fmt: skip
    facts = [joined(tag("dt", name), tag("dd", value)) for name, value in told.items() if value]
    return tag("dl", *facts)


def _when(seconds: float) -> str:
    try:
        moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
