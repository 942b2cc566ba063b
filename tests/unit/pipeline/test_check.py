"""Recorded runs judged in a folder, without any cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipeline.world import JOB, NAN, START, World, obs, steps_object
from trainwarden.errors import NotFoundError
from trainwarden.model import Status
from trainwarden.pipeline import check, jobs_in, judge_all, verdicts
from trainwarden.store.folder import FolderLedger, FolderObjects
from trainwarden.store.memory import MemoryLedger, MemoryObjects
from trainwarden.store.ports import EntryKind, JobStatus
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import End, Manifest


def record_run(folder: Path, job: str = JOB, *, loss: float = NAN, ended: bool = True) -> None:
    objects = FolderObjects(folder)
    layout = obs(0).layout
    manifest = Manifest(job, "run-1", layout=layout, created=START)
    objects.put(str(ManifestKey(job)), manifest.to_bytes())
    for seq in range(4):
        body = steps_object(seq, [obs(seq, loss if seq == 3 else 1.0)], job=job)
        objects.put(str(StepsKey(job, 0, seq)), body)
    if ended:
        objects.put(str(EndKey(job, 0)), End(job, 0, "run-1", 3).to_bytes())


def test_the_only_run_of_a_folder_is_judged_to_its_end(tmp_path: Path) -> None:
    record_run(tmp_path)
    ledger = MemoryLedger()
    record = check(FolderObjects(tmp_path), ledger=ledger, now=lambda: START)
    found = {verdict.rule: verdict for verdict in verdicts(record)}
    assert record.status is JobStatus.CLOSED
    assert found["ExplodingTensor"].status is Status.ISSUES_FOUND
    assert found["ExplodingTensor"].since_step == 3
    assert [entry.body["step"] for entry in ledger.entries(JOB, EntryKind.FINDING)] == [3]


def test_a_run_that_was_killed_is_judged_by_what_it_left(tmp_path: Path) -> None:
    record_run(tmp_path, ended=False)
    record = check(FolderObjects(tmp_path), now=lambda: START)
    assert (record.status, record.outcome) == (JobStatus.CLOSED, "no end object")
    assert any(verdict.status is Status.ISSUES_FOUND for verdict in verdicts(record))


def test_a_run_of_sagemaker_that_was_copied_here_needs_no_sagemaker() -> None:
    world = World()
    world.sagemaker_manifest()
    world.steps(0, obs(0))
    world.end(0)
    assert check(world.objects, now=lambda: START).status is JobStatus.CLOSED


def test_judging_twice_changes_nothing(tmp_path: Path) -> None:
    record_run(tmp_path / "data")
    ledger = FolderLedger(tmp_path / "ledger")
    objects = FolderObjects(tmp_path / "data")
    first = check(objects, ledger=ledger, now=lambda: START)
    assert check(objects, ledger=ledger, now=lambda: START) == first


def test_one_of_several_runs_is_chosen_by_name(tmp_path: Path) -> None:
    record_run(tmp_path, "good-run", loss=1.0)
    record_run(tmp_path, "bad-run")
    objects = FolderObjects(tmp_path)
    assert jobs_in(objects) == ("bad-run", "good-run")
    assert check(objects, "good-run", now=lambda: START).job == "good-run"
    with pytest.raises(NotFoundError, match="several runs: name one of bad-run, good-run"):
        check(objects)
    with pytest.raises(NotFoundError, match="no run other"):
        check(objects, "other")


def test_an_empty_folder_says_what_was_expected() -> None:
    with pytest.raises(NotFoundError, match=r"expected jobs/<job>/manifest\.tw"):
        check(MemoryObjects())


def test_names_that_only_look_alike_and_foreign_files_are_told_apart() -> None:
    objects = MemoryObjects(dict.fromkeys(("jobs/a b/x", "jobs/a/m", "jobs/a-b/m", "x/y"), b""))
    assert set(jobs_in(objects)) == {"a", "a-b"}


def test_runs_that_go_on_are_judged_so_far_and_later_to_their_end(tmp_path: Path) -> None:
    record_run(tmp_path, ended=False)
    objects, ledger = FolderObjects(tmp_path), MemoryLedger()
    assert judge_all(objects, ledger, now=lambda: START) == (JOB,)
    record = ledger.load(JOB)
    assert record is not None
    assert record.status is JobStatus.OPEN
    objects.put(str(EndKey(JOB, 0)), End(JOB, 0, "run-1", 3).to_bytes())
    judge_all(objects, ledger, now=lambda: START)
    record = ledger.load(JOB)
    assert record is not None
    assert record.status is JobStatus.CLOSED
