"""GRD001 VanishingGradient: layers near the input get next to no gradient.

**Why it hurts.** Weights whose gradient is a thousand times smaller than those of the last layer do
not learn in the time the job has; the network trains its head on random features.

**How it is computed.** For every trainable weight matrix, g is the mean |gradient| (unit: loss
units per parameter unit). Over the matrices from input to output,

* *decay*: log10(g of the last ÷ g of the first) in decades, at least ``decades``, where at least
  ``monotone`` of the steps from layer to layer go down towards the input;
* *zero*: g is exactly 0 in at least half of the matrices, the first among them.

* *game*: a loss that began between -0.35 and -2.1 (a generator's log(1 - D) is -ln 2 where its
  discriminator guesses) and was never 0 or above has gone up to 2 % of that, and g of the first and
  of the last matrix to 1 % of the largest of the first 5 saved steps: the discriminator is so sure
  that nothing comes through. At ``patience`` saved steps in a row that span twice ``min_steps``,
  whenever they begin.

Decay or zero must hold at ``patience`` saved steps in a row that span at least ``min_steps`` steps
and begin within the first 50 steps of the run (the first 5 for *zero*: what passed gradients until
then has died since, see ACT001), in a run that has not learned: its loss has lost less than
``max_fall`` of its starting value. Steps that GradScaler skipped and steps without gradients are
passed over.

With ``threshold`` given, SageMaker's meaning instead: any gradient tensor whose mean |g| is under
``threshold``, at once. The profile ``sagemaker`` gives 1e-7.

**Remedy.** Residual connections or normalisation between the layers, ReLU-like activations with
Kaiming initialisation; under fp16 a GradScaler. Generators: maximise log D instead of minimising
log(1 - D), train the discriminator less often or at a lower rate.

**False alarms to expect.** Networks whose first layers are meant to rest but have
``requires_grad=True``.

**Missing data.** Non-finite gradients are NUM001's business. Tensors not captured are left out.

**Source.** Ratio of first to last layer under 1e-3: AUTOTRAINER (ICSE 2021). Decay factor of at
most 1/4 a sigmoid layer: Glorot and Bengio (2010). The loss log(1 - D) saturates where the
discriminator wins: Goodfellow et al., "Generative Adversarial Nets" (2014). The absolute 1e-7 is
SageMaker Debugger's; as a default it alarms on every loss with a small weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    TRAIN,
    Finding,
    FloatArray,
    IntArray,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import skipped
from trainwarden.rules._motion import ends
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow, main_loss
from trainwarden.rules._selection import gathered, gradient_matrices
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import column

GRADIENT = Need("gradients", "abs_mean")
_GENERATOR = (
    "Let the generator maximise log D(G(z)) instead of minimising log(1 - D(G(z))).",
    "Train the discriminator once a step, at a lower learning rate, or smooth its labels.",
    "Use a loss that does not saturate: a Wasserstein distance with a gradient penalty, or hinge.",
)
_MIN_LAYERS = 3  # a trend needs three points
_GAME, _BEGUN = (-2.1, -0.35), 5  # -3 to -0.5 x ln 2; saved steps
_LOST, _NOTHING, _LONGER = 0.02, 0.01, 2  # of the first loss and gradient; of min_steps
_LATE, _LATE_ZERO = 50, 5  # steps; what passed gradients until then has died, see ACT001


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishingGradient(CheckedRule[Json]):
    """Fire when gradients decay towards the input in a run that does not learn."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "GRD001",
        "VanishingGradient",
        Severity.ERROR,
        Tier.EVIDENCE,
        (GRADIENT, Need("losses", "value")),
        (
            "Put residual connections or normalisation layers between the layers.",
            "Replace sigmoid and tanh by ReLU-like activations with Kaiming initialisation.",
            "Under fp16 scale the loss (torch.amp.GradScaler), or use bf16.",
            "Check that the weights are not initialised to zero.",
        ),
        "capture the collection gradients; trainwarden.watch() does so by default",
        explains=("LossNotDecreasing", "UnchangedTensor", "LearningRateTooLow", "AllZero"),
        sagemaker={"threshold": 1e-7},
    )

    threshold: float | None = param(
        None,
        "Absolute limit for mean |g|; given, SageMaker's meaning applies.",
        "loss units per parameter unit",
        bounds=Bounds(gt=0),
    )
    decades: float = param(
        3.0, "Decay from the last layer to the first.", "decades", bounds=Bounds(gt=0)
    )
    monotone: float = param(
        0.6, "Share of the layers that must lie below the next one.", bounds=Bounds(ge=0, le=1)
    )
    patience: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    min_steps: int = param(30, "Steps these must span.", "steps", bounds=Bounds(ge=0))
    max_fall: float = param(
        0.3, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """No gradient has been seen."""
        return {"at": -1, "count": 0, "since": -1, "fired": False, "loss": begin(), "game": None}

    def inspects(self, obs: Observation) -> bool:
        """Gradients."""
        return obs.captured("gradients").size > 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend or reset the streak; one finding per streak."""
        if self.threshold is not None:
            return self._absolute(state, obs)
        loss = follow(state["loss"], obs)
        state = {**state, "loss": loss}
        rows = obs.among(gradient_matrices(obs.layout))
        if obs.mode is not TRAIN or rows.size < _MIN_LAYERS or skipped(obs):
            return state, ()
        at = state["at"] = obs.step if state["at"] < 0 else state["at"]
        first, last = ends(obs, rows)
        state, lost = self._game(state, obs, first, last)
        if lost:
            return state, [lost]
        sound = first > 0 and last < first * 10**self.decades  # most steps of most runs end here
        found = None if sound else _judge(self, rows, _abs_mean(obs, rows))
        if found is None:
            state |= {"count": 0, "since": -1, "fired": False}
            return state, ()
        since = obs.step if state["count"] == 0 else state["since"]
        state = {**state, "count": state["count"] + 1, "since": since}
        ripe = state["count"] >= self.patience and obs.step - since >= self.min_steps
        late = since - at > (_LATE_ZERO if found.zero else _LATE)
        if state["fired"] or not ripe or late or fall(loss) >= self.max_fall:
            return state, ()
        return {**state, "fired": True}, [self._finding(obs, found, since, fall(loss))]

    def _game(
        self, state: Json, obs: Observation, first: float, last: float
    ) -> tuple[Json, Finding | None]:
        """Follow a loss that may be a generator's log(1 - D).

        ``game``: [first loss, largest |g| of both ends, saved steps, of these lost in a row, since
        when]; [] once it is known to be none, or is told.
        """
        value = main_loss(obs)
        if state["game"] == [] or value is None or not (math.isfinite(first + last)):
            return state, None
        loss = value[1]
        start, *most, seen, count, since = state["game"] or (loss, 0.0, 0.0, 0, 0, -1)
        if not (_GAME[0] <= start <= _GAME[1] and loss <= 0):
            return {**state, "game": []}, None
        if seen < _BEGUN:
            most = [max(most[0], first), max(most[1], last)]
        lost = loss >= _LOST * start and first <= _NOTHING * most[0] and last <= _NOTHING * most[1]
        count, since = (count + 1, since if count else obs.step) if lost else (0, -1)
        ripe = count >= self.patience and obs.step - since >= _LONGER * self.min_steps
        if not ripe:
            return {**state, "game": [start, *most, seen + 1, count, since]}, None
        name = obs.layout.names[int(obs.among(gradient_matrices(obs.layout))[0])]
        message = (
            f"the loss went up from {start:.3g} to {loss:.2g}, and mean |gradient| down from "
            f"{most[0]:.2g} to {first:.2g} in the first weight matrix and from {most[1]:.2g} to "
            f"{last:.2g} in the last: the discriminator is too sure for the generator to learn"
        )
        evidence = {"kind": "game", "first_layer_abs_mean": first, "last_layer_abs_mean": last}
        limit = _NOTHING * most[0]
        found = Finding(obs.step, name, first, limit, message, since, evidence, _GENERATOR, 0.8)
        return {**state, "game": []}, found

    def _finding(self, obs: Observation, found: _Vanished, since: int, fallen: float) -> Finding:
        name = obs.layout.names[found.row]
        first, last = float(found.values[0]), float(found.values[-1])
        learned = "" if math.isnan(fallen) else f" and the loss has fallen by {max(0, fallen):.0%}"
        evidence = {
            "first_layer_abs_mean": first,
            "last_layer_abs_mean": last,
            "layers": int(found.values.size),
            "by_layer": [
                float(f"{v:.3g}") for v in found.values[:: max(1, found.values.size // 12)]
            ],
            "loss_fall": None if math.isnan(fallen) else round(fallen, 4),
        }
        if found.zero:
            zeros = int(np.count_nonzero(found.values == 0))
            message = (
                f"the gradient is exactly 0 in {zeros} of {found.values.size} weight matrices "
                f"since step {since}, {name} among them{learned}"
            )
            return Finding(obs.step, name, 0.0, 0.0, message, since, evidence, confidence=0.9)
        decades = math.log10(last / first)
        message = (
            f"mean |gradient| falls from {last:.2g} in the last of {found.values.size} weight "
            f"matrices to {first:.2g} in the first, {decades:.1f} decades, since step {since}"
            f"{learned}"
        )
        return Finding(obs.step, name, first, last / 10**self.decades, message, since, evidence)

    def _absolute(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """SageMaker's meaning: each gradient tensor under the threshold, at once."""
        limit = self.threshold or 0.0
        names, rows, values = column(obs, GRADIENT)
        bad = obs.stats[rows, 1] + obs.stats[rows, 2] + obs.stats[rows, 3]
        values = np.where(bad > 0, np.nan, values)  # as numpy's mean has it
        low = values < limit
        if not low.any():
            return {**state, "fired": False}, ()
        if state["fired"]:
            return state, ()
        worst = int(np.nanargmin(values))
        message = f"mean |gradient| of {names[worst]} is {values[worst]:.2g}, under {limit:g}"
        evidence = {"tensors": int(low.sum())}
        value = float(values[worst])
        finding = Finding(obs.step, names[worst], value, limit, message, obs.step, evidence)
        return {**state, "fired": True}, [finding]


@dataclass(frozen=True)
class _Vanished:
    row: int
    values: FloatArray
    zero: bool


def _judge(rule: VanishingGradient, rows: IntArray, values: FloatArray) -> _Vanished | None:
    """Say how the gradients vanish at this step, None if they do not."""
    if not np.isfinite(values).all() or not values.any():
        return _Vanished(int(rows[0]), values, zero=True) if not values.any() else None
    if values[0] == 0 and np.count_nonzero(values == 0) * 2 >= values.size:
        return _Vanished(int(rows[0]), values, zero=True)
    if values[0] <= 0 or values[-1] < values[0] * 10**rule.decades:
        return None
    falling = np.count_nonzero(values[:-1] < values[1:]) / (values.size - 1)
    return _Vanished(int(rows[0]), values, zero=False) if falling >= rule.monotone else None


def _abs_mean(obs: Observation, rows: IntArray) -> FloatArray:
    stats = gathered(obs, rows)
    bad = stats[:, 1] + stats[:, 2] + stats[:, 3]
    finite = stats[:, 0] - bad
    values: FloatArray = stats[:, INDEX["sum_abs"]] / np.maximum(finite, 1.0)
    values[bad > 0] = np.nan
    return values
