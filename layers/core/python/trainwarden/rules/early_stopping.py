"""LOS004 EarlyStopping: a metric has not improved for a number of passes.

**Why it hurts.** It does not: this is the user's wish to stop a run that no longer gets better.
With ``action=stop`` and the permission to stop, the job ends.

**How it is computed.** The metric (unit: its own) is looked up by its exact name among losses, then
metrics, then other collections, in observations of ``mode``. It has improved when it is more than
``min_delta`` below its best, or above with ``higher_is_better``. The rule fires once, when
``patience`` observations in a row have brought no improvement and ``min_steps`` steps are done.

**Remedy.** Take the checkpoint of the best step, which the evidence names.

**False alarms to expect.** Noisy metrics: give ``min_delta`` or more ``patience``.

**Missing data.** Not evaluated unless asked for. An observation without the metric does not count,
nor does NaN; infinity is no improvement.

**Source.** Prechelt, "Early Stopping - But When?" (1998); ``min_delta`` and ``patience`` mean what
they mean in Keras and Lightning. SageMaker Debugger has no such rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss

_FIRST = ("losses", "metrics")
_LARGEST = 1.7976931348623157e308  # JSON has no infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopping(CheckedRule[Json]):
    """Fire when a metric has stopped to improve."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOS004",
        "EarlyStopping",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("losses", "value"),),
        (
            "Keep the checkpoint of the best step.",
            "Lower the learning rate there and go on, if the metric is not good enough.",
        ),
        "run validation passes, or record the metric: hook.record('accuracy', value)",
        default=False,
    )

    metric: str = param("loss", "Name of the loss or metric.")
    patience: int = param(5, "Observations without improvement.", "passes", bounds=Bounds(ge=1))
    min_delta: float = param(0.0, "Least improvement.", "the metric's own", bounds=Bounds(ge=0))
    higher_is_better: bool = param(False, "True for accuracies and the like.")
    mode: str = param("EVAL", "Mode of the metric.", choices=("EVAL", "TRAIN", "GLOBAL"))
    min_steps: int = param(0, "Steps before the rule may fire.", "steps", bounds=Bounds(ge=0))

    def start(self) -> Json:
        """The metric has not been seen."""
        return {"best": None, "step": -1, "count": 0, "told": False}

    def inspects(self, obs: Observation) -> bool:
        """The metric is there, in the mode that counts."""
        return obs.mode.value == self.mode and self._value(obs) is not None

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count observations since the best one."""
        if state["told"] or obs.mode.value != self.mode:
            return state, ()
        found = self._value(obs)
        if found is None:
            return state, ()
        name, value = found
        best = state["best"]
        better = best is None or (
            value > best + self.min_delta
            if self.higher_is_better
            else value < best - self.min_delta
        )
        if better:
            return {**state, "best": value, "step": obs.step, "count": 0}, ()
        state = {**state, "count": state["count"] + 1}
        if state["count"] < self.patience or obs.step < self.min_steps:
            return state, ()
        message = (
            f"{name} is {value:.4g} and has not improved on its {best:.4g} of step {state['step']} "
            f"for {state['count']} passes"
        )
        evidence = {"best": best, "best_step": state["step"], "passes_since": state["count"]}
        since = min(state["step"], obs.step)
        return {**state, "told": True}, [
            Finding(obs.step, name, value, best, message, since, evidence)
        ]

    def _value(self, obs: Observation) -> tuple[str, float] | None:
        others = (name for name in obs.scalars if name not in _FIRST)
        for collection in (*_FIRST, *others):
            value = obs.scalars.get(collection, {}).get(self.metric, math.nan)
            if not math.isnan(value):
                return self.metric, max(-_LARGEST, min(_LARGEST, value))
        return main_loss(obs) if self.metric == "loss" else None
