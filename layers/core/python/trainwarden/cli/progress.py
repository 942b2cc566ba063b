"""How far a long command is, on stderr: what it prints stays whole for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

MANY = 20  # things; fewer are told on a terminal only
T = TypeVar("T")


def followed(
    items: Iterable[T], total: int, what: str, console: Console | None = None
) -> Iterator[T]:
    """Pass items through and tell how many came: a bar on a terminal, else a line each tenth.

    Args:
        items: They come one by one.
        total: How many there will be.
        what: What is done with them: ``replaying``.
        console: Where to tell; stderr if None.
    """
    console = console or Console(stderr=True, highlight=False)
    if console.is_terminal:
        if total == 1:
            yield from items
        else:
            yield from track(items, what, total, console=console, transient=True)
        return
    for count, item in enumerate(items, 1):
        yield item
        if total >= MANY and count * 10 // total > (count - 1) * 10 // total:
            console.print(f"{what}: {count} of {total}", markup=False)
