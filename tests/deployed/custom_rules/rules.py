"""Custom rules that the deployed tests name: a good one, and one that is bad in many ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from custom_rules._bad import WAYS  # type: ignore[import-not-found]  # the folder's name

from trainwarden.model import Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import Bounds, CheckedRule, param


def meta(code: str, name: str) -> RuleMeta:
    """Both read the loss, and run only where a job asks for them."""
    needs, capture = (Need("losses", "value"),), "pass a loss to watch()"
    return RuleMeta(
        code, name, Severity.WARNING, Tier.EVIDENCE, needs, ("Try.",), capture, default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSeen(CheckedRule[Json]):
    """Fires once as many saved steps with a loss were seen as it is told."""

    meta: ClassVar[RuleMeta] = meta("USR901", "LossSeen")
    steps: int = param(3, "Saved steps with a loss.", "saved steps", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No loss was seen."""
        return 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count."""
        losses = obs.scalars.get("losses", {})
        if not losses:
            return state, ()
        if state + 1 != self.steps:
            return state + 1, ()
        name, value = next(iter(losses.items()))
        text = f"{self.steps} saved steps had a loss, the last {value:.4g}"
        return state + 1, [Finding(obs.step, name, value, 0.0, text, obs.step)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad(CheckedRule[Json]):
    """Goes wrong at its third step."""

    meta: ClassVar[RuleMeta] = meta("USR902", "Bad")
    how: str = param("raise", "What goes wrong.", choices=tuple(WAYS))

    def start(self) -> Json:
        """Nothing was seen."""
        return 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Go wrong."""
        del obs
        if state < 2:
            return state + 1, ()
        return WAYS[self.how](), ()
