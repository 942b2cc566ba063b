"""What a verdict asks for, and every reason for which a stop is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden import policy
from trainwarden.config import resolve
from trainwarden.engine import Engine
from trainwarden.model import Json, Severity, Status, Verdict
from trainwarden.policy import ActionRequest, Decision
from trainwarden.store.ports import JobRecord, JobStatus, TrainingJob
from trainwarden.wire.identity import identity
from trainwarden.wire.seal import fingerprint, seal_key

JOB = "resnet50-2026-11-30"
ARN = f"arn:aws:sagemaker:eu-central-1:123456789012:training-job/{JOB}"
ALLOW = {"trainwarden:stop": "allow"}
FOUND = Verdict("Overfit", "LOS002", Status.ISSUES_FOUND, since_step=10, findings=1, inspected=9)


def asked(
    verdict: Verdict = FOUND,
    tags: dict[str, str] | None = None,
    severity: Severity = Severity.ERROR,
    stop_on: str = "error",
) -> dict[str, tuple[bool, str]]:
    config = resolve(tags=ALLOW if tags is None else tags)
    found = policy.requests(config, verdict, severity, stop_on=stop_on)
    return {request.kind: (request.allowed, request.reason) for request in found}


def test_a_severe_verdict_of_a_job_that_allows_it_is_told_and_asks_for_a_stop() -> None:
    assert asked() == {
        "notify": (True, "not muted"),
        "stop": (True, "severity error; the job allows it"),
    }


@pytest.mark.parametrize("status", [Status.IN_PROGRESS, Status.NO_ISSUES_FOUND, Status.STOPPED])
def test_a_verdict_without_issues_asks_for_nothing(status: Status) -> None:
    assert asked(replace(FOUND, status=status)) == {}


def test_a_crashed_rule_is_told_and_stops_nothing() -> None:
    tags = {**ALLOW, "trainwarden:rule:Overfit": "action=stop"}
    assert asked(replace(FOUND, status=Status.ERROR), tags) == {"notify": (True, "not muted")}


@pytest.mark.parametrize(
    ("severity", "stop_on", "stops"),
    [
        (Severity.ERROR, "error", True),
        (Severity.WARNING, "error", False),
        (Severity.INFO, "error", False),
        (Severity.ERROR, "warning", True),
        (Severity.WARNING, "warning", True),
        (Severity.INFO, "warning", False),
        (Severity.ERROR, "never", False),
        (Severity.ERROR, "nonsense", False),
    ],
)
def test_the_deployment_says_how_severe_a_verdict_must_be(
    severity: Severity,
    stop_on: str,
    stops: bool,  # noqa: FBT001 (a table)
) -> None:
    assert ("stop" in asked(severity=severity, stop_on=stop_on)) is stops


@pytest.mark.parametrize(
    ("action", "stops"),
    [("stop", True), ("stop+notify", True), ("notify", False), ("none", False)],
)
def test_a_rules_own_action_beats_the_deployment(action: str, stops: bool) -> None:  # noqa: FBT001 (a table)
    tags = {**ALLOW, "trainwarden:rule:Overfit": f"action={action}"}
    assert ("stop" in asked(tags=tags, stop_on="never")) is stops
    assert ("stop" in asked(tags=tags, stop_on="warning")) is stops


@pytest.mark.parametrize(
    ("action", "kinds"),
    [
        ("capture-more", {"notify": True, "capture-more": True}),
        ("capture-more+stop", {"notify": True, "capture-more": True, "stop": False}),
        ("stop", {"notify": True, "stop": False}),
    ],
)
def test_detail_is_asked_for_by_action_and_needs_no_tag(
    action: str, kinds: dict[str, bool]
) -> None:
    found = asked(tags={"trainwarden:rule:Overfit": f"action={action}"})
    assert {kind: allowed for kind, (allowed, _) in found.items()} == kinds


def test_a_muted_rule_and_one_whose_cause_asks_already_ask_for_no_detail() -> None:
    wants = {"trainwarden:rule:Overfit": "action=capture-more"}
    assert asked(tags={**wants, "trainwarden:mute": "Overfit"})["capture-more"] == (False, "muted")
    config = resolve(tags={**wants, "trainwarden:rule:DeadRelu": "action=capture-more"})
    cause = Verdict("DeadRelu", "ACT001", Status.ISSUES_FOUND)
    assert policy.respond(config, FOUND, Severity.ERROR).captures
    assert not policy.respond(config, FOUND, Severity.ERROR, cause=cause).captures


def test_without_the_tag_a_stop_is_asked_for_and_not_allowed() -> None:
    allowed, reason = asked(tags={})["stop"]
    assert not allowed
    tag = "the job has no tag trainwarden:stop=allow"
    assert reason == f"{tag} (outside SageMaker: watch(stop='allow'))"


def test_a_muted_rule_is_neither_told_nor_stops() -> None:
    found = asked(tags={**ALLOW, "trainwarden:mute": "Overfit"})
    assert {kind: allowed for kind, (allowed, _) in found.items()} == {
        "notify": False,
        "stop": False,
    }


def test_a_verdict_that_is_no_rules_own_is_only_told() -> None:
    no_data = replace(FOUND, rule="NoData", code="SYS002")
    assert set(asked(no_data)) == {"notify"}


def test_who_is_told_are_the_jobs_addresses_and_the_rules_own() -> None:
    tags = {
        "trainwarden:notify": "team@example.com",
        "trainwarden:rule:Overfit": "action=email:me@example.com",
    }
    config = resolve(tags=tags)
    assert policy.addresses(config, "Overfit") == ("team@example.com", "me@example.com")
    assert policy.addresses(config, "DeadRelu") == ("team@example.com",)
    assert policy.addresses(config, "NoData") == ("team@example.com",)


def test_a_response_holds_all_of_it() -> None:
    response = policy.respond(resolve(tags=ALLOW), FOUND, Severity.ERROR)
    assert response.stops
    assert response.severity is Severity.ERROR
    assert response.actions[1] == ActionRequest(
        "stop", "Overfit", allowed=True, reason="severity error; the job allows it"
    )
    assert not policy.respond(resolve(tags={}), FOUND, Severity.ERROR).stops


def training(**changes: Json) -> TrainingJob:
    job = TrainingJob(
        name=JOB,
        arn=ARN,
        status="InProgress",
        tags={**ALLOW, "trainwarden:nonce": "n1"},
        hyperparameters={"lr": "0.1"},
    )
    return replace(job, **changes)


def record(tags: dict[str, str] | None = None, status: Status = Status.ISSUES_FOUND) -> JobRecord:
    config = resolve(tags=ALLOW if tags is None else tags)
    state = Engine(config.rules).start()
    if "Overfit" in state["rules"]:
        state["rules"]["Overfit"]["status"] = status.value
    return JobRecord(
        job=JOB,
        config=config.to_json(),
        manifest={"identity": identity(ARN, {"lr": "0.1"}, "n1"), "sagemaker": True},
        rules=state,
        progress={"sealed": fingerprint(seal_key(ARN, {"lr": "0.1"}, "n1"))},
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_stop_is_allowed_when_everything_is_as_it_should_be(dry_run: bool) -> None:  # noqa: FBT001 (both)
    decision = policy.authorize_stop(record(), training(), "Overfit", dry_run=dry_run)
    assert decision == Decision(
        allowed=True,
        dry_run=dry_run,
        reason="Overfit found issues and the job carries trainwarden:stop=allow",
    )


@pytest.mark.parametrize(
    ("job", "about", "reason"),
    [
        (record(), None, "knows no training job"),
        (record(), training(name=JOB + "-2"), f"described {JOB}-2, not {JOB}"),
        (record(), training(status="Completed"), "already Completed"),
        (record(), training(status="Stopping"), "already Stopping"),
        (record(), training(tags={"trainwarden:nonce": "n1"}), "no tag trainwarden:stop=allow"),
        (
            record(),
            training(tags={"trainwarden:stop": "Allow", "trainwarden:nonce": "n1"}),
            "no tag trainwarden:stop=allow",
        ),
        (record(), training(arn=ARN + "x"), "another identity"),
        (record(), training(hyperparameters={"lr": "0.2"}), "another identity"),
        (record(), training(tags=ALLOW), "another identity"),
        (replace(record(), manifest={}), training(), "another identity"),
        (replace(record(), manifest={"identity": ""}), training(), "another identity"),
        (replace(record(), progress={}), training(), "not sealed by this run"),
        (replace(record(), progress={"sealed": ""}), training(), "not sealed by this run"),
        (replace(record(), progress={"sealed": "0" * 32}), training(), "not sealed by this run"),
        (record({"trainwarden:rules": "DeadRelu"}), training(), "no rule Overfit runs"),
        (record(ALLOW, Status.IN_PROGRESS), training(), "is InProgress, not IssuesFound"),
        (record(ALLOW, Status.ERROR), training(), "is Error, not IssuesFound"),
        (replace(record(), rules={}), training(), "is InProgress, not IssuesFound"),
        (record({"trainwarden:mute": "Overfit"}), training(), "is muted"),
        (record({"trainwarden:rule:Overfit": "action=none"}), training(), "does not ask"),
    ],
)
def test_a_stop_is_refused_with_the_reason(
    job: JobRecord, about: TrainingJob | None, reason: str
) -> None:
    decision = policy.authorize_stop(job, about, "Overfit", dry_run=False)
    assert not decision.allowed
    assert reason in decision.reason


ELSEWHERE: dict[str, Json] = {"sagemaker": False, "stop": True}


def elsewhere(**manifest: Json) -> JobRecord:
    """A job outside SageMaker, whose script lets its loop be ended."""
    return replace(record(), manifest={**ELSEWHERE, **manifest}, progress={})


def test_a_job_outside_sagemaker_is_asked_if_its_script_allows_it() -> None:
    decision = policy.authorize_stop(elsewhere(), None, "Overfit", dry_run=False)
    assert decision == Decision(
        True, False, "Overfit found issues and its script says stop='allow'", "control"
    )


@pytest.mark.parametrize(
    ("job", "about", "reason"),
    [
        (elsewhere(stop=False), None, "does not say watch(stop='allow')"),
        (replace(record(), manifest={"sagemaker": False}), None, "does not say watch"),
        (elsewhere(stop="true"), None, "does not say watch"),
        (replace(elsewhere(), status=JobStatus.CLOSED), None, "already over"),
        (elsewhere(), training(), "is a SageMaker job, and its data says that it is none"),
        (replace(elsewhere(), rules={}), None, "is InProgress, not IssuesFound"),
        (replace(record(), manifest={**ELSEWHERE, "sagemaker": True}), None, "no training job"),
    ],
)
def test_a_job_outside_sagemaker_is_left_alone_with_the_reason(
    job: JobRecord, about: TrainingJob | None, reason: str
) -> None:
    decision = policy.authorize_stop(job, about, "Overfit", dry_run=False)
    assert not decision.allowed
    assert reason in decision.reason


def test_a_rule_that_a_later_version_no_longer_knows_stops_nothing() -> None:
    gone = record()
    specs = [*gone.config["rules"], {**gone.config["rules"][0], "key": "Old", "name": "OldRule"}]
    job = replace(gone, config={**gone.config, "rules": specs})
    decision = policy.authorize_stop(job, training(), "Overfit", dry_run=False)
    assert not decision.allowed
    assert "cannot be built" in decision.reason
