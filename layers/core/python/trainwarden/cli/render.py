"""What commands print: tables for a person, JSON for a machine, from the same rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

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


PIPED_WIDTH = 160  # characters; a pipe or a file has no width of its own


class Output:
    """Prints rows either as a table or as one JSON document."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        wide = None if sys.stdout.isatty() else PIPED_WIDTH
        self.console = Console(soft_wrap=False, highlight=False, width=wide)

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
            self.console.print(table(rows, columns))
            texts = [row for row in rows if detail and row.get(detail)]
            if texts:
                self.console.print()
                self.console.print(table(texts, (columns[0], detail), header=False))
        else:
            self.console.print(empty)

    def document(self, value: Json) -> None:
        """Print one JSON document."""
        json.dump(value, sys.stdout, indent=2, default=str)
        sys.stdout.write("\n")

    def line(self, text: str) -> None:
        """Say something to a person; silent in JSON."""
        if not self.as_json:
            self.console.print(text, markup=False)

    def markdown(self, text: str) -> None:
        """Print a page."""
        self.console.print(Markdown(text))


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
