"""What a job asks of the engine, and what a fold brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwarden.model import Finding, Json, Mode, Observation, Severity, Verdict
from trainwarden.rules import DEFAULT


@dataclass(frozen=True)
class RuleSpec:
    """A rule as a job asks for it.

    Attributes:
        key: Name of this rule in the job; several specs may share ``name``, never ``key``.
        name: Name of the rule in the registry.
        parameters: Parameters of the rule; strings are cast.
        start_step: First step it looks at.
        end_step: Last step it looks at; None means no end.
        modes: Modes it looks at; empty means all.
        severity: Overrides the rule's own.
        actions: What to do about findings: ``stop``, ``notify``, ``none``, ``email:…``, ``sms:…``;
            empty leaves it to the deployment. Read by ``policy`` only.
        every: Looks again only this many steps after it last looked in the same mode.
        profile: ``default`` for our meaning and limits, ``sagemaker`` for SageMaker's.
    """

    key: str
    name: str
    parameters: Mapping[str, Json] = field(default_factory=dict)
    start_step: int = 0
    end_step: int | None = None
    modes: tuple[Mode, ...] = ()
    severity: Severity | None = None
    actions: tuple[str, ...] = ()
    every: int = 1
    profile: str = DEFAULT

    def covers(self, obs: Observation) -> bool:
        """Say whether the rule looks at this observation."""
        return (
            obs.step >= self.start_step
            and (self.end_step is None or obs.step <= self.end_step)
            and (not self.modes or obs.mode in self.modes)
        )


@dataclass(frozen=True)
class SetSpec:
    """Several rules with one condition, one verdict and shared actions.

    Attributes:
        key: Name of the set in the job, no rule's key.
        members: Keys of its rules.
        at_least: How many of them have to find issues; 1 means any.
        severity: Overrides that of its members.
        actions: As in ``RuleSpec``.
    """

    key: str
    members: tuple[str, ...]
    at_least: int = 1
    severity: Severity | None = None
    actions: tuple[str, ...] = ()


class Fold(NamedTuple):
    """What one fold brought: ``changed`` holds the verdicts whose status is new, causes first."""

    state: Json
    findings: tuple[Finding, ...] = ()
    changed: tuple[Verdict, ...] = ()
