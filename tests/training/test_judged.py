"""The whole way on one machine: a real model, the hook, a folder, the pipeline, a verdict."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import trainwarden
from tests.training.loops import digits
from trainwarden.model import Status
from trainwarden.pipeline import check, judge_all, verdicts
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import EntryKind, JobStatus

STEPS = 150


def train(model: nn.Module, out: Path, job: str, *, lr: float = 0.1, steps: int = STEPS) -> None:
    """Train as a user would, with one line of ours."""
    x, y = digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    with trainwarden.watch(model, optimizer, loss_fn, job=job, out=out, save_interval=5):
        for step in range(steps):
            at = step * 64 % 512
            optimizer.zero_grad()
            loss_fn(model(x[at : at + 64]), y[at : at + 64]).backward()
            optimizer.step()


def healthy() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def vanishing() -> nn.Module:
    """Ten sigmoid layers: hardly any gradient reaches the first."""
    torch.manual_seed(0)
    layers = [layer for _ in range(10) for layer in (nn.Linear(64, 64), nn.Sigmoid())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def test_a_vanishing_gradient_is_found_and_told_with_numbers(tmp_path: Path) -> None:
    train(vanishing(), tmp_path, "deep-sigmoid", steps=60)
    ledger = MemoryLedger()
    record = check(FolderObjects(tmp_path), ledger=ledger)
    found = {verdict.rule: verdict for verdict in verdicts(record)}
    assert record.status is JobStatus.CLOSED
    assert record.outcome == "finished"
    assert found["VanishingGradient"].status is Status.ISSUES_FOUND
    assert found["ExplodingTensor"].status is Status.NO_ISSUES_FOUND
    findings = [e.body for e in ledger.entries("deep-sigmoid", EntryKind.FINDING)]
    (vanished,) = [body for body in findings if body["rule"] == "VanishingGradient"]
    assert vanished["tensor"].startswith("gradient/0.")
    assert vanished["remedies"]
    events = [
        event
        for entry in ledger.entries("deep-sigmoid", EntryKind.OUTBOX)
        for event in entry.body["events"]
    ]
    assert events[0]["detail-type"] == "Job Opened"
    assert events[0]["detail"]["data"]["problem_count"] == 0
    assert events[-1]["detail-type"] == "Job Closed"
    assert "VanishingGradient" in events[-1]["detail"]["data"]["issues"]


def test_a_healthy_run_has_no_finding_and_every_saved_step_was_judged(tmp_path: Path) -> None:
    train(healthy(), tmp_path, "healthy")
    ledger = MemoryLedger()
    record = check(FolderObjects(tmp_path), ledger=ledger)
    assert not list(ledger.entries("healthy", EntryKind.FINDING))
    assert not list(ledger.entries("healthy", EntryKind.INCIDENT))
    inspected = {verdict.rule: verdict.inspected for verdict in verdicts(record)}
    assert inspected["VanishingGradient"] == record.progress["steps"] > STEPS // 5


def test_a_diverging_run_names_the_step(tmp_path: Path) -> None:
    train(healthy(), tmp_path, "diverging", lr=1e30, steps=40)
    record = check(FolderObjects(tmp_path))
    found = {verdict.rule: verdict for verdict in verdicts(record)}
    assert found["ExplodingTensor"].status is Status.ISSUES_FOUND
    assert 0 <= found["ExplodingTensor"].since_step <= 40


def test_two_runs_in_one_folder_are_two_jobs(tmp_path: Path) -> None:
    train(healthy(), tmp_path, "first", steps=10)
    train(healthy(), tmp_path, "second", steps=10)
    assert judge_all(FolderObjects(tmp_path), MemoryLedger()) == ("first", "second")


def test_a_script_run_twice_under_one_name_is_judged_both_times(tmp_path: Path) -> None:
    ledger, objects = MemoryLedger(), FolderObjects(tmp_path)
    train(healthy(), tmp_path, "again", steps=20)
    judge_all(objects, ledger)
    first = ledger.load("again")
    train(healthy(), tmp_path, "again", lr=1e30, steps=20)
    judge_all(objects, ledger)
    second = ledger.load("again-2")  # the hook says so, and keeps them apart
    assert first is not None
    assert second is not None
    assert (first.status, second.status) == (JobStatus.CLOSED, JobStatus.CLOSED)
    found = {verdict.rule: verdict.status for verdict in verdicts(second)}
    assert found["ExplodingTensor"] is Status.ISSUES_FOUND
    assert not list(ledger.entries("again", EntryKind.INCIDENT))
