"""LOS001 LossNotDecreasing: the training loss stays where it began, or runs away.

**Why it hurts.** The job pays for steps that teach nothing.

**How it is computed.** A saved step counts with the mean loss of all steps since the last saved
one, where that is known (``window``), else with its own (unit: the loss's own). The start is the
median of the first saved losses (15 at most, of the first 30 steps), the level the median of the
last ``window`` saved ones, of the second half of the run. With fall = 1 - level ÷ start and its
standard error e, from the median absolute deviations of both, the rule fires once ``min_steps``
steps and ``min_saves`` saved steps have passed and (the finding's ``kind``)

* ``flat``: fall + e < ``min_fall`` x min(1, steps ÷ 300) and fall > -``min_fall`` - min(3 e, 0.2),
  while e < 0.1, neither was an earlier level more than 15 % below the start, nor is this one 30 %
  below the very first loss, or 5 % and 2 standard errors below the mean of the first three;
* ``trivial``: with C classes, after 150 steps, the level is at 0.995 ln C or above, what a guess
  reaches, and in the last quarter of the run is with standard error not 0.5 % below that of the
  quarter before, while the share of right answers is not 0.2 above 1 ÷ C; wherever the start was;
* ``diverged``: the median of the last 5 losses is above ``max_rise`` times the start, and for
  real-valued targets above twice their variance.

Where neither start nor guess is exceeded by 2 % and every weight matrix moves by 0.1 % of its size
times the square root of the steps since the last saved one, ``flat`` and ``trivial`` wait for
``patience`` steps, and longer while the last 5 losses are 3 standard errors below those before:
parities and the like are a plateau at first, on which features are searched.

Not judged: a loss that is ever 0 or less (a surrogate: policy gradients, densities), a run of
several optimizers or of targets that are all alike within a batch (adversaries keep each other's
loss where it is), a run that starts converged (its first loss is under half of ln C, or under a
tenth of the variance of real-valued targets), a start or level better than a guess (for two classes
under 0.99 of the targets' entropy; with C classes under 0.9 ln C while the share of right answers
is 0.2 above 1 ÷ C), and the steps during which the learning rate rises.

With ``diff_percent`` or ``num_steps`` given, SageMaker's meaning instead, for each loss: every
``num_steps`` steps it must be at least ``diff_percent`` per cent below that of the newest saved
step that is ``num_steps`` or more older; equal or NaN counts as not decreasing. Of the modes seen
so far EVAL counts, else TRAIN, else GLOBAL, and steps are counted within it.

**Remedy.** Overfit one batch first. Then: learning rate (try 10 times up and down), labels that fit
the inputs, softmax applied twice, shapes that broadcast in the loss, the optimizer's parameters.

**False alarms to expect.** Tasks with a long first plateau; raise ``patience``.

**Missing data.** NaN and infinity are NUM001's business and are passed over.

**Source.** SageMaker Debugger's LossNotDecreasing alarms on half of healthy runs, since any noise
is a non-decrease. Measured on 200 healthy runs: from step 40 on none is as flat as that, while runs
that learn nothing stay within 3 %. ln C: the loss of a uniform guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._baseline import (
    adversary,
    better_than_a_guess,
    starts_converged,
    targets_variance,
    trivial_loss,
)
from trainwarden.rules._compared import MODES, compared
from trainwarden.rules._facts import several_optimizers
from trainwarden.rules._motion import update_ratios
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss, window_mean

LOSSES = Need("losses", "value")
_START_SAVES, _START_STEPS = 15, 30
_FULL_STEPS = 300  # from here on min_fall counts in full
_AT_ONCE = 0.3
_ONCE_LOWER = 0.15  # a run whose level was this much below its start is not flat
_SOON, _SPREAD = 0.05, 2.0  # what has fallen by this since the first three losses is not flat
_GUESS, _STILL, _LATER, _GUESSES = 0.995, 0.005, 150, 2.0
_Losses = list[tuple[int, float, int]]  # step, mean loss, of so many steps
_NEAR = 1.02  # times the start and the guess: above it nothing is being searched for
_MOVES = 1e-3  # of its size a step, times the square root of steps: noise has no direction
_NOISY = 0.1  # a level known no better than this says nothing
_RECENT, _FEWEST, _MANY = 5, 3, 10
_SURE, _RISE = 3.0, 0.2  # standard errors, and a rise that noise does not explain


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNotDecreasing(CheckedRule[Json]):
    """Fire when the training loss never left its start, or ran away from it."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOS001",
        "LossNotDecreasing",
        Severity.WARNING,
        Tier.EVIDENCE,
        (LOSSES,),
        (
            "Try a learning rate 10 times higher, then 10 times lower.",
            "Try to overfit a single batch; if that fails, model, loss or labels are wrong.",
            "Check the loss: softmax applied twice, shapes that broadcast, labels out of order.",
            "Check that the optimizer holds the model's parameters and that they get gradients.",
        ),
        "capture losses: pass loss_fn to watch(), or call hook.record('loss', loss, 'losses')",
        sagemaker={"num_steps": 10, "diff_percent": 0.0},
    )

    num_steps: int | None = param(
        None, "Steps between compared losses; SageMaker's is 10.", "steps", bounds=Bounds(ge=1)
    )
    diff_percent: float | None = param(
        None, "Least decrease; SageMaker's is 0.", "%", bounds=Bounds(ge=0, le=100)
    )
    mode: str | None = param(None, "Mode of the losses to look at.", choices=MODES)
    tensor_regex: tuple[str, ...] = param((), "Losses to look at.", pattern=True)
    min_steps: int = param(70, "Steps before the loss is judged.", "steps", bounds=Bounds(ge=1))
    min_saves: int = param(4, "Saved steps before that.", "saved steps", bounds=Bounds(ge=4))
    window: int = param(25, "Saved steps in the level.", "saved steps", bounds=Bounds(ge=3))
    min_fall: float = param(
        0.03, "Least share of the start that must be gone.", bounds=Bounds(gt=0, lt=1)
    )
    patience: int = param(
        300, "Steps before that where all weights still move well.", "steps", bounds=Bounds(ge=1)
    )
    max_rise: float = param(10.0, "Level over start that is a divergence.", bounds=Bounds(gt=1))

    def start(self) -> Json:
        """No loss has been seen."""
        return {"at": -1, "origin": -1, "first": [], "last": [], "best": None, "low": None,
                "saves": 0, "rate": 0.0, "converged": False, "told": False, "mode": "",
                "checks": {}}  # fmt: skip

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Follow the loss; say once that it is flat or has run away."""
        if self.num_steps is not None or self.diff_percent is not None:
            return compared(
                state, obs, self.tensor_regex, self.mode,
                steps=self.num_steps or 10, percent=self.diff_percent or 0.0,
            )  # fmt: skip
        loss = main_loss(obs, self.tensor_regex)
        if loss is None or obs.mode != (self.mode or "TRAIN") or state["told"]:
            return state, ()
        state, fell = self._follow(state, obs, loss[1])
        found = None if fell and self._well(state, obs) else self._judge(state, obs, loss[0])
        return ({**state, "told": True}, [found]) if found else (state, ())

    def _follow(self, state: Json, obs: Observation, loss: float) -> tuple[Json, bool]:
        """Take a loss into account; say whether a level was once well below the start."""
        rate = float(obs.scalars.get("optimizer", {}).get("lr_0", 0.0))
        rising = rate > state["rate"] * (1 + 1e-6)
        origin = obs.step if state["origin"] < 0 else state["origin"]
        first, converged = state["first"], state["converged"]
        if not first or (len(first) < _START_SAVES and obs.step - origin < _START_STEPS):
            first = [*first, loss]
            converged = converged or starts_converged(obs, loss)
        steps, mean = window_mean(obs)
        here = [obs.step, mean, steps] if steps > 1 else [obs.step, loss, 1]
        last = [*state["last"][1 - self.window :], here]
        best = state["best"]
        fell = _fell(first, best)
        if len(last) >= self.window and not fell:
            level = median([value for _, value, _ in last])
            best = level if best is None else min(best, level)
            fell = _fell(first, best)
        low = loss if state["low"] is None else min(loss, state["low"])
        if steps and math.isfinite(least := obs.scalars["window"].get("loss_min", math.nan)):
            low = min(low, least)
        state = {
            **state,
            "at": obs.step if rising else state["at"],
            "origin": origin,
            "first": first,
            "last": last,
            "best": best,
            "low": low,
            "saves": state["saves"] + 1,
            "rate": max(rate, state["rate"]),
            "converged": converged,
        }
        return state, fell

    def _well(self, state: Json, obs: Observation) -> bool:
        """Say at a glance whether a run that fell is neither away nor at a guess."""
        least = min(state["first"])  # the start is not below it
        recent = median([value for _, value, _ in state["last"][-_RECENT:]])
        if least <= 0 or recent > self.max_rise * least:
            return False
        guess = trivial_loss(obs)
        return not guess or recent < _GUESS * guess

    def _judge(self, state: Json, obs: Observation, name: str) -> Finding | None:
        start = median(state["first"])
        if state["saves"] < self.min_saves or start <= 0 or state["low"] <= 0:
            return None
        recent = median([value for _, value, _ in state["last"][-_RECENT:]])
        if recent > self.max_rise * start and recent > _GUESSES * targets_variance(obs):
            message = (
                f"the {name} has run away: it is {recent:.4g} at step {obs.step}, "
                f"{recent / start:.1f} times its start of {start:.4g}"
            )
            numbers = (recent, self.max_rise * start)
            return self._finding(state, obs, (name, "diverged"), numbers, message)
        steps = obs.step - max(0, state["at"], state["origin"])
        if steps < self.min_steps or several_optimizers(obs) or adversary(obs):
            return None
        if state["best"] is not None and state["best"] < (1 - _ONCE_LOWER) * start:
            guess = trivial_loss(obs)
            if not guess or recent < _GUESS * guess:
                return None
        last = [entry for entry in state["last"] if 2 * (obs.step - entry[0]) <= steps]
        if len(last) < _FEWEST and sum(entry[2] for entry in last) < self.window:
            return None
        found = self._flat(state, obs, name, steps, last) or self._trivial(
            state, obs, name, steps, last
        )
        return None if found and self._searches(state, obs, found, steps, last) else found

    def _searches(
        self, state: Json, obs: Observation, found: Finding, steps: int, last: _Losses
    ) -> bool:
        """Say whether this may be a plateau in front of a discovery, or its end."""
        highest = _NEAR * min(median(state["first"]), trivial_loss(obs) or math.inf)
        if found.value > highest or not _moves_well(obs, state["last"]):
            return False
        return steps < self.patience or _leaves(last)

    def _flat(
        self, state: Json, obs: Observation, name: str, steps: int, last: _Losses
    ) -> Finding | None:
        first = state["first"]
        start, level = median(first), median([value for _, value, _ in last])
        fallen, least = 1 - level / start, self.min_fall * min(1.0, steps / _FULL_STEPS)
        if fallen >= least or state["converged"]:
            return None
        few = len(first) < _RECENT  # too few to tell; the same batches' noise
        noise = _spread([value for _, value, _ in last] if few else first) / math.sqrt(len(first))
        error = math.hypot(noise, _error_of(last, first)) / start
        if error >= _NOISY or fallen + error >= least:
            return None
        if min(level, start) < better_than_a_guess(obs):
            return None
        lowest, once = min(level, state["best"] or level), (1 - _ONCE_LOWER) * start
        opening = first[:_FEWEST]
        unsure = _SPREAD * _spread(first) / math.sqrt(len(opening))
        was_lower = (
            level < (1 - _AT_ONCE) * first[0]
            or level < (1 - _SOON) * sum(opening) / len(opening) - unsure
            or lowest < once
        )
        if was_lower or fallen < -min(_RISE, _SURE * error) - self.min_fall:
            return None
        change = f"{abs(fallen):.1%} {'lower' if fallen >= 0 else 'higher'}"
        message = (
            f"the {name} is {level:.4g} after {steps} steps and was {start:.4g} at the start: "
            f"{change}, where at least {least:.1%} lower was to be expected"
        )
        return self._finding(state, obs, (name, "flat"), (level, start * (1 - least)), message)

    def _trivial(
        self, state: Json, obs: Observation, name: str, steps: int, last: _Losses
    ) -> Finding | None:
        guess = trivial_loss(obs)
        level = median([value for _, value, _ in last])
        early = steps < _LATER or len(last) < 2 * _FEWEST
        if early or not guess or level < _GUESS * guess:
            return None
        before, after = last[: len(last) // 2], last[len(last) // 2 :]
        was, now = (median([value for _, value, _ in part]) for part in (before, after))
        error = math.hypot(_error_of(before, state["first"]), _error_of(after, state["first"]))
        if was - now + error >= _STILL * was:
            return None
        message = (
            f"the {name} rests at {level:.4g}, where a guess among {math.exp(guess):.0f} classes "
            f"has {guess:.4g}"
        )
        return self._finding(state, obs, (name, "trivial"), (level, _GUESS * guess), message)

    def _finding(
        self,
        state: Json,
        obs: Observation,
        about: tuple[str, str],
        numbers: tuple[float, float],
        message: str,
    ) -> Finding:
        evidence = {"kind": about[1], "start": median(state["first"]), "lowest": state["low"],
                    "saves": state["saves"]}  # fmt: skip
        since = max(0, min(state["origin"], obs.step))
        return Finding(obs.step, about[0], *numbers, message, since, evidence, confidence=0.8)


def _moves_well(obs: Observation, last: _Losses) -> bool:
    """Say whether every weight matrix moved well since the last saved step."""
    ratios = update_ratios(obs)
    since = obs.step - last[-2][0] if len(last) > 1 else 1
    return bool(ratios.size) and bool(np.all(ratios >= _MOVES * math.sqrt(max(1, since))))


def _leaves(last: _Losses) -> bool:
    """Say whether the newest losses are surely below those before them."""
    before, after = last[:-_RECENT], last[-_RECENT:]
    if len(before) < _RECENT:
        return False
    was, now = ([value for _, value, _ in part] for part in (before, after))
    error = math.hypot(*(_spread(part) / math.sqrt(len(part)) for part in (was, now)))
    return median(was) - median(now) > _SURE * error


def _fell(first: Sequence[float], best: float | None) -> bool:
    """Say whether a level was so low that the run is not flat for ever."""
    if best is None or best >= (1 - _ONCE_LOWER) * max(first):
        return False
    return best < (1 - _ONCE_LOWER) * min(first) or best < (1 - _ONCE_LOWER) * median(first)


def _spread(values: Sequence[float]) -> float:
    """Robust standard deviation."""
    return 1.4826 * float(np.median(np.abs(np.subtract(values, median(values)))))


def _error_of(last: _Losses, first: Sequence[float]) -> float:
    """Standard error of the median of means over several steps each.

    Where they are too few to tell, from the spread of the first losses, one step each.
    """
    steps = sum(entry[2] for entry in last)
    if len(last) < _RECENT <= len(first) and steps > len(last):
        return _spread(first) / math.sqrt(steps)
    spread = _spread([value for _, value, _ in last])
    if len(last) < _MANY and steps == len(last):
        spread = max(spread, _spread(first))  # single losses, few of them, may agree by chance
    return spread / math.sqrt(len(last))
