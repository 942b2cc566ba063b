"""Incidents, data that was set aside or never came, as sentences for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainwarden.store.ports import Entry


def sentences(incidents: Iterable[Entry]) -> Iterator[str]:
    """Say of each incident what it is about and why."""
    for entry in incidents:
        body = entry.body
        if "first_seq" in body:
            what = f"objects {body['first_seq']} to {body['last_seq']} are given up"
            yield f"{what}: {body.get('reason') or 'they never came'}"
        else:
            why = f"expected {body.get('expected')}, found {body.get('found')}"
            remedy = f"; {body['remedy']}" if body.get("remedy") else ""
            yield f"{body.get('key', entry.id)} was set aside: {why}{remedy}"
