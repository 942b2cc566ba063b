"""The manifest of a job, its configuration, and the start of the fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trainwarden import config, events
from trainwarden.custom.asking import NOBODY, Asking
from trainwarden.errors import BadInputError
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.inbox import Inbox, Kept, Refused
from trainwarden.pipeline.outcome import Judge, judge_of
from trainwarden.pipeline.progress import Progress
from trainwarden.pipeline.sealing import known_key, not_sealed
from trainwarden.pipeline.values import Settings
from trainwarden.policy import run_key
from trainwarden.store import records
from trainwarden.store.ports import JobStatus, TrainingJob, TrainingJobs
from trainwarden.wire.keys import Key, ManifestKey, StepsKey
from trainwarden.wire.manifest import Manifest, layout_hash
from trainwarden.wire.seal import fingerprint

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
        asking: Asks for what custom rules say.
    """

    draft: Draft
    inbox: Inbox
    settings: Settings
    training: TrainingJobs | None
    asking: Asking = NOBODY

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
        record, key, seal = (
            self.draft.record,
            known_key(self.draft.record),
            self.draft.progress.sealed,
        )
        kept = self.inbox.known(record.job, str(record.manifest.get("run", "")), sealed=seal)
        known = kept.manifest if kept else None
        checked = kept is not None and (kept.checked, kept.sealed) == (
            fingerprint(key) if key else "",
            seal,
        )
        enough = known is not None and len(known.layout.tensors) >= record.manifest["tensors"]
        if enough and checked and not fresh:
            return known
        read = self.inbox.manifest(record.job, seal=key)
        if read is None:
            return known
        if isinstance(read, Refused):
            self._refuse(read.error, read.digest)
            return known
        found = read.manifest
        objection = self._objection(read)
        if objection is not None:
            digest = f"run {found.run} {layout_hash(found.layout.tensors)} {read.sealed}"
            self._refuse(objection, digest)
            return known
        self._accept(read)
        rules = config.bounded(found.rules)
        self.draft.change(manifest={**found.summary(), "rules": rules})
        self.inbox.remember(read)
        return found

    def _accept(self, read: Kept) -> None:
        """Start over where a manifest is a new run's, or the first one that is sealed."""
        record, progress, run = self.draft.record, self.draft.progress, read.manifest.run
        accepted = str(record.manifest["run"]) if record.manifest else run
        # SageMaker starts the container anew after a Spot interruption, users a script. What
        # the earlier run left where this one will write is invisible from now on.
        superseded = (accepted,) if accepted != run else ()
        first = self._is_first_seal(read)
        if superseded or (first and progress.opened):
            self._start_over(watermarks={}, superseded=superseded)
        if first:
            earlier = tuple(name for name in self.draft.progress.superseded if name != run)
            self.draft.note(sealed=read.sealed, superseded=earlier)

    def _is_first_seal(self, read: Kept) -> bool:
        """True if a manifest makes the job sealed: whatever was accepted before may be forged."""
        over = self.draft.record.status is JobStatus.CLOSED
        return bool(read.sealed) and not self.draft.progress.sealed and not over

    def _objection(self, read: Kept) -> BadInputError | None:  # noqa: PLR0911 - one a case
        """Return why a manifest must not replace the accepted one, None if it may."""
        record, progress, found = self.draft.record, self.draft.progress, read.manifest
        accepted = record.manifest
        if progress.sealed and not read.sealed:
            return not_sealed("a manifest")
        if self._is_first_seal(read):
            return None
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
            sealed=old.sealed,
        )
        # SageMaker's word that the job has ended stands.
        ending = bool(draft.record.training) and draft.record.status is JobStatus.CLOSING
        draft.change(
            status=JobStatus.CLOSING if ending else JobStatus.ANNOUNCED,
            last_seen=draft.now,
            closing_at=draft.record.closing_at if ending else 0.0,
            gap_since=0.0,
            config={},
            watermarks=watermarks,
            ended={},
            rules={},
            outcome=draft.record.outcome if ending else "",
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
        return self.draft.now >= record.opened_at + self.settings.training_info_deadline_s

    def asked(self, manifest: Manifest | None) -> bool:
        """Ask SageMaker for the description that is still missing; True if it came now."""
        if manifest is None or not manifest.sagemaker:
            return False
        if self.draft.progress.opened or self.draft.record.training:
            return False
        described = self._ask()
        if described is None:
            return False
        self.describe(described)
        return True

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
        sealed = draft.progress.sealed
        if sealed and sealed != fingerprint(run_key(training)):
            draft.note(sealed="")  # the tag with the nonce was changed: seen afresh, from the start
        if training.secondary_status == "Training" and not draft.progress.training_since:
            draft.note(training_since=draft.now)
        if not draft.progress.opened:
            return
        before = config.JobConfig.from_json(draft.record.config)
        after = self._resolved_from(training, draft.record.manifest.get("rules"))
        # A person may have muted the running job since; SageMaker's next event must not undo it.
        after = replace(after, muted=tuple(sorted({*before.muted, *after.muted})))
        if draft.progress.steps:
            after = replace(after, rules=before.rules, sets=before.sets)
        elif after.rules != before.rules:
            draft.change(config=after.to_json())
            draft.change(rules=self.judge().engine.start())
        draft.change(config=after.to_json())

    def _resolved(self, manifest: Manifest | None) -> config.JobConfig:
        training = records.training_from_json(self.draft.record.training)
        rules = config.bounded(manifest.rules) if manifest else None
        resolved = self._resolved_from(training, rules)
        lets = manifest is not None and "stop" in manifest.summary()
        return replace(resolved, stop=True) if lets else resolved

    def _resolved_from(
        self, training: TrainingJob | None, manifest_rules: object
    ) -> config.JobConfig:
        if self.settings.rules is not None:
            return config.resolve(tags={}, manifest_rules=self.settings.rules)
        return config.resolve(
            tags=training.tags if training else {},
            debug_rules=training.debug_rules if training else (),
            debug_hook=training.debug_hook if training else {},
            manifest_rules=manifest_rules,
            defaults=self.settings.defaults,
        )
