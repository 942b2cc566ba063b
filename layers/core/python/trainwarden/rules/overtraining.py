"""LOS003 Overtraining: the best validation pass is long past, and training goes on.

**Why it hurts.** Every step since the best pass was paid for and made the model worse on data that
it has not seen.

**How it is computed.** The level is the median of the last 5 validation losses, noise the robust
standard deviation of one (1.4826 x median |difference of successive passes| ÷ √2; unit: the loss's
own). At each validation pass, against the lowest level so far, the rule asks that

* ``patience`` passes and as many steps have gone by since as it took to get there;
* the level is above the lowest by ``regress`` x the way it had come (start - lowest), by
  ``rise`` x the lowest, and by 3 x noise;
* the training loss, averaged between passes, is below its own value at the lowest level, so that
  it is not the whole run that got worse.

It fires once. Overfit, which asks for the gap between the losses, speaks earlier and explains it.

With ``patience_train``, ``patience_validation`` or ``delta`` given, SageMaker's meaning instead:
the training loss has not improved by more than ``delta`` for ``patience_train`` saved steps, or
the validation loss for ``patience_validation`` saved ones. (Its documentation counts steps; with
its save interval of 500, saved steps are meant.) It fires at each such step.

**Remedy.** Keep the checkpoint of the best pass and stop there; EarlyStopping does it in time.

**False alarms to expect.** Runs that go on on purpose, to generalise late ("grokking").

**Missing data.** Without validation passes nothing is inspected. NaN and infinity are passed over.

**Source.** Prechelt, "Early Stopping - But When?" (1998). SageMaker Debugger's defaults (5, 10,
delta 0.1) alarm on most healthy runs, since a loss below 0.1 cannot improve by 0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import ClassVar

from trainwarden.model import (
    EVAL,
    TRAIN,
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss, window_mean

LOSSES = Need("losses", "value")
_LEVEL, _KEPT = 5, 16  # passes in a level, and in the noise
_SURE = 3.0  # standard deviations
_TRAIN, _VALIDATION, _DELTA = 5, 10, 0.1  # SageMaker's


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtraining(CheckedRule[Json]):
    """Fire when training has gone on for long past the best validation loss."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOS003",
        "Overtraining",
        Severity.WARNING,
        Tier.EVIDENCE,
        (LOSSES,),
        (
            "Stop here: keep the checkpoint of the best validation pass.",
            "Use the rule EarlyStopping, with the action stop, for the next run.",
            "Regularise (dropout, weight decay, augmentation), so that longer training helps.",
        ),
        "run validation passes in eval mode with the loss function that trainwarden.watch() got",
        ("EarlyStopping",),
        sagemaker={
            "patience_train": _TRAIN,
            "patience_validation": _VALIDATION,
            "delta": _DELTA,
        },
    )

    patience_train: int | None = param(
        None, "SageMaker's is 5; given, its meaning holds.", "saved steps", bounds=Bounds(ge=1)
    )
    patience_validation: int | None = param(
        None, "SageMaker's is 10; given, its meaning holds.", "saved steps", bounds=Bounds(ge=1)
    )
    delta: float | None = param(
        None, "Least improvement; SageMaker's is 0.1.", "the loss's own", bounds=Bounds(ge=0)
    )
    tensor_regex: tuple[str, ...] = param((), "Losses to look at.", pattern=True)
    patience: int = param(10, "Passes since the best one.", "passes", bounds=Bounds(ge=1))
    regress: float = param(0.1, "Rise as a share of start - lowest.", bounds=Bounds(ge=0, lt=1))
    rise: float = param(0.1, "Rise as a share of the lowest.", bounds=Bounds(ge=0))

    def start(self) -> Json:
        """No loss has been seen."""
        return {"train": [0.0, 0], "mean": None, "start": None, "last": [], "best": None,
                "passes": 0, "told": False, "modes": {}}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """A validation loss."""
        return obs.mode is EVAL and bool(obs.scalars.get("losses"))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Average the training losses; judge at each validation pass."""
        loss = main_loss(obs, self.tensor_regex)
        if loss is None or obs.mode not in {TRAIN, EVAL}:
            return state, ()
        if (self.patience_train, self.patience_validation, self.delta) != (None, None, None):
            return self._sagemaker(state, obs, *loss)
        if state["told"]:
            return state, ()
        if obs.mode is TRAIN:
            steps, mean = window_mean(obs)
            total, count = state["train"]
            total, count = total + (mean * steps if steps else loss[1]), count + (steps or 1)
            start = loss[1] if state["start"] is None else state["start"]
            return {**state, "train": [total, count], "start": start}, ()
        return self._judge(state, obs, *loss)

    def _judge(
        self, state: Json, obs: Observation, name: str, value: float
    ) -> tuple[Json, Sequence[Finding]]:
        total, count = state["train"]
        train = total / count if count else state["mean"]
        if train is None:
            return state, ()
        start = max(state["start"], value) if not state["last"] else state["start"]
        last = [*state["last"][1 - _KEPT :], value]
        passes, best = state["passes"] + 1, state["best"]
        state = {**state, "train": [0.0, 0], "mean": train, "start": start, "last": last,
                 "passes": passes}  # fmt: skip
        level = median(last[-_LEVEL:])
        if best is None or level < best[1]:
            return {**state, "best": [obs.step, level, passes, train]}, ()
        limit = best[1] + max(
            self.regress * max(0.0, start - best[1]),
            self.rise * abs(best[1]),
            _SURE * _noise(last),
        )
        long = passes - best[2] >= self.patience and obs.step >= 2 * best[0]
        if not long or level <= limit or train >= best[3]:
            return state, ()
        message = (
            f"the validation loss was best around step {best[0]}, at {best[1]:.4g}, and is "
            f"{level:.4g} at step {obs.step}, {passes - best[2]} passes later"
        )
        evidence = {"best_step": best[0], "best": best[1], "validation": level, "training": train,
                    "passes_since": passes - best[2]}  # fmt: skip
        since = min(best[0], obs.step)
        found = Finding(obs.step, name, level, limit, message, since, evidence)
        return {**state, "told": True}, [found]

    def _sagemaker(
        self, state: Json, obs: Observation, name: str, value: float
    ) -> tuple[Json, Sequence[Finding]]:
        """``modes`` maps mode → [lowest loss, its step, saved steps without improvement]."""
        training = obs.mode is TRAIN
        given, usual = (
            (self.patience_train, _TRAIN) if training else (self.patience_validation, _VALIDATION)
        )
        patience, delta = given or usual, _DELTA if self.delta is None else self.delta
        mode, modes = obs.mode.value, state["modes"]
        lowest, at, count = modes.get(mode) or [None, obs.step, 0]
        if lowest is None or value < lowest - delta:
            return {**state, "modes": {**modes, mode: [value, obs.step, 0]}}, ()
        count += 1
        state = {**state, "modes": {**modes, mode: [lowest, at, count]}}
        if count < patience:
            return state, ()
        what = "training" if training else "validation"
        message = (
            f"the {what} loss is {value:.4g} and has not been more than {delta:g} below its best "
            f"of {lowest:.4g} for {count} saved steps"
        )
        return state, [Finding(obs.step, name, value, lowest - delta, message, min(at, obs.step))]


def _noise(values: Sequence[float]) -> float:
    """Robust standard deviation of one pass, from the differences of successive ones."""
    changes = [abs(b - a) for a, b in pairwise(values)]
    return 1.4826 * median(changes) / 2**0.5 if changes else 0.0
