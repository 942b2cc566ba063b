"""One event of every kind, as it leaves trainwarden. Writes the golden files when run.

``python -m tests.events.samples`` from the repository's root, then read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainwarden import events
from trainwarden.config import JobConfig, resolve
from trainwarden.messages import compose
from trainwarden.model import Finding, Severity, Status, Verdict
from trainwarden.policy import respond
from trainwarden.store.ports import JobRecord

FOLDER = Path(__file__).parent
JOB = "resnet50-2026-11-30"
NOW = 1_796_040_000.0
RULES = (
    "ClassImbalance DeadRelu ExplodingTensor LossNotDecreasing Overfit StalledTrainingRule "
    "UnchangedTensor VanishingGradient"
)
TAGS = {
    "trainwarden:rules": RULES,
    "trainwarden:stop": "allow",
    "trainwarden:notify": "ml@example.com",
    "trainwarden:rule:VanishingGradient": "action=stop",
}


def record(tags: dict[str, str]) -> JobRecord:
    """Return a SageMaker job with these tags."""
    return JobRecord(
        job=JOB,
        opened_at=NOW - 3_600,
        config=resolve(tags=tags).to_json(),
        training={"instance": "ml.p3.2xlarge"},
        manifest={"run": "run-1", "framework": "torch 2.13.0", "sagemaker": True},
        outcome="Completed",
    )


RECORD = record(TAGS)
# What each rule may say: rule, code, severity, finding.
FOUND = {
    "vanishing-gradient": Finding(
        step=420,
        tensor="gradient/layer1.0.conv1.weight",
        value=3.1e-9,
        limit=2.1e-6,
        message="mean |gradient| falls from 0.0021 in the last of 53 weight matrices to 3.1e-09 in "
        "the first, 5.8 decades, since step 400, and the loss learns nothing",
        first_step=400,
        evidence={"matrices": 53, "decades": 5.83},
        remedies=(
            "Put residual connections or normalisation layers between the layers.",
            "Replace sigmoid and tanh by ReLU-like activations with Kaiming initialisation.",
        ),
        confidence=0.9,
        severity=Severity.ERROR,
        rule="VanishingGradient",
        code="GRD001",
    ),
    "exploding-tensor": Finding(
        step=1_250,
        tensor="activation/layer3.2.relu",
        value=4_096.0,
        limit=0.0,
        message="activation/layer3.2.relu holds 4096 NaN at step 1250, the first of 12 tensors",
        first_step=1_250,
        evidence={"nan": 4_096, "pinf": 0, "loss": float("nan"), "others": 11},
        remedies=("Look for log, sqrt or division by zero in front of it; add eps.",),
        severity=Severity.ERROR,
        rule="ExplodingTensor",
        code="NUM001",
    ),
    "dead-relu": Finding(
        step=900,
        tensor="activation/features.4",
        value=81.25,
        limit=50.0,
        message="52 of 64 channels of activation/features.4 were never active in 38400 positions "
        "since step 300",
        first_step=300,
        evidence={"channels": 64, "dead": 52, "positions": 38_400},
        remedies=("Lower the learning rate; a large step pushed the biases below zero.",),
        severity=Severity.WARNING,
        rule="DeadRelu",
        code="ACT001",
    ),
    "unchanged-tensor": Finding(
        step=30,
        tensor="encoder.embed.weight",
        value=0.0,
        limit=1e-5,
        message="encoder.embed.weight has not changed in 3 saved steps since step 10",
        first_step=10,
        evidence={"trainable": True, "tensors": ["encoder.embed.weight", "encoder.pos.weight"]},
        remedies=("Pass all parameters to the optimizer.",),
        severity=Severity.WARNING,
        rule="UnchangedTensor",
        code="UPD001",
    ),
    "loss-not-decreasing": Finding(
        step=600,
        tensor="loss",
        value=2.3021,
        limit=2.2334,
        message="the loss has stayed at 2.302 for 500 steps since step 100",
        first_step=100,
        evidence={"median_before": 2.3026, "median_now": 2.3021},
        remedies=("Try a learning rate ten times larger and ten times smaller.",),
        severity=Severity.WARNING,
        rule="LossNotDecreasing",
        code="LOS001",
    ),
    "overfit": Finding(
        step=4_000,
        tensor="loss",
        value=0.91,
        limit=0.52,
        message="validation loss has risen from 0.52 to 0.91 in 4 passes while training loss fell",
        first_step=2_800,
        evidence={"passes": 4, "training": 0.11},
        remedies=("Stop at the best checkpoint: step 2800.",),
        severity=Severity.WARNING,
        rule="Overfit",
        code="LOS002",
    ),
    "class-imbalance": Finding(
        step=60,
        tensor="label/0",
        value=99.0,
        limit=10.0,
        message="class 0 was seen 99 times as often as class 1 in 1000 labels",
        first_step=0,
        evidence={"counts": {"0": 990, "1": 10}},
        remedies=("Weight the loss by class, or sample the rare class more often.",),
        severity=Severity.WARNING,
        rule="ClassImbalance",
        code="DAT001",
    ),
    "stalled-training": Finding(
        step=77,
        tensor="",
        value=2_412.0,
        limit=1_800.0,
        message="no step for 40 minutes; the longest pause before was 12 s",
        first_step=77,
        evidence={"median_gap_s": 10.2, "longest_gap_s": 12.0},
        remedies=("Look at the job's log: a data loader or a collective may hang.",),
        severity=Severity.ERROR,
        rule="StalledTrainingRule",
        code="SYS001",
    ),
}
CRASH = Finding(
    step=12,
    tensor="",
    value=0.0,
    limit=0.0,
    message="the rule Overfit itself crashed and is not called again: KeyError: 'best'",
    first_step=12,
    remedies=("Report this with the run's folder: it is a defect of the rule, not the job.",),
    severity=Severity.WARNING,
    rule="Overfit",
    code="ENG001",
)
NO_DATA = (
    f"expected saved steps below jobs/{JOB}/, found nothing; call "
    "trainwarden.watch(model, optimizer) in the training script, and attach the managed policy of "
    "the stack to the training role"
)
ACTIONS = {
    "stopped": "SageMaker says: Stopping",
    "refused": "the job has no tag trainwarden:stop=allow",
    "dry_run": "VanishingGradient found issues and the job carries trainwarden:stop=allow",
    "failed": "SageMaker.SageMakerException: Rate exceeded",
}


def verdict_event(finding: Finding, tags: dict[str, str] | None = None) -> events.Event:
    """Return the event that a finding changed its rule's verdict to ``IssuesFound``."""
    job = record(TAGS if tags is None else tags)
    config = JobConfig.from_json(job.config)
    severity = finding.severity or Severity.WARNING
    crashed = finding.code == "ENG001"
    verdict = Verdict(
        finding.rule,
        finding.code,
        Status.ERROR if crashed else Status.ISSUES_FOUND,
        since_step=-1 if crashed else finding.first_step,
        findings=1,
        inspected=40,
        note=finding.message,
    )
    return events.verdict_changed(
        job,
        verdict,
        previous=Status.IN_PROGRESS,
        finding=finding,
        response=respond(config, verdict, severity, stop_on="error"),
        time=NOW,
    )


