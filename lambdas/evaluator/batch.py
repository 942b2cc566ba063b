"""One invocation's notices: each job is folded once, however many of them name it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from urllib.parse import unquote_plus

from aws_lambda_powertools.utilities.data_classes import S3Event, SQSRecord

from lambdas.shared import obs
from trainwarden.errors import KeyGrammarError
from trainwarden.pipeline import Ingested, Pipeline
from trainwarden.wire import keys

RESERVE_MS = 8_000  # a fold that has begun may commit before Lambda ends the invocation


class Batch:
    """Folds the jobs that the notices of one invocation name.

    A notice comes after its object was written, and S3 reads what was written: whoever folded a
    job to its end in this invocation has folded the objects of all its notices.
    """

    def __init__(self, pipeline: Pipeline, remaining_ms: Callable[[], int]) -> None:
        self._pipeline, self._remaining_ms = pipeline, remaining_ms
        self._done: set[str] = set()

    def on_message(self, record: SQSRecord) -> None:
        """Fold the job of every object named in a message; raising sends it alone back."""
        for key, written in _notices(record):
            try:
                job = keys.parse(key).job
            except KeyGrammarError:
                job = ""
            if job in self._done and job:
                continue
            obs.logger.append_keys(job=job)
            if not self._fold(key) and job:
                self._done.add(job)
                obs.seconds(obs.FOLD_LAG_SECONDS, max(0.0, time.time() - written))

    def _fold(self, key: str) -> bool:
        """Fold the key's job as far as time allows; tell whether anything is left to fold."""
        until = time.time() + (self._remaining_ms() - RESERVE_MS) / 1000
        found = self._pipeline.notice(key, until=until)
        _measure(found)
        while found.more and time.time() < until:
            found = self._pipeline.ingest(found.job, until=until)
            _measure(found)
        return found.more  # then the sweeper goes on, or this job's next notice


def _notices(record: SQSRecord) -> Iterator[tuple[str, float]]:
    """Yield key and time (seconds since the epoch) of each object; nothing for other messages."""
    try:
        body = record.json_body
    except ValueError:
        body = None
    if not isinstance(body, dict) or "Records" not in body:
        # s3:TestEvent, sent when the notification is configured, or nothing of S3's at all.
        obs.logger.info("not a notice", body=record.body[:200])
        return
    for notice in S3Event(body).records:
        moment = notice.event_time.replace("Z", "+00:00")
        yield unquote_plus(notice.s3.get_object.key), obs.epoch(moment)


def _measure(found: Ingested) -> None:
    obs.count(
        {
            obs.OBJECTS_FOLDED: found.folded,
            obs.FINDINGS_RECORDED: found.findings,
            obs.DATA_REJECTED: found.rejected,
            obs.GAPS_SKIPPED: found.lost,
            obs.CONFLICTS: found.conflicts,
            obs.UPLOADS_DROPPED: sum(found.dropped.values()),
        }
    )
    obs.logger.info("ingested", extra={"ingested": vars(found)})
