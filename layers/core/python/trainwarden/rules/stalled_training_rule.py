"""SYS001 StalledTrainingRule: no saved step has come for too long.

**Why it hurts.** A deadlocked data loader or collective keeps the instances running, and paid, for
ever.

**How it is computed.** The gap between two saved steps by the training container's clock, and the
silence since the last one by the evaluator's (unit: s), held against

    limit = max(floor, cadence x median gap, 3 x longest gap so far)

so that a run that saves once an hour, or validates for twenty minutes every epoch, is not called
stalled. The median is over the last 15 gaps. Since the first steps are saved more densely than
those after them, the limit is at least 100 times the usual seconds a step until 20 steps were
saved. One finding per stall.

With ``threshold`` given, SageMaker's meaning instead: that alone is the limit.

**Remedy.** Look at the container's last log line; set a timeout in the DataLoader and in
``init_process_group``; check shared memory and the number of workers.

**False alarms to expect.** A first validation pass or checkpoint longer than half an hour.

**Missing data.** Steps that went backwards after a resume count as no gap. Nothing is said before
the first saved step: a job without data has the verdict NoData.

**Source.** 1800 s: SageMaker Debugger's default and PyTorch's default timeout of collectives with
gloo. Three times the longest gap: a pause seen before is part of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from trainwarden.model import Finding, Json, Observation, RuleMeta, Severity, Tier
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_KEPT_GAPS = 15
_LONGEST_FACTOR = 3.0
_START_SAVES, _START_STEPS = 20, 100  # until the save interval has shown itself


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledTrainingRule(CheckedRule[Json]):
    """Fire when saved steps stop coming."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "SYS001",
        "StalledTrainingRule",
        Severity.ERROR,
        Tier.CRITICAL,
        (),
        (
            "Read the container's last log lines: a data loader or a collective usually hangs.",
            "Set timeout= in DataLoader and in torch.distributed.init_process_group.",
            "Check shared memory (/dev/shm), the number of loader workers and the data source.",
        ),
        "any saved step will do",
        sagemaker={"threshold": 1800.0},
    )

    threshold: float | None = param(
        None, "Limit; given, it alone decides.", "s", bounds=Bounds(gt=0)
    )
    floor: float = param(1800.0, "Smallest limit.", "s", bounds=Bounds(gt=0))
    cadence: float = param(5.0, "Limit as a multiple of the median gap.", bounds=Bounds(gt=1))

    def start(self) -> Json:
        """No saved step has come."""
        return {"time": None, "step": -1, "gaps": [], "pace": [],
                "saves": 0, "longest": 0.0, "told": False}  # fmt: skip

    def limit(self, state: Json) -> float:
        """Return the longest silence that is still normal, in seconds."""
        if self.threshold is not None:
            return self.threshold
        usual = median(state["gaps"]) if state["gaps"] else 0.0
        limit = max(self.floor, self.cadence * usual, _LONGEST_FACTOR * state["longest"])
        if state["saves"] <= _START_SAVES and state["pace"]:
            limit = max(limit, _START_STEPS * median(state["pace"]))
        return float(limit)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Judge the gap that this step ends, unless ``wait`` already told of it."""
        now = {**state, "time": obs.time, "step": obs.step, "told": False,
               "saves": state["saves"] + 1}  # fmt: skip
        if state["time"] is None:
            return now, ()
        gap = obs.time - state["time"]
        if gap <= 0:
            return {**now, "time": state["time"], "told": state["told"]}, ()
        rounded = round(gap, 3)
        if (steps := obs.step - state["step"]) > 0:
            pace = rounded if steps == 1 else round(gap / steps, 3)
            now["pace"] = [*state["pace"][1 - _KEPT_GAPS :], pace]
        now["gaps"] = [*state["gaps"][1 - _KEPT_GAPS :], rounded]
        now["longest"] = max(state["longest"], rounded)
        least = self.floor if self.threshold is None else self.threshold
        if gap <= least or state["told"] or gap <= self.limit(state):
            return now, ()
        message = (
            f"no step was saved for {gap:.0f} s between steps {state['step']} and {obs.step}; "
            f"the limit is {self.limit(state):.0f} s"
        )
        return now, [self._finding(state, obs.step, gap, message)]

    def wait(self, state: Json, now: float) -> tuple[Json, Sequence[Finding]]:
        """Judge the silence since the last saved step."""
        if state["time"] is None or state["told"]:
            return state, ()
        silence = now - state["time"]
        if silence <= self.limit(state):
            return state, ()
        message = (
            f"no step has been saved for {silence:.0f} s since step {state['step']}; "
            f"the limit is {self.limit(state):.0f} s"
        )
        return {**state, "told": True}, [self._finding(state, state["step"], silence, message)]

    def _finding(self, state: Json, step: int, gap: float, message: str) -> Finding:
        usual = median(state["gaps"]) if state["gaps"] else 0.0
        evidence = {"median_gap_s": round(usual, 3), "longest_gap_s": state["longest"]}
        return Finding(step, "", gap, self.limit(state), message, state["step"], evidence)
