"""INI002 InitialLoss: the first loss is far above that of a guess.

**Why it hurts.** A network that knows nothing should say so: with C classes its loss is ln C. One
that starts at many times that is sure and wrong, and spends its first steps on unlearning.

**How it is computed.** The loss over ln C (unit: 1) at the first saved steps. It fires once

* the first loss and the median of the first three are above ``max_ratio`` times ln C, and
* the level after ``min_steps`` steps is still above half of that,

for cross_entropy and its kin with mean reduction. Not judged: weighted losses and sums, inputs that
are far from standardised (RMS above 5: DAT003's business), several optimizers, and losses above
ln C + largest - smallest logit, which no cross entropy exceeds: other terms were added. Told once.

**Remedy.** Start the last layer at 0 or at a tenth of its usual size; divide logits by a
temperature or normalise what they are computed from; bias for the classes' frequencies.

**False alarms to expect.** Sums of losses of which only one is a cross entropy, where logits are
large anyway.

**Missing data.** Without the number of classes nothing is judged.

**Source.** Karpathy, "A Recipe for Training Neural Networks" (verify loss @ init); TheDeepChecker.
Measured: 80 healthy runs start at 0.9 to 1.9 times ln C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from trainwarden.model import (
    TRAIN,
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import rounded, several_optimizers
from trainwarden.rules._motion import unusual_input
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss

LOSSES = Need("losses", "value")
CLASSES = Need("objective", "value")
_FIRST, _LAST = 3, 3
_STILL = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialLoss(CheckedRule[Json]):
    """Fire when a classifier starts out sure and wrong."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "INI002",
        "InitialLoss",
        Severity.WARNING,
        Tier.EVIDENCE,
        (LOSSES, CLASSES),
        (
            "Start the last layer at 0, or at a tenth of its usual size.",
            "Normalise what the logits are computed from, or divide them by a temperature.",
            "Check that the labels belong to the inputs and start at class 0.",
        ),
        "use torch.nn.CrossEntropyLoss or functional.cross_entropy under trainwarden.watch()",
        explains=("LossNotDecreasing",),
    )

    max_ratio: float = param(4.0, "First loss over that of a guess.", bounds=Bounds(gt=1))
    min_steps: int = param(5, "Steps after which it must still be high.", "steps",
                           bounds=Bounds(ge=1))  # fmt: skip

    def start(self) -> Json:
        """No loss has been seen."""
        return {"at": -1, "guess": None, "first": [], "last": [], "told": False}

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Keep the first losses; judge them a few steps later."""
        if state["told"] or obs.mode is not TRAIN:
            return state, ()
        loss, guess = main_loss(obs), state["guess"]
        if loss is None:
            return state, ()
        if guess is None:
            guess = _guess(obs)
            unlike = guess is not None and loss[1] > guess + _spread(obs)
            if guess is None or unlike or several_optimizers(obs) or unusual_input(obs):
                return {**self.start(), "told": guess is not None}, ()
        at = obs.step if state["at"] < 0 else state["at"]
        first = [*state["first"], loss[1]] if len(state["first"]) < _FIRST else state["first"]
        last = [*state["last"][1 - _LAST :], loss[1]]
        state = {"at": at, "guess": guess, "first": first, "last": last, "told": False}
        if obs.step - at < self.min_steps or len(first) < _FIRST:
            return state, ()
        start, level = min(first[0], median(first)), median(last)
        state = {**self.start(), "told": True}
        if start <= self.max_ratio * guess or level <= _STILL * self.max_ratio * guess:
            return state, ()
        count = round(math.exp(guess))
        message = (
            f"the {loss[0]} starts at {start:.4g}, {start / guess:.3g} times the {guess:.3g} of a "
            f"guess among {count} classes, and is {level:.4g} at step {obs.step}"
        )
        evidence = {"classes": count, "guess": rounded(guess), "level": rounded(level)}
        limit = self.max_ratio * guess
        at = min(at, obs.step)
        found = Finding(obs.step, loss[0], start, limit, message, at, evidence, confidence=0.9)
        return state, [found]


def _guess(obs: Observation) -> float | None:
    """Loss of a uniform guess, ln C; None where the loss is none that has one."""
    told = obs.scalars.get("objective", {})
    for function in ("cross_entropy", "nll_loss"):
        count = told.get(f"{function}.classes", math.nan)
        if math.isfinite(count) and count > 1:
            plain = told.get(f"{function}.weighted", 0.0) == 0
            mean = told.get(f"{function}.reduction_sum", 0.0) == 0
            return math.log(count) if plain and mean else None
    return None


def _spread(obs: Observation) -> float:
    """Largest minus smallest logit; infinite where they are not known."""
    told = obs.scalars.get("objective", {})
    spread = told.get("cross_entropy.input_max", math.inf) - told.get(
        "cross_entropy.input_min", -math.inf
    )
    return spread if math.isfinite(spread) else math.inf