def grouped_event(finding: Finding, *, cause: str = "", explains: str = "") -> events.Event:
    """Return the event of a verdict of a group: of its cause, or of one of its symptoms."""
    config = JobConfig.from_json(RECORD.config)
    verdict = Verdict(
        finding.rule,
        finding.code,
        Status.ISSUES_FOUND,
        since_step=finding.first_step,
        findings=1,
        inspected=40,
        note=finding.message,
        severity=finding.severity,
        cause=cause,
    )
    above = Verdict(cause, "GRD001", Status.ISSUES_FOUND, severity=Severity.ERROR)
    below = Verdict(explains, "LOS001", Status.ISSUES_FOUND, since_step=100, cause=finding.rule)
    response = respond(
        config, verdict, finding.severity or Severity.WARNING, cause=above if cause else None
    )
    return events.verdict_changed(
        RECORD,
        verdict,
        previous=Status.IN_PROGRESS,
        finding=finding,
        response=response._replace(explains=(below,) if explains else (), stopping=cause),
        time=NOW,
    )


def set_event() -> events.Event:
    """Return the event of a set of rules whose condition holds."""
    tags = {**TAGS, "trainwarden:set:generalization": "Overfit ClassImbalance at_least=2"}
    job = record(tags)
    told = "2 of 2 rules found issues (at least 2 had to): ClassImbalance since step 0, Overfit"
    finding = Finding(
        4_000,
        "",
        2.0,
        2.0,
        f"{told} since step 2800",
        2_800,
        {"rules": {"ClassImbalance": 0, "Overfit": 2_800}},
        ("Stop at the best checkpoint: step 2800.",),
        severity=Severity.WARNING,
        rule="generalization",
        code="SET001",
    )
    verdict = Verdict(
        finding.rule, finding.code, Status.ISSUES_FOUND, 2_800, 2, 40, finding.message
    )
    members = [
        Verdict("Overfit", "LOS002", Status.ISSUES_FOUND, since_step=2_800),
        Verdict("ClassImbalance", "DAT001", Status.ISSUES_FOUND, since_step=0),
    ]
    response = respond(JobConfig.from_json(job.config), verdict, Severity.WARNING)
    return events.verdict_changed(
        job,
        verdict,
        previous=Status.IN_PROGRESS,
        finding=finding,
        response=response._replace(explains=tuple(members)),
        time=NOW,
    )


