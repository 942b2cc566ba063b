"""OPT001 HighLearningRate: a learning rate is above a limit that you give.

**Why it hurts.** A team that knows the rates at which its models diverge wants to hear of a typing
error before the run does.

**How it is computed.** Each ``lr_i`` of the ``optimizer`` collection (unit: none), at every saved
training step, is held against ``threshold``. It fires when a rate rises above the limit, and again
only after that rate was at or below it.

**Remedy.** Correct the rate; look at the schedule's peak, and at rates that were scaled with the
number of workers or the size of the batch.

**False alarms to expect.** None: it says what you asked for. Whether a rate is too high for a model
is what LearningRateTooHigh judges, from what the rate does to the weights.

**Missing data.** Not evaluated unless asked for. NaN is not above a limit, infinity is.

**Source.** The example that SageMaker's users start from when they write a rule of their own
(``base_trial.tensor("lr_0").value(step) > threshold``). 0.1 is the usual starting rate of SGD with
momentum on images (He et al., 2015), ten times any usual rate of Adam.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import EVAL, Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_RATE = re.compile(r"(\d+\.)?lr_\d+$")
_LARGEST = 1.7976931348623157e308


@dataclass(frozen=True, slots=True, kw_only=True)
class HighLearningRate(CheckedRule[Json]):
    """Fire when a learning rate is above a given limit."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OPT001",
        "HighLearningRate",
        Severity.WARNING,
        Tier.CRITICAL,
        (Need("optimizer", "value"),),
        ("Lower the learning rate.", "Check the schedule's peak and any scaling of the rate."),
        "pass the optimizer to watch()",
        default=False,
    )

    threshold: float = param(0.1, "Highest rate that is fine.", bounds=Bounds(ge=0))
    tensor_regex: tuple[str, ...] = param((), "Rates to look at; all.", pattern=True)

    def start(self) -> Json:
        """No rate is above the limit."""
        return {"above": []}

    def inspects(self, obs: Observation) -> bool:
        """A learning rate of a training step."""
        return obs.mode is not EVAL and any(
            _RATE.match(name) for name in obs.scalars.get("optimizer", ())
        )

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Tell of each rate that has risen above the limit; the highest first."""
        rates = {
            name: value
            for name, value in obs.scalars.get("optimizer", {}).items()
            if _RATE.match(name) and not math.isnan(value)
            if not self.tensor_regex or any(re.match(p, name) for p in self.tensor_regex)
        }
        if not rates:
            return state, ()
        high = sorted((n for n, v in rates.items() if v > self.threshold), key=lambda n: -rates[n])
        before = set(state["above"])
        found = [
            Finding(
                obs.step,
                name,
                min(rates[name], _LARGEST),
                self.threshold,
                f"the learning rate {name} is {rates[name]:.4g}, above {self.threshold:g}",
                obs.step,
            )
            for name in high
            if name not in before
        ]
        return {"above": sorted(high)}, found
