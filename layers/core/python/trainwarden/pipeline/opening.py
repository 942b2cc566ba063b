"""The manifest of a job, its configuration, and the start of the fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainwarden import config, events
from trainwarden.errors import BadInputError
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.inbox import Inbox, Refused
from trainwarden.pipeline.outcome import Judge, judge_of
from trainwarden.pipeline.progress import Progress
from trainwarden.pipeline.values import Settings
from trainwarden.store import records
from trainwarden.store.ports import JobStatus, TrainingJob, TrainingJobs
from trainwarden.wire.keys import Key, ManifestKey, StepsKey
from trainwarden.wire.manifest import Manifest, layout_hash

KEPT_RUNS = 20
OVER = frozenset({"Completed", "Failed", "Stopped"})


@dataclass
class Opening:
    """Gets one job ready to fold.

    Attributes:
        draft: Takes what changes.
        inbox: Where the manifest is read.
        settings: The pipeline's.
        training: SageMaker, where this process may ask it.
    """

    draft: Draft
    inbox: Inbox
    settings: Settings
    training: TrainingJobs | None

    def judge(self) -> Judge:
        """Return how the job is judged; resolves its configuration if nobody did."""
        if not self.draft.record.config:
            self.draft.change(config=self._resolved(None).to_json())
        return judge_of(self.draft.record.config, self.settings.stop_on)

    def manifest(self, *, fresh: bool) -> Manifest | None:
        """Return the accepted manifest of the job's run; a new run's starts the job over.

        Args:
            fresh: True if what is remembered from an earlier call may be out of date.
        """
        record = self.draft.record
        known = self.inbox.known(record.job, str(record.manifest.get("run", "")))
        if known and not fresh and len(known.layout.tensors) >= record.manifest["tensors"]:
            return known
        found = self.inbox.manifest(record.job)
        if found is None:
            return known
        if isinstance(found, Refused):
            self._refuse(found.error, found.digest)
            return known
        objection = self._objection(found)
        if objection is not None:
            self._refuse(objection, f"run {found.run} {layout_hash(found.layout.tensors)}")
            return known
        if record.manifest and found.run != record.manifest["run"]:
            # SageMaker starts the container anew after a Spot interruption, users a script. What
            # the earlier run left where this one will write is invisible from now on.
            self._start_over(watermarks={}, superseded=(str(record.manifest["run"]),))
        rules = config.bounded(found.rules)
        self.draft.change(manifest={**found.summary(), "rules": rules})
        self.inbox.remember(found)
        return found

    def _objection(self, found: Manifest) -> BadInputError | None:
        """Return why a manifest must not replace the accepted one, None if it may."""
        record, progress = self.draft.record, self.draft.progress
        accepted = record.manifest
        if not accepted:
            return None
        if found.run == accepted["run"]:
            rows = accepted["tensors"]
            if layout_hash(found.layout.tensors[:rows]) == accepted["layout"]:
                return None
            what = f"a manifest that keeps the {rows} rows of the first one"
            return BadInputError(what, "other rows", "append rows, never change them")
        found_instead = ""
        if found.run in progress.superseded:
            found_instead = f"that of the earlier run {found.run}"
        elif found.identity != accepted["identity"]:
            found_instead = "that of another training job"
        elif record.training and record.status in {JobStatus.CLOSING, JobStatus.CLOSED}:
            found_instead = f"a new run {found.run} of a job that has ended"
        if not found_instead:
            return None
        expected = f"the manifest of run {accepted['run']}"
        return BadInputError(expected, found_instead, "give each run its own job name")

    def _refuse(self, error: BadInputError, digest: str) -> None:
        key = str(ManifestKey(self.draft.record.job))
        self.draft.reject_once("MANIFEST", key, error, digest)

    def goes_on(self, manifest: Manifest | None, keys: Iterable[Key]) -> bool:
        """Judge a run that goes on after its end anew, from where it goes on; True if it does.

        Outside SageMaker a script may be started again under the same name, and the hook goes on
        with the numbers. A job that SageMaker has ended does not: what comes is late.
        """
        record = self.draft.record
        if manifest is None or record.training:
            return False
        for key in keys:
            if isinstance(key, StepsKey) and key.worker in manifest.workers:
                seq = record.watermarks.get(key.worker, (0, 0))[0]
                found = self.inbox.steps(key, manifest.run, manifest.layout)
                if key.seq >= seq and found.steps is not None:
                    self._start_over(watermarks=record.watermarks)
                    return True
        return False

    def _start_over(
        self, *, watermarks: Mapping[int, tuple[int, int]], superseded: tuple[str, ...] = ()
    ) -> None:
        """Judge from the beginning what comes from the watermarks on."""
        draft, old = self.draft, self.draft.progress
        draft.progress = Progress(
            attempt=old.attempt + 1,
            superseded=(*old.superseded, *superseded)[-KEPT_RUNS:],
            training_since=old.training_since,
        )
        draft.change(
            status=JobStatus.ANNOUNCED,
            last_seen=draft.now,
            closing_at=0.0,
            gap_since=0.0,
            config={},
            watermarks=watermarks,
            ended={},
            rules={},
            outcome="",
            progress={"attempt": old.attempt + 1},  # what events are told apart by
        )

    def open(self, manifest: Manifest | None) -> bool:
        """Open the job if everything it is judged by is known; True if it is open."""
        if self.draft.progress.opened:
            return True
        if manifest is None or (manifest.sagemaker and not self._described()):
            return False
        resolved = self._resolved(manifest)
        self.draft.change(config=resolved.to_json())
        judge = self.judge()
        status = self.draft.record.status
        if status is not JobStatus.CLOSING:
            status = JobStatus.OPEN
        self.draft.change(status=status, rules=judge.engine.start(), last_seen=self.draft.now)
        self.draft.note(opened=True)
        self.draft.tell(events.job_opened(self.draft.record, time=self.draft.now))
        return True

    def _described(self) -> bool:
        """True if SageMaker's description is known, or was waited for long enough."""
        record = self.draft.record
        if record.training:
            return True
        described = self._ask()
        if described is not None:
            self.describe(described)
            return True
        return self.draft.now >= record.opened_at + self.settings.training_info_deadline_s

    def _ask(self) -> TrainingJob | None:
        """Ask SageMaker, where there is one and it answers this process."""
        try:
            return self.training.describe(self.draft.record.job) if self.training else None
        except BadInputError:  # access denied: the event will bring the description
            return None

    def is_over(self) -> bool:
        """True if SageMaker, where it may be asked, says that the job has ended.

        For the case that its event was lost.
        """
        described = self._ask()
        if described is None or described.status not in OVER:
            return False
        self.describe(described)
        return True

    def describe(self, training: TrainingJob) -> None:
        """Take SageMaker's description; once steps are folded, the rules stay as they are."""
        draft = self.draft
        draft.change(training=records.training_to_json(training))
        if training.secondary_status == "Training" and not draft.progress.training_since:
            draft.note(training_since=draft.now)
        if not draft.progress.opened:
            return
        before = config.JobConfig.from_json(draft.record.config)
        after = self._resolved_from(training, draft.record.manifest.get("rules"))
        if draft.progress.steps:
            after = replace(after, rules=before.rules)
        elif after.rules != before.rules:
            draft.change(config=after.to_json())
            draft.change(rules=self.judge().engine.start())
        draft.change(config=after.to_json())

    def _resolved(self, manifest: Manifest | None) -> config.JobConfig:
        training = records.training_from_json(self.draft.record.training)
        rules = config.bounded(manifest.rules) if manifest else None
        return self._resolved_from(training, rules)

    def _resolved_from(
        self, training: TrainingJob | None, manifest_rules: object
    ) -> config.JobConfig:
        return config.resolve(
            tags=training.tags if training else {},
            debug_rules=training.debug_rules if training else (),
            debug_hook=training.debug_hook if training else {},
            manifest_rules=manifest_rules,
            defaults=self.settings.defaults,
        )
