"""LOS005 LossSpike: the loss jumps and does not come back, jumps again and again, or swings.

**Why it hurts.** A spike that is not recovered from has undone the training before it; the rest of
the run, paid for, repeats it at best.

**How it is computed.** The loss of a saved step is held against the start (the first loss, at least
ln C with C classes) and the lowest level so far; a level is the median of the last 6 saved losses
(unit: the loss's own). Where all steps since the last saved one are known (``window``), the largest
loss among them counts as the spike, with its own step. The finding's ``kind`` is

* ``blow_up``: within the first ``first_steps`` steps two losses are above ``blow_up`` times the
  start, or one above twice that (only with known classes: the first step of a regression may
  overshoot a tiny start by any factor, and come back);
* ``diverging``: the level has been above ``max_rise`` times the start for ``patience`` steps, is
  not below half its highest since, and was never below 0.6 of the start;
* ``not_recovered``: the level had fallen below 0.6 of the start, and has since, for ``patience``
  steps, been back by more than ``max_relapse`` of the way it had come, at three in four of the
  last 10 saved steps (or above ``max_rise`` times the start). ``spike_step`` in the
  evidence is the step of the largest loss since the best level: look at its batch first;
* ``repeated``: ``max_spikes`` times a loss jumped from a level below 0.6 of the start to 1.5 times
  the start or more, and more than ``sigmas`` robust standard deviations of log loss above it; the
  steps are in the evidence;
* ``oscillating``: the middle half of the last 20 losses, all of them later than ``first_steps``,
  spans more than half the start, while their median is not below 0.9 of it and no level ever
  below 0.6 (only with known classes: other losses swing by nature);
* ``recovered`` (severity info): a spike as under ``repeated`` of which 6 saved steps later
  nothing is left.

Of these but the last, the first to hold is told and no other.

**Remedy.** Clip gradients, lower the learning rate, look at the batch of the spike, go back to the
last checkpoint before it and skip that batch.

**False alarms to expect.** Data or a loss that change on purpose within a run.

**Missing data.** NaN and infinity are NUM001's business and are passed over. Not judged: a loss
that was ever 0 or less (a surrogate), runs of several optimizers (adversaries), and regression
whose targets' spread doubles or halves (bootstrapped values).

**Source.** Lightning's SpikeDetection (running mean, rtol 2.0) alarms on every fifth healthy run,
since late losses are small and a hard batch doubles them; measured on about 100 healthy runs: no
loss jumps back above its start more than once. Skipping batches: Chowdhery et al., "PaLM" (2022),
section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
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
from trainwarden.rules._baseline import classes, targets_variance
from trainwarden.rules._facts import several_optimizers
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss, window_peak

LOSSES = Need("losses", "value")
_RECENT, _LONGER, _KEPT = 6, 10, 20  # saved steps in a level (even: alternating losses), a relapse
_LEARNED = 0.6  # of the start: a level below has learned something
_HIGH = 1.5  # of the start: what repeated spikes reach
_APART = 5  # steps between two spikes
_FLOOR = 0.1  # of log loss: smallest standard deviation
_MOVING = 2.0  # change of the targets' spread that moves the loss with it
_SWING, _STUCK = 0.5, 0.9
_COMING_BACK = 0.5  # of the highest level: a loss below is on its way back
_MILD = "recovered"
_SEEN = 3  # saved steps after the first ones, which are dense
_TWICE = 2  # times that the loss blows up
_REMEDIES = {
    "repeated": (
        "Look at the batches of these steps: outliers, wrong labels, empty or corrupt samples.",
        "Clip gradients, so that one batch cannot move the weights far.",
        "Lower the learning rate; with Adam, lower beta2 to 0.95 or raise eps.",
    ),
    "oscillating": (
        "Lower the learning rate 3 to 10 times.",
        "Use larger batches, and check that they are shuffled.",
    ),
    "blow_up": (
        "Lower the learning rate 10 times, or warm it up.",
        "Scale inputs to zero mean and unit variance; check the initial weights.",
    ),
}


_Told = tuple[float, float, int, str]  # value, limit, first step, message
_Judge = Callable[[Json, Observation], "_Told | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpike(CheckedRule[Json]):
    """Fire when what was learned is lost in a jump, or the loss will not settle."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOS005",
        "LossSpike",
        Severity.WARNING,
        Tier.EVIDENCE,
        (LOSSES,),
        (
            "Go back to the checkpoint before the spike and skip its batch.",
            "Clip gradients (torch.nn.utils.clip_grad_norm_, 1.0 is usual).",
            "Lower the learning rate.",
        ),
        "capture losses: pass loss_fn to watch(), or call hook.record('loss', loss, 'losses')",
        ("LossNotDecreasing",),
    )

    tensor_regex: tuple[str, ...] = param((), "Losses to look at.", pattern=True)
    first_steps: int = param(20, "Steps that are the start.", "steps", bounds=Bounds(ge=1))
    blow_up: float = param(5.0, "Multiple of the start that is a blow-up.", bounds=Bounds(gt=1))
    max_rise: float = param(2.0, "Multiple of the start that is a divergence.", bounds=Bounds(gt=1))
    max_relapse: float = param(0.5, "Share of the way that may be lost.", bounds=Bounds(gt=0, le=1))
    patience: int = param(30, "Steps a level is given to recover.", "steps", bounds=Bounds(ge=1))
    max_spikes: int = param(3, "Spikes that are too many.", bounds=Bounds(ge=2))
    sigmas: float = param(8.0, "Robust standard deviations of a spike.", bounds=Bounds(gt=0))

    def start(self) -> Json:
        """No loss has been seen."""
        return {"origin": -1, "start": 0.0, "first": 0.0, "last": [], "saves": 0, "best": None,
                "top": None, "high": 0, "late": 0, "above": None, "lost": None, "spikes": [],
                "pending": None, "spread": None, "quiet": False, "told": []}  # fmt: skip

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Follow the loss; name each kind of trouble once."""
        loss = main_loss(obs, self.tensor_regex) if obs.mode is TRAIN else None
        if loss is None or state["quiet"]:
            return state, ()
        name, value = loss
        spread = _spread(state["spread"], obs)
        if value <= 0 or several_optimizers(obs) or spread[1] > _MOVING * spread[0]:
            return {**self.start(), "quiet": True}, ()
        state = self._follow(state, obs, value, spread)
        for kind, judge in self._judges(state):
            found = judge(state, obs) if kind not in state["told"] else None
            if found is not None:
                finding = _finding(state, obs, (name, kind), found)
                if kind != _MILD:
                    return {**self.start(), "quiet": True}, [finding]
                return {**state, "told": [kind]}, [finding]
        return state, ()

    def _judges(self, state: Json) -> Iterator[tuple[str, _Judge]]:
        """Who has something to judge, in the order in which kinds are told."""
        if state["high"] >= _TWICE:
            yield "blow_up", self._blow_up
        if state["above"] is not None:
            yield "diverging", self._diverging
        if state["lost"] is not None:
            yield "not_recovered", self._not_recovered
        if len(state["spikes"]) >= self.max_spikes:
            yield "repeated", self._repeated
        if state["late"] >= _KEPT and state["best"][1] >= _LEARNED * state["start"]:
            yield "oscillating", self._oscillating
        if state["pending"] is not None:
            yield _MILD, self._recovered

    def _follow(self, state: Json, obs: Observation, value: float, spread: list[float]) -> Json:
        step, peak = obs.step, window_peak(obs, value)
        origin, start, first = state["origin"], state["start"], state["first"]
        if origin < 0:
            origin, first, count = step, value, classes(obs)
            start = max(value, math.log(count)) if count else value
        high, late = state["high"], state["late"]
        if step - origin > self.first_steps:
            late += 1
        elif peak[1] > self.blow_up * start and classes(obs):
            high += _TWICE if peak[1] > 2 * self.blow_up * start else 1
        last = [*state["last"][1 - _KEPT :], value]
        level = median(last[-_RECENT:])
        best, top = state["best"], state["top"]
        top = peak if top is None or peak[1] >= top[1] else top
        if len(last) >= _RECENT and (best is None or level < best[1]):
            best, top = [step, level], None
        above, lost = len(last) >= _RECENT and level > self.max_rise * start, False
        if best is not None and best[1] < _LEARNED * start:
            limit = best[1] + self.max_relapse * (start - best[1])
            lower = sorted(last[-_LONGER:])[_LONGER // 4]
            lost, above = lower > limit or above, False
        return {
            **state,
            **self._spiked(state, start, peak),
            "origin": origin,
            "start": start,
            "first": first,
            "saves": state["saves"] + 1,
            "high": high,
            "late": late,
            "last": last,
            "best": best,
            "top": top,
            "above": _since(state["above"], step, level, holds=above),
            "lost": _since(state["lost"], step, level, holds=lost),
            "spread": spread,
        }

    def _spiked(self, state: Json, start: float, peak: list[float]) -> dict[str, Json]:
        """Remember a spike; [step, loss, saved steps so far, level before]."""
        last, spikes = state["last"], state["spikes"]
        if len(last) < _KEPT // 2:
            return {}
        if peak[1] < _HIGH * start or (level := median(last)) >= _LEARNED * start:
            return {}
        logs = [math.log(v) for v in last]
        middle = median(logs)
        sigma = max(_FLOOR, 1.4826 * median(abs(v - middle) for v in logs))
        if math.log(peak[1]) - middle < self.sigmas * sigma:
            return {}
        if spikes and peak[0] - spikes[-1][0] < _APART:
            return {}
        spikes = [*spikes[-self.max_spikes :], [peak[0], peak[1]]]
        return {"spikes": spikes, "pending": [*peak, state["saves"], level]}

    def _blow_up(self, state: Json, obs: Observation) -> _Told:
        start = state["start"]
        step, value = state["top"] or [obs.step, state["last"][-1]]
        message = f"the loss blew up to {value:.4g} at step {step:.0f}; {_began(state)}"
        return value, self.blow_up * start, int(step), message

    def _diverging(self, state: Json, obs: Observation) -> _Told | None:
        if not self._lasted(state, state["above"], obs):
            return None
        level, start = median(state["last"][-_RECENT:]), state["start"]
        if level < _COMING_BACK * state["above"][2]:
            return None
        message = (
            f"the loss has been above {self.max_rise * start:.4g} since step {state['above'][0]}, "
            f"and is {level:.4g} at step {obs.step}; {_began(state)}"
        )
        return level, self.max_rise * start, state["above"][0], message

    def _not_recovered(self, state: Json, obs: Observation) -> _Told | None:
        if not self._lasted(state, state["lost"], obs):
            return None
        level, best, top = median(state["last"][-_RECENT:]), state["best"], state["top"]
        limit = best[1] + self.max_relapse * (state["start"] - best[1])
        message = (
            f"the loss had come down to {best[1]:.4g} at step {best[0]}, jumped to {top[1]:.4g} at "
            f"step {top[0]:.0f} and has not recovered: it is {level:.4g} at step {obs.step}"
        )
        return level, limit, state["lost"][0], message

    def _repeated(self, state: Json, obs: Observation) -> _Told:
        del obs
        spikes = state["spikes"]
        value = max(v for _, v in spikes)
        steps = ", ".join(f"{s:.0f}" for s, _ in spikes)
        message = (
            f"the loss jumped back above its start, to {value:.4g} at most, again and again: at "
            f"steps {steps}; {_began(state)}"
        )
        return value, _HIGH * state["start"], int(spikes[0][0]), message

    def _oscillating(self, state: Json, obs: Observation) -> _Told | None:
        last, start = state["last"], state["start"]
        if not _cross_entropy(obs) or median(last) < _STUCK * start:
            return None
        low, _, high = quantiles(last, n=4)
        if high - low < _SWING * start:
            return None
        message = (
            f"the loss swings between {low:.4g} and {high:.4g} in half of the steps, and worse in "
            f"the other half; {_began(state)}"
        )
        return high - low, _SWING * start, state["origin"], message

    def _recovered(self, state: Json, obs: Observation) -> _Told | None:
        step, value, at, before = state["pending"]
        if state["saves"] - at < _RECENT:
            return None
        if median(state["last"][-_RECENT:]) > 2 * before:
            return None
        message = (
            f"the loss jumped from {before:.4g} to {value:.4g} at step {step:.0f} and was back at "
            f"step {obs.step}"
        )
        return value, _HIGH * state["start"], int(step), message

    def _lasted(self, state: Json, since: Json, obs: Observation) -> bool:
        """Say whether something has held for ``patience`` steps, long enough to be seen."""
        if obs.step - since[0] < self.patience:
            return False
        return bool(since[1] >= _RECENT and state["late"] >= _SEEN)


def _began(state: Json) -> str:
    """Say where the loss began; it counts as no better than a guess."""
    first, start = state["first"], state["start"]
    guess = f", where a guess has {start:.4g}" if first < start else ""
    return f"it began at {first:.4g}{guess}"


def _finding(state: Json, obs: Observation, about: tuple[str, str], told: _Told) -> Finding:
    (name, kind), (value, limit, since, message) = about, told
    best, top = state["best"], state["top"]
    evidence: dict[str, Json] = {"kind": kind, "start": state["start"]}
    if best is not None:
        evidence |= {"best_step": best[0], "best": best[1]}
    if top is not None:
        evidence |= {"spike_step": int(top[0]), "spike": top[1]}
    if state["spikes"]:
        evidence["spike_steps"] = [int(s) for s, _ in state["spikes"]]
    since = max(0, min(since, obs.step))
    severity = Severity.INFO if kind == _MILD else None
    remedies = _REMEDIES.get(kind, ())
    return Finding(obs.step, name, value, limit, message, since, evidence, remedies, 0.8, severity)


def _cross_entropy(obs: Observation) -> bool:
    facts = obs.scalars.get("objective", {})
    return "cross_entropy.classes" in facts or "nll_loss.classes" in facts


def _since(state: Json, step: int, level: float, *, holds: bool) -> Json:
    """[first step, saved steps, highest level] of what has held without a break, or None."""
    if not holds:
        return None
    since, saves, highest = state or [step, 0, level]
    return [min(since, step), saves + 1, max(highest, level)]


def _spread(state: Json, obs: Observation) -> list[float]:
    """[smallest, largest] standard deviation of real-valued targets so far."""
    variance = targets_variance(obs)
    if not variance > 0:
        return state or [1e300, 0.0]
    std, (low, high) = math.sqrt(variance), state or (math.inf, 0.0)
    return [min(low, std), max(high, std)]
