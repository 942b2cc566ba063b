"""DAT008 DistributionShift: the inputs leave the range they had, abruptly, and the loss suffers.

**Why it hurts.** A model trained on one kind of inputs is suddenly fed another: a file of another
sensor, a transform that came too late, sequences of another length. What it learned no longer fits.

**How it is computed.** The hook measures the shift of a float input: the mean over its features of
|mean of the batch - mean of the first samples| ÷ std of the first samples (unit: standard
deviations). After ``saves`` saved steps, with usual the median and scatter the median absolute
deviation of the shifts before, it fires when the last ``patience`` saved steps all have a shift
above usual + max(``threshold``, 8 x scatter), the one before them had not, and the median of the
loss over them is above ``rise`` times the one just before.

**Remedy.** Look at the batches from the step named on; shuffle files; check transforms, epoch
boundaries and the order of sources.

**False alarms to expect.** None known; drift that is slow, or that the loss does not mind
(curricula, augmentation schedules, a policy that sees new states), is no finding.

**Missing data.** Without float inputs nothing is inspected. NaN is passed over. A loss that is ever
0 or less is no measure of suffering: such runs are not judged.

**Source.** Measured: batches of 8 to 128 samples of one distribution shift by 0.1 to 0.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from trainwarden.model import TRAIN, Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import _batch
from trainwarden.rules._batch import fact
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss

_KEPT = 20  # saved steps before
_SCATTER = 8.0  # median absolute deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionShift(CheckedRule[Json]):
    """Fire when inputs jump to another range and stay, to the loss's harm."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT008",
        "DistributionShift",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("batch", "value"),),
        (
            "Look at the batches from this step on: another source, file or transform?",
            "Shuffle over all sources.",
        ),
        "capture the inputs: call the model that trainwarden.watch() was given, with float inputs",
        explains=("LossSpike", "ExplodingGradient", "Overfit"),
    )

    threshold: float = param(1.0, "Least jump.", "standard deviations", bounds=Bounds(gt=0))
    saves: int = param(10, "Saved steps before a jump.", "saved steps", bounds=Bounds(ge=3, le=20))
    patience: int = param(4, "Saved steps after it.", "saved steps", bounds=Bounds(ge=2, le=20))
    rise: float = param(1.5, "Times the loss before.", bounds=Bounds(gt=1))

    def start(self) -> Json:
        """No input has been seen."""
        return _usual("", [], [])

    def inspects(self, obs: Observation) -> bool:
        """The shift of an input at a training step."""
        return obs.mode is TRAIN and _shift(obs) is not None

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Hold this step's shift against those before."""
        if state == {} or obs.mode is not TRAIN or "batch" not in obs.scalars:
            return state, ()
        shift, loss = _shift(obs), main_loss(obs)
        if shift is None or loss is None:
            return state, ()
        if loss[1] <= 0:
            return {}, ()
        return self._follow(state, obs, *shift, loss[1])

    def _follow(
        self, state: Json, obs: Observation, name: str, shift: float, loss: float
    ) -> tuple[Json, Sequence[Finding]]:
        if state["name"] not in ("", name):
            return _usual(name, [], []), ()
        before = state["shifts"]
        if len(before) < self.saves or not self._away(before, shift):
            shifts = [*before, *state["away"], shift][-_KEPT:]
            losses = [*state["losses"], *state["bad"], loss][-_KEPT:]
            return _usual(name, shifts, losses), ()
        away, bad = [*state["away"], shift], [*state["bad"], loss]
        since = state["since"] if state["away"] else obs.step
        if len(away) < self.patience:
            return {**state, "name": name, "away": away, "bad": bad, "since": since}, ()
        usual = median(state["losses"][-self.saves :])
        if median(bad) <= self.rise * usual:
            # nothing suffers: this is what inputs look like from now on
            return _usual(name, away, bad), ()
        message = (
            f"from step {since} on {name} is {median(away):.3g} standard deviations away from its "
            f"first batches, {median(before):.2g} before; the loss went from {usual:.4g} to "
            f"{median(bad):.4g}"
        )
        evidence = {
            "kind": "jump",
            "usual": median(before),
            "loss_before": usual,
            "loss": median(bad),
        }
        limit = median(before) + self.threshold
        tensor = name if name in obs.layout.row_of else ""
        return {}, (Finding(obs.step, tensor, median(away), limit, message, since, evidence),)

    def _away(self, before: Sequence[float], value: float) -> bool:
        if value <= min(before) + self.threshold:
            return False
        usual = median(before)
        scatter = median(abs(shift - usual) for shift in before)
        return value > usual + max(self.threshold, _SCATTER * scatter)


def _usual(name: str, shifts: list[float], losses: list[float]) -> Json:
    """State in which an input is where it usually is."""
    return {"name": name, "shifts": shifts, "losses": losses, "away": [], "bad": [], "since": -1}


def _shift(obs: Observation) -> tuple[str, float] | None:
    """Name and shift of the input that shifted most; None if none is known."""
    if "shift" not in obs.memo:
        obs.memo["shift"] = _most_shifted(obs)
    found: tuple[str, float] | None = obs.memo["shift"]
    return found


def _most_shifted(obs: Observation) -> tuple[str, float] | None:
    most = None
    for name, facts in _batch.inputs(obs).items():
        shift = fact(facts, "shift")
        if shift >= 0 and (most is None or (shift, name) > (most[1], most[0])):
            most = name, shift
    return most
