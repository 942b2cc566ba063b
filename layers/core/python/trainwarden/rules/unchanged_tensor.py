"""UPD001 UnchangedTensor: trainable weights that do not move.

**Why it hurts.** What does not move does not learn: the optimizer does not hold the tensor, the
step is never taken, or bf16 and fp16 weights round the update away.

**How it is computed.** Between two saved steps the largest |change| of each trainable weight matrix
is captured (unit: the weight's own). A matrix rests while that is exactly 0, and has rested long
when it did so for ``num_steps`` saved steps in a row (``num_steps`` - 1 comparisons) that span at
least ``min_steps`` steps, and three times as long as it ever rested before. The rule fires when

* all matrices have rested long, in a run whose loss has lost less than ``max_fall`` of its start,
  and they get gradients or never moved (else their gradients have died, see ACT001 and GRD001);
* the last layer has rested long though its gradient is not 0, while other matrices move;
* at least ``share`` of the matrices have rested for 100 steps, in a run whose loss has lost less
  than a tenth of its start; without those whose turn it is not, which get no gradient at all and
  moved earlier, or are in modules that the forward pass does not enter;
* ``num_steps`` evaluation passes, with training batches between them, have come before any
  optimizer step.

Not counted: tensors with ``requires_grad=False``; vectors, since biases in front of batch
normalisation rest by nature and bfloat16 scales of 1 swallow every usual update; steps that
GradScaler skipped; steps whose learning rate is under 1 % of the highest so far (start of a
warm-up, end of a cosine). An optimizer that holds only the last layers is taken for fine-tuning
while the run learns.

With ``collection_names`` or ``tensor_regex`` given, SageMaker's meaning instead: numpy.allclose
with ``rtol`` and ``atol`` over ``num_steps`` saved steps, for those tensors, whatever they are.
SageMaker asks for one of both; its other defaults are ours.

**Remedy.** Hand the optimizer the parameters of the model that is trained; call optimizer.step();
keep float32 master weights under bf16 and fp16; raise a learning rate below the weights'
resolution.

**False alarms to expect.** Parts of a network trained in turns longer than the gates allow.

**Missing data.** A layer with ``requires_grad=False`` from the start is silent, on purpose or by
mistake: nothing in the data tells these apart, but for an output layer, which is GRD003's business.
The first saved step has nothing to compare with. NaN is NUM001's business. Of more than 4,000
trainable matrices the first 4,000 and the last layer's are followed.

**Source.** SageMaker Debugger's UnchangedTensor (allclose over 3 saved steps); exact rest instead,
since a learning rate of 1e-5 moves healthy weights by less than allclose sees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    EVAL,
    TRAIN,
    Finding,
    IntArray,
    Json,
    Layout,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import rests, skipped
from trainwarden.rules._motion import changes
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.rules._selection import gradient_of, matching, once, weight_matrices
from trainwarden.stats.catalog import INDEX

UPDATE = Need("weights", "update_max")
_CHANGE, _EXCESS = INDEX["u_maxabs"], INDEX["u_excess"]
_MIN, _MAX = INDEX["min"], INDEX["max"]
_RESTED_FACTOR = 3
_LOW_RATE = 0.01
_MAX_TENSORS = 4000  # followed at a time; the state has to fit the job's record
_PARTIAL_STEPS, _PARTIAL_FALL = 100, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedTensor(CheckedRule[Json]):
    """Fire when trainable weights rest though they should move."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "UPD001",
        "UnchangedTensor",
        Severity.WARNING,
        Tier.EVIDENCE,
        (UPDATE, Need("gradients", "abs_max"), Need("losses", "value"), Need("optimizer", "value")),
        (
            "Check that optimizer.step() is called and that the optimizer holds these parameters.",
            "Under bf16 or fp16 keep float32 master weights, or raise the learning rate.",
            "Check that the tensor gets a gradient: no .detach(), no torch.no_grad() in its path.",
            "If it is meant to rest, set requires_grad=False before training.",
        ),
        "capture the collection weights; trainwarden.watch() does so by default",
        explains=("LossNotDecreasing",),
        sagemaker={"num_steps": 3, "rtol": 1e-5, "atol": 1e-8, "equal_nan": False},
        required=("collection_names", "tensor_regex"),
    )

    collection_names: tuple[str, ...] = param((), "Given, SageMaker's meaning for these.")
    tensor_regex: tuple[str, ...] = param((), "Given, SageMaker's meaning for these.", pattern=True)
    num_steps: int = param(
        3, "Saved steps in a row without a change.", "saved steps", bounds=Bounds(ge=2)
    )
    rtol: float = param(1e-5, "Relative tolerance.", choices=(0.0, 1e-5))
    atol: float = param(1e-8, "Absolute tolerance.", bounds=Bounds(ge=0))
    equal_nan: bool = param(False, "Tensors with NaN may count as unchanged.")
    min_steps: int = param(10, "Steps these must span.", "steps", bounds=Bounds(ge=0))
    share: float = param(
        0.5,
        "Share of the matrices at rest that is ill while others move.",
        bounds=Bounds(gt=0, le=1),
    )
    max_fall: float = param(
        0.3, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """Nothing rests yet."""
        return {"rest": {}, "longest": {}, "told": False, "rate": 0.0, "loss": begin(),
                "passes": 0, "moved": False, "from": -1}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """Weights."""
        return obs.captured("weights").size > 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend the rest of each tensor that did not change; the others are awake."""
        if self.collection_names or self.tensor_regex:
            return self._allclose(state, obs)
        if obs.mode is EVAL and state["passes"] >= 0:
            return self._without_steps(state, obs)
        rate = float(obs.scalars.get("optimizer", {}).get("lr_0", math.nan))
        top = state["rate"] if math.isnan(rate) else max(state["rate"], rate)
        state = {**state, "loss": follow(state["loss"], obs), "rate": top, "passes": -1}
        rows = obs.among(once(obs.layout, "trainable matrices", _trainable_matrices))
        if obs.mode is not TRAIN or not rows.size or rate < _LOW_RATE * top:
            return state, ()
        change, moved = changes(obs, rows)
        if skipped(obs) or rests(obs, "gradients"):
            return state, ()
        if moved > 0 and not state["moved"]:
            state["moved"], state["from"] = True, obs.step
        resting = rows[:0] if moved == rows.size else rows[change == 0]
        if resting.size:  # NaN does not change either
            stats = obs.stats[resting]
            resting = resting[stats[:, 1] + stats[:, 2] + stats[:, 3] == 0]
        if state["told"] or not (resting.size or state["rest"]):
            state["told"] = bool(resting.size)
            return state, ()
        state = self._rest(state, obs, resting, rows[change > 0])
        return self._judge(state, obs, rows)

    def _without_steps(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count evaluation passes before the first training step; a batch ends each of them."""
        passes = state["passes"] + 1
        state = {**state, "passes": passes}
        if passes != self.num_steps:
            return state, ()
        message = (
            f"{passes} evaluation passes have come, with training batches between them, and the "
            "optimizer has not taken one step"
        )
        value, limit = float(passes), float(self.num_steps)
        return state, [Finding(obs.step, "", value, limit, message, obs.step)]

    def _rest(self, state: Json, obs: Observation, resting: IntArray, moved: IntArray) -> Json:
        """``rest`` maps row → [step of the first comparison, comparisons, gradient seen]."""
        gradients = gradient_of(obs.layout)[resting] if resting.size else resting
        rest, longest = dict(state["rest"]), dict(state["longest"])
        for row, gradient in zip(resting.tolist(), gradients.tolist(), strict=True):
            since, count, pushed = rest.get(str(row)) or [obs.step, 0, 0]
            rest[str(row)] = [since, count + 1, pushed + _has_gradient(obs, gradient)]
        for row in moved.tolist():
            ended = rest.pop(str(row), None)
            if ended is not None:
                longest[str(row)] = max(longest.get(str(row), 0), ended[1])
        return {**state, "rest": rest, "longest": longest, "told": False}

    def _judge(
        self, state: Json, obs: Observation, rows: IntArray
    ) -> tuple[Json, Sequence[Finding]]:
        longest, fallen = state["longest"], fall(state["loss"])
        ripe = {
            row: one
            for row, one in state["rest"].items()
            if one[1] >= max(self.num_steps - 1, _RESTED_FACTOR * longest.get(row, 0) + 1)
            and obs.step - one[0] >= self.min_steps
        }
        last = weight_matrices(obs.layout)
        head = ripe.get(str(int(last[-1]))) if last.size else None
        old = sum(
            obs.step - one[0] >= _PARTIAL_STEPS and not self._waits(obs, state, int(row), one)
            for row, one in ripe.items()
        )
        died = state["moved"] and not any(pushes for _, _, pushes in ripe.values())
        ill = (
            (len(ripe) == rows.size and not fallen >= self.max_fall and not died)
            or (head is not None and len(ripe) < rows.size and 2 * head[2] > head[1])
            or (
                old >= self.share * rows.size
                and not fallen >= _PARTIAL_FALL
                and not (died and len(ripe) == rows.size)
            )
        )
        if not ripe or not ill:
            return state, ()
        finding = self._finding(obs, ripe, (len(state["rest"]), int(rows.size)))
        return {**state, "told": True, "rest": {}}, [finding]

    def _waits(self, obs: Observation, state: Json, row: int, rested: Json) -> bool:
        """Say whether a tensor waits for its turn, as models do that are trained one by one."""
        gradient = int(gradient_of(obs.layout)[row])
        if not 0 <= gradient < obs.stats.shape[0] or not math.isnan(obs.stats[gradient, 0]):
            return False
        return bool(rested[0] > state["from"] >= 0 or obs.layout.tensors[row].depth < 0)

    def _finding(
        self, obs: Observation, chosen: dict[str, Json], counts: tuple[int, int]
    ) -> Finding:
        resting, total = counts
        first = min(chosen, key=lambda row: (-chosen[row][2], chosen[row][0], int(row)))
        since, count, pushes = chosen[first]
        pushed = 2 * pushes > count
        name = obs.layout.names[int(first)]
        why = (
            "though its gradient is not 0: the update is not taken, or rounded away"
            if pushed
            else "and no gradient reaches it"
        )
        message = (
            f"{name} has not changed in one bit over {count} saved steps since step {since}, "
            f"{why}; {resting} of {total} trainable weight matrices rest"
        )
        evidence = {
            "tensors": [obs.layout.names[int(row)] for row in list(chosen)[:8]],
            "resting": resting,
            "trainable": total,
            "gradient": pushed,
            "dtype": obs.layout.tensors[int(first)].dtype,
        }
        confidence = 1.0 if pushed or resting == total else 0.8
        return Finding(obs.step, name, 0.0, 0.0, message, since, evidence, confidence=confidence)

    def _allclose(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """SageMaker's meaning: unchanged over ``num_steps`` saved steps."""
        rows = obs.among(matching(obs.layout, self.collection_names, self.tensor_regex))
        if not rows.size:
            return state, ()
        stats = obs.stats[rows]
        excess = stats[:, _CHANGE if self.rtol == 0 else _EXCESS]
        close = excess <= self.atol
        if not self.equal_nan:
            close &= stats[:, 1] == 0
        rest: dict[str, Json] = {}
        found = []
        for row, unchanged in zip(rows.tolist(), close.tolist(), strict=True):
            if not unchanged or len(rest) >= _MAX_TENSORS:
                continue
            since, count, _ = state["rest"].get(str(row)) or [obs.step, 0, 0]
            rest[str(row)] = [since, count + 1, 0]
            if count + 1 == self.num_steps - 1:
                name = obs.layout.names[row]
                message = f"{name} has not changed over {self.num_steps} saved steps"
                value = float(stats[rows == row, _CHANGE][0])
                found.append(Finding(obs.step, name, value, self.atol, message, since))
        return {**state, "rest": rest}, found


def _trainable_matrices(layout: Layout) -> IntArray:
    rows = [
        row
        for row in layout.rows("weights").tolist()
        if layout.tensors[row].trainable and len(layout.tensors[row].shape) > 1
    ]
    last = weight_matrices(layout)[-1:].tolist()
    found = np.array(sorted({*rows[:_MAX_TENSORS], *last}), dtype=np.int64)
    same = np.array_equal(found, weight_matrices(layout))
    return weight_matrices(layout) if same else found  # shares what is read of them


def _has_gradient(obs: Observation, row: int) -> bool:
    if row < 0 or row >= obs.stats.shape[0]:
        return False
    return bool(obs.stats[row, _MAX] > 0 or obs.stats[row, _MIN] < 0)
