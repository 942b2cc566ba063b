"""What commands print: tables for a person, JSON for a machine, from the same rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from trainwarden.events.strict import Limits, plain
from trainwarden.model import Json

STYLES = {
    "IssuesFound": "bold red",
    "Error": "bold magenta",
    "NoIssuesFound": "green",
    "not evaluated": "yellow",
    "InProgress": "cyan",
    "Stopped": "dim",
    "error": "red",
    "warning": "yellow",
    "ok": "green",
    "fail": "bold red",
}


PIPED_WIDTH = 10_000  # characters: in a pipe or a file a line is a line, nothing wraps
_PAGE_WIDTH = 100  # of prose
_WHOLE = Limits(10**9, 10**9, 100)  # nothing is cut


class Output:
    """Prints rows either as a table or as one JSON document."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._piped = not sys.stdout.isatty()
        wide = PIPED_WIDTH if self._piped else None
        self._console = Console(soft_wrap=False, highlight=False, width=wide)

    def print(self, what: RenderableType = "", *, width: int | None = None) -> None:
        """Print something; in a pipe without the blanks that fill lines up."""
        if not self._piped:
            self._console.print(what, markup=False)
            return
        with self._console.capture() as captured:
            self._console.print(what, markup=False, width=width)
        for line in captured.get().splitlines():
            sys.stdout.write(f"{line.rstrip()}\n")

    def rows(
        self,
        rows: Sequence[Mapping[str, Json]],
        columns: Sequence[str],
        empty: str,
        *,
        detail: str = "",
    ) -> None:
        """Print rows with these columns; ``empty`` is said instead of a table without rows.

        ``detail`` names a long text of the rows: below the table, each after its first column.
        """
        if self.as_json:
            self.document(list(rows))
        elif rows:
            self.print(table(rows, columns))
            texts = [row for row in rows if detail and row.get(detail)]
            if texts:
                self.print()
                self.print(table(texts, (columns[0], detail), header=False))
        else:
            self.print(empty)

    def document(self, value: Json) -> None:
        """Print one JSON document."""
        try:
            text = json.dumps(value, indent=2, default=str, allow_nan=False)
        except ValueError:  # a rule's evidence may hold infinities
            text = json.dumps(plain(value, _WHOLE), indent=2)
        sys.stdout.write(f"{text}\n")

    def line(self, text: str) -> None:
        """Say something to a person; silent in JSON."""
        if not self.as_json:
            self.print(text)

    def markdown(self, text: str) -> None:
        """Print a page."""
        self.print(Markdown(text), width=_PAGE_WIDTH)


def table(
    rows: Sequence[Mapping[str, Json]], columns: Sequence[str], *, header: bool = True
) -> Table:
    """Lay rows out as a table; the last column wraps."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    for name in columns:
        made.add_column(name.replace("_", " "), overflow="fold", no_wrap=name != columns[-1])
    for row in rows:
        made.add_row(*(_cell(row.get(name)) for name in columns))
    return made


def _cell(value: Json) -> Text:
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, float):
        return Text(f"{value:.4g}")
    text = str(value)
    return Text(text, style=STYLES.get(text, ""))


def when(seconds: float) -> str | None:
    """Write seconds since the epoch as UTC; None for 0."""
    if not seconds:
        return None
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