def without_finding(verdict: Verdict, previous: Status | None = None) -> events.Event:
    """Return a verdict's event that no finding stands behind."""
    config = JobConfig.from_json(RECORD.config)
    return events.verdict_changed(
        RECORD,
        verdict,
        previous=previous,
        finding=None,
        response=respond(config, verdict, Severity.WARNING, stop_on="error"),
        time=NOW,
    )


def capture_events() -> Iterator[tuple[str, events.Event]]:
    """Yield a verdict that asks for detail, and what came of that."""
    tags = {**TAGS, "trainwarden:rule:DeadRelu": "action=capture-more"}
    yield "verdict-capture-more", verdict_event(replace(FOUND["dead-relu"], step=910), tags)
    asked = {"steps": 50, "tensors": ["activation/features.4"]}
    for outcome, reason, more in (
        ("asked", "the next 50 steps are saved in detail", asked),
        ("failed", "expected to change the control document, found AccessDenied", {}),
    ):
        result = {"outcome": outcome, "reason": reason, **more}
        told = events.action_taken(
            RECORD, kind="capture-more", rule="DeadRelu", result=result, time=NOW
        )
        yield f"action-capture-{outcome}", told


def samples() -> Iterator[tuple[str, events.Event]]:
    """Yield file name and event."""
    yield "job-opened", events.job_opened(RECORD, time=NOW)
    wrong = {
        "trainwarden:stop": "Allow",
        "trainwarden:rule:Overfit": "patiense=3",
        "trainwarden:rules": "Overfit VanishingGardient",
    }
    yield "job-opened-with-problems", events.job_opened(record(wrong), time=NOW)
    finding = FOUND["exploding-tensor"]
    yield (
        "finding-recorded",
        events.finding_recorded(RECORD, finding, severity=Severity.ERROR, time=NOW),
    )
    for name, finding in FOUND.items():
        yield f"verdict-{name}", verdict_event(finding)
    cause = replace(FOUND["vanishing-gradient"], step=430)
    symptom = replace(FOUND["loss-not-decreasing"], step=610)
    yield "verdict-cause", grouped_event(cause, explains="LossNotDecreasing")
    yield "verdict-symptom", grouped_event(symptom, cause="VanishingGradient")
    yield "verdict-rule-set", set_event()
    yield "verdict-without-permission", verdict_event(FOUND["exploding-tensor"], {})
    muted = {"trainwarden:mute": "Overfit"}
    yield "verdict-muted", verdict_event(FOUND["overfit"], muted)
    yield "verdict-rule-crashed", verdict_event(CRASH)
    no_data = Verdict(
        "NoData", "SYS002", Status.ISSUES_FOUND, since_step=0, findings=1, note=NO_DATA
    )
    yield "verdict-no-data", without_finding(no_data)
    healthy = Verdict("Overfit", "LOS002", Status.NO_ISSUES_FOUND, inspected=12)
    yield "verdict-no-issues", without_finding(healthy, Status.IN_PROGRESS)
    for outcome, reason in ACTIONS.items():
        result = {"outcome": outcome, "reason": reason}
        yield (
            f"action-{outcome.replace('_', '-')}",
            events.action_taken(
                RECORD, kind="stop", rule="VanishingGradient", result=result, time=NOW
            ),
        )
    yield from capture_events()
    yield (
        "data-rejected",
        events.data_rejected(
            RECORD,
            key=f"jobs/{JOB}/steps/0000/0000000003.tw",
            expected="a safetensors header of at most 1048576 bytes",
            found="18446744073709551615 bytes",
            remedy="",
            time=NOW,
        ),
    )
    yield (
        "data-lost",
        events.data_lost(
            RECORD,
            worker=0,
            first_seq=3,
            last_seq=5,
            reason="not there 300 s after a later one came",
            time=NOW,
        ),
    )
    yield (
        "job-closed",
        events.job_closed(
            RECORD,
            (
                Verdict("Overfit", "LOS002", Status.NO_ISSUES_FOUND, inspected=12),
                Verdict("DeadRelu", "ACT001", Status.NO_ISSUES_FOUND, note="inspected nothing: …"),
                Verdict("ExplodingTensor", "NUM001", Status.ISSUES_FOUND, 1_250, 3, 40, "NaN"),
            ),
            time=NOW,
        ),
    )


def message_text(event: events.Event) -> str:
    """Return what a person gets, as one text; empty if nobody gets anything."""
    message = compose(event["detail-type"], event["detail"])
    if message is None:
        return ""
    return f"Subject: {message.subject}\nSMS: {message.sms}\n\n{message.email}"


if __name__ == "__main__":
    for file, event in samples():
        (FOLDER / f"{file}.json").write_text(
            json.dumps(event, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        )
        if text := message_text(event):
            (FOLDER / f"{file}.txt").write_text(text)
