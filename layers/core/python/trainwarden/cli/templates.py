"""What ``trainwarden rules new`` writes: a rule that works as it stands, to be changed."""

from __future__ import annotations

RULE = '''"""@CODE@ @NAME@: a loss stays above a limit. TODO: say in one line what you look for.

**Why it hurts.** TODO: what this costs whoever trains, and how it shows.

**How it is computed.** The value of each loss (unit: the loss's own) at every saved
training step. It fires when a loss has been above ``limit`` for ``patience`` saved
steps in a row, and again only after it was at or below the limit. TODO: formula and
unit of what you compute.

**Remedy.** TODO: what to try, most likely first.

**False alarms to expect.** TODO: healthy runs that look like this.

**Missing data.** NaN is not above a limit (ExplodingTensor looks at it), infinity is.

**Source.** TODO: where the limits come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import (
    Finding,
    Json,
    Mode,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules import Bounds, CheckedRule, param

LARGEST = 1.7976931348623157e308  # findings hold finite numbers only


@dataclass(frozen=True, slots=True, kw_only=True)
class @NAME@(CheckedRule[Json]):
    """Fire when a loss stays above a limit."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        code="@CODE@",
        name="@NAME@",
        severity=Severity.WARNING,
        tier=Tier.EVIDENCE,
        needs=(Need("losses", "value"),),  # all that it reads: see docs/statistics.md
        remedies=("Lower the learning rate.",),
        capture="pass the loss function to watch()",
    )

    limit: float = param(10.0, "Highest loss that is fine.", bounds=Bounds(ge=0))
    patience: int = param(3, "Bad steps in a row.", "saved steps", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No loss has been seen: name -> [saved steps in a row, first of them]."""
        return {}

    def inspects(self, obs: Observation) -> bool:
        """Say whether this step has what the rule needs."""
        return obs.mode is not Mode.EVAL and bool(obs.scalars.get("losses"))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Fold one saved step into the state. Pure: no I/O, no clock, no random."""
        if not self.inspects(obs):
            return state, ()
        streaks, found = dict(state), []
        for name, value in obs.scalars["losses"].items():
            if math.isnan(value) or value <= self.limit:
                streaks.pop(name, None)  # keep what is ill alone: a small state
                continue
            count, since = streaks.get(name, (0, obs.step))
            streaks[name] = [count + 1, since]
            if count + 1 == self.patience:
                text = f"{name} is {value:.4g}, above {self.limit:g} since step {since}"
                top, how = min(value, LARGEST), {"saved_steps": count + 1}
                found.append(Finding(obs.step, name, top, self.limit, text, since, how))
        return streaks, found
'''

TEST = '''from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from @MODULE@ import @NAME@
from trainwarden.model import Finding, Json, Mode, Observation

NAN, INF = float("nan"), float("inf")
RULE = @NAME@(limit=10.0, patience=3)


def run_of(values: Sequence[float], mode: Mode = Mode.TRAIN) -> list[Observation]:
    """One loss, one value for each saved step."""
    return [
        Observation(step, mode, step, float(step), scalars={"losses": {"loss": value}})
        for step, value in enumerate(values)
    ]


def fold(run: Sequence[Observation], state: Json = None) -> tuple[Json, list[Finding]]:
    """Judge a run; between two steps the state is stored as JSON, as in the cloud."""
    state, found = RULE.start() if state is None else state, list[Finding]()
    for obs in run:
        state, new = RULE.advance(json.loads(json.dumps(state)), obs)
        found += new
    return json.loads(json.dumps(state)), found


@pytest.mark.parametrize(
    ("values", "fired_at"),
    [
        pytest.param([], [], id="empty"),
        pytest.param([20.0] * 2, [], id="streak-too-short"),
        pytest.param([20.0] * 5, [2], id="once-for-each-streak"),
        pytest.param([10.0] * 5, [], id="the-limit-itself-is-fine"),
        pytest.param([20.0, 20.0, 1.0, 20.0, 20.0, 20.0], [5], id="recovery-resets"),
        pytest.param([20.0, 20.0, NAN, 20.0], [], id="nan-is-not-above"),
        pytest.param([INF, INF, INF], [2], id="infinity-is"),
    ],
)
def test_fires_at(values: Sequence[float], fired_at: list[int]) -> None:
    assert [finding.step for finding in fold(run_of(values))[1]] == fired_at


def test_a_finding_says_what_was_seen_where_and_since_when() -> None:
    (finding,) = fold(run_of([1.0, 20.0, 21.0, 22.0]))[1]
    assert (finding.tensor, finding.value, finding.first_step) == ("loss", 22.0, 1)
    json.dumps([finding.value, finding.limit, dict(finding.evidence)], allow_nan=False)


def test_evaluation_is_not_looked_at() -> None:
    evaluation = run_of([20.0] * 5, Mode.EVAL)
    assert fold(evaluation)[1] == []
    assert not RULE.inspects(evaluation[0])


@pytest.mark.parametrize("cut", range(9))
def test_a_split_run_equals_the_whole_run(cut: int) -> None:
    run = run_of([20.0, 20.0, 20.0, NAN, 20.0, 1.0, 20.0, INF])
    whole = fold(run)
    state, early = fold(run[:cut])
    state, late = fold(run[cut:], state)
    assert (state, early + late) == whole
'''

CONFTEST = '''"""Lets the tests import the rules of the folder above."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
'''
