"""Runs written straight to a store, and pages taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser

from trainwarden.model import Observation
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.codec import MAX_STEPS, StepsObject, encode
from trainwarden.wire.keys import ManifestKey, StepsKey
from trainwarden.wire.manifest import Manifest

JOB = "train-1"
VOID = {"meta", "br"}


def written(
    *runs: Sequence[Observation], framework: str = "torch 2.8", run: str = "run-1"
) -> MemoryObjects:
    """One sequence of observations for each worker."""
    store = MemoryObjects()
    layout = runs[0][0].layout
    workers = tuple(range(len(runs)))
    manifest = Manifest(
        JOB, run, framework=framework, world_size=len(runs), workers=workers, layout=layout
    )
    store.put(str(ManifestKey(JOB)), manifest.to_bytes())
    for worker, told in enumerate(runs):
        for seq, start in enumerate(range(0, len(told), MAX_STEPS)):
            part = tuple(told[start : start + MAX_STEPS])
            body = encode(StepsObject(JOB, worker, seq, run, part))
            store.put(str(StepsKey(JOB, worker, seq)), body)
    return store


class Page(HTMLParser):
    """A page as a browser would see it; every element must be closed by itself, in order.

    Attributes:
        tags: Name and attributes of every element.
        words: All text, style sheets apart.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(f"{word} " for word in self.words).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def classes(self) -> set[str]:
        return {c for _, attributes in self.tags for c in (attributes.get("class") or "").split()}
