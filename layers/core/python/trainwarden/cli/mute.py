"""``trainwarden mute``: keep judging a job, but announce nothing more of it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from trainwarden.cli.commands import OK, load, place_of
from trainwarden.cli.render import Output
from trainwarden.errors import BadInputError, ConflictError
from trainwarden.store.ports import JobRecord

ATTEMPTS = 5
EVERY_RULE = "*"


def mute(args: argparse.Namespace, out: Output) -> int:
    """Neither announce nor stop a job for one or all of its rules (it is still judged)."""
    place = place_of(args)
    if place.session is None:
        raise BadInputError("a job on AWS or the embedded AWS", "a folder", "nothing announces it")
    for attempt in range(ATTEMPTS):
        record = load(place, args.job)
        changed = muted(record, args.rule, undo=args.undo)
        try:
            place.ledger.commit(replace(changed, version=record.version + 1))
            break
        except ConflictError:  # the evaluator committed in between: read again
            if attempt == ATTEMPTS - 1:
                raise
    what = f"rule {args.rule} of {args.job}" if args.rule else args.job
    out.line(f"{what} is {'announced again' if args.undo else 'muted: still judged, no stop'}")
    return OK


def muted(record: JobRecord, rule: str | None, *, undo: bool) -> JobRecord:
    """Return the record with ``rule``, or every rule, muted or not.

    Raises:
        BadInputError: the job has no such rule.
    """
    names = [spec["key"] for spec in record.config.get("rules", [])]
    if rule is not None and rule not in names:
        raise BadInputError(f"a rule of {record.job} ({', '.join(names)})", rule)
    before = set(record.config.get("muted", []))
    word = {rule or EVERY_RULE}
    after = (before - word if rule else set()) if undo else before | word
    return replace(record, config={**record.config, "muted": sorted(after)})
