"""One invocation's notices: each job is folded once, however many of them name it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from aws_lambda_powertools.utilities.data_classes import S3Event, SQSEvent, SQSRecord
from aws_lambda_powertools.utilities.data_classes.s3_event import S3EventRecord

from lambdas.shared import obs
from lambdas.shared.measures import measure
from trainwarden.errors import KeyGrammarError, RetryableError
from trainwarden.pipeline import Pipeline
from trainwarden.wire import keys

RESERVE_MS = 8_000  # a fold that has begun may commit before Lambda ends the invocation


class Notice(NamedTuple):
    """One object: its job (empty for a key that is none of ours), its key and when it came."""

    job: str
    key: str
    written: float


class Batch:
    """Folds the jobs that the notices of one invocation name.

    A notice comes after its object was written, and S3 reads what was written: who folds a job
    with the keys of all its notices has done with every one of them.
    """

    def __init__(
        self, event: Mapping[str, Any], pipeline: Pipeline, remaining_ms: Callable[[], int]
    ) -> None:
        self._pipeline, self._remaining_ms = pipeline, remaining_ms
        self._waiting: dict[str, list[Notice]] = {}
        self._began = False
        for record in SQSEvent(dict(event)).records:
            for notice in notices(record):
                if notice.job:
                    self._waiting.setdefault(notice.job, []).append(notice)

    def on_message(self, record: SQSRecord) -> None:
        """Fold the jobs that a message names; raising sends it back, and it alone."""
        for job in dict.fromkeys(notice.job for notice in notices(record)):
            found = self._waiting.get(job)
            if not job:
                obs.logger.warning("foreign key", key=[n.key for n in notices(record)])
            elif found:
                obs.logger.append_keys(job=job)
                self._fold(job, found)
                # Only now: after an error the job's other messages try again.
                del self._waiting[job]

    def _fold(self, job: str, found: list[Notice]) -> None:
        """Fold one job within its share of the time that is left: none may take the others'.

        Raises:
            RetryableError: the jobs before it took all the time; its messages go back.
        """
        left_s = (self._remaining_ms() - RESERVE_MS) / 1000
        if left_s <= 0 and self._began:
            raise RetryableError(f"no time is left for {job} in this invocation")
        self._began = True
        until = time.time() + left_s / max(1, len(self._waiting))
        ingested = self._pipeline.ingest(job, keys=[n.key for n in found], until=until)
        while ingested.more and time.time() < until:
            ingested = ingested.plus(self._pipeline.ingest(job, until=until))
        # If there is still more, the sweeper goes on, or the job's next notice.
        measure(ingested)
        obs.logger.info("ingested", ingested=vars(ingested))
        if ingested.folded:  # else the notices were duplicates, and their age says nothing
            oldest = min(notice.written for notice in found)
            obs.seconds(obs.FOLD_LAG_SECONDS, max(0.0, time.time() - oldest))


def notices(record: SQSRecord) -> list[Notice]:
    """Return what a message tells of; nothing for a message that is no notice of S3."""
    try:
        return [_notice(one) for one in S3Event(record.json_body).records]
    except (AttributeError, KeyError, TypeError, ValueError):
        # s3:TestEvent, sent when the notification is configured, or nothing of S3's at all.
        obs.logger.info("not a notice", body=record.body[:200])
        return []


def _notice(one: S3EventRecord) -> Notice:
    key = unquote_plus(one.s3.get_object.key)  # Powertools leaves S3's form encoding in place
    try:
        job = keys.parse(key).job
    except KeyGrammarError:
        job = ""
    return Notice(job, key, obs.epoch(one.event_time))
