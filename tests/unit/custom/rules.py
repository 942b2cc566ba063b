"""Custom rules for the tests: a good one, and one for each way of being bad."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from trainwarden.model import Finding, Json, Need, Observation, Rule, RuleMeta, Severity, Tier
from trainwarden.rules import Bounds, CheckedRule, param


def meta(code: str, name: str) -> RuleMeta:
    needs = (Need("losses", "value"),)
    return RuleMeta(code, name, Severity.WARNING, Tier.EVIDENCE, needs, ("try",), "pass a loss")


@dataclass(frozen=True, slots=True, kw_only=True)
class HighLoss(CheckedRule[Json]):
    """Fires at each step above the limit; waits and finishes, too."""

    meta: ClassVar[RuleMeta] = meta("USR901", "HighLoss")
    limit: float = param(10.0, "Highest loss that is fine.", bounds=Bounds(ge=0))
    patience: int | None = param(1, "Steps in a row.", "saved steps", bounds=Bounds(ge=1))
    names: tuple[str, ...] = param((), "Losses to look at; all.", pattern=True)

    def start(self) -> Json:
        return {"row": 0, "steps": 0}

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        loss = obs.scalars.get("losses", {}).get("loss")
        if loss is None:
            return state, ()
        row = state["row"] + 1 if loss > self.limit else 0
        after = {"row": row, "steps": state["steps"] + 1}
        if row != (self.patience or 1):
            return after, ()
        text = f"the loss is {loss:.4g}"
        more = [Finding(obs.step, "loss", loss, self.limit, text, obs.step)] * (1 + obs.step % 4)
        return after, more

    def wait(self, state: Json, now: float) -> tuple[Json, Sequence[Finding]]:
        return {**state, "waited": now}, ()

    def finish(self, state: Json) -> tuple[Json, Sequence[Finding]]:
        if state["steps"] < 3:
            return state, ()
        return state, [Finding(2, "", 3.0, 2.0, "the run was long", 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(CheckedRule[Json]):
    """Goes wrong at step 3, as its parameter says."""

    meta: ClassVar[RuleMeta] = meta("USR902", "Broken")
    how: str = param("raise", "What goes wrong.")

    def start(self) -> Json:
        return 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        return WAYS[self.how](obs) if obs.step == 3 else (state + 1, ())


def finding(**fields: Any) -> tuple[Json, Sequence[Finding]]:
    known: dict[str, Any] = {
        "step": 3, "tensor": "loss", "value": 1.0, "limit": 0.0, "message": "m", "first_step": 3,
    }  # fmt: skip
    return 0, [Finding(**{**known, **fields})]


def forever(_: Observation) -> tuple[Json, Sequence[Finding]]:
    with suppress(Exception):  # a rule that will not be told
        while True:
            pass
    return 0, ()


def deep() -> Json:
    found: Json = []
    for _ in range(200):
        found = [found]
    return found


def boom(_: Observation) -> tuple[Json, Sequence[Finding]]:
    raise ZeroDivisionError("the moon is full")


WAYS: dict[str, Any] = {
    "raise": boom,
    "exit": lambda _: sys.exit("bye"),
    "forever": forever,
    "nan": lambda _: (float("nan"), ()),
    "object": lambda _: (object(), ()),
    "deep": lambda _: (deep(), ()),
    "half a character": lambda _: ("\ud800", ()),
    "long number": lambda _: (10**40, ()),
    "large": lambda _: ("x" * 300_000, ()),
    "nothing": lambda _: None,
    "no finding": lambda _: (0, ["finding"]),
    "later step": lambda _: finding(step=99, first_step=99),
    "negative step": lambda _: finding(first_step=-4),
    "half a message": lambda _: finding(message="\udfff"),
    "evidence": lambda _: finding(evidence={"x": "y" * 40_000}),
    "sure": lambda _: finding(confidence=7.0),
}
RULES: dict[str, type[Rule[Any]]] = {"HighLoss": HighLoss, "Broken": Broken}
