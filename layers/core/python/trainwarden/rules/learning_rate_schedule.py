"""OPT004 LearningRateSchedule: the schedule takes the learning rate away, or gives too much of it.

**Why it hurts.** A rate that falls before the network has learned freezes it where it is; a rate
that is too high at the start, or raised again, throws away what was there.

**How it is computed.** The rate is the largest ``lr_i`` of the optimizer (unit: none), the peak the
largest rate so far, ``full`` = sum of rate x steps ÷ peak the number of steps at full rate that
the run has had (unit: steps). Levels of the loss are medians of saved losses. The finding's
``kind`` is

* ``per_batch``: the rate fell to ``min_rate`` of its peak or below within T steps and has stayed
  there for ``linger`` x T x min(1, T ÷ 100) steps (8 at least), ``full`` is at most ``max_full``
  and the loss was not cut to half by then (to a tenth, where ``full`` is at most 25). A scheduler
  meant for epochs that is stepped at every batch does this;
* ``restart``: the rate was raised to 3 times its value or more, and ``patience`` steps later the
  loss has lost at least 85 % of the way it had come, which was 40 % of its start or more;
* ``rising``: the rate grows, to 5 times that of the lowest loss or more, and the loss rises with it
  to more than twice its start;
* ``uncapped``: the rate has grown in proportion to the steps from the first one on, within a
  quarter, and still grows. The loss had lost a fifth of its start or more, and of that way a fifth
  is given back, by each of the last five saved losses at least a tenth, in as many steps as it took
  to the lowest level and in 60 at least, at twice that level's rate; or each has given back 0.6, in
  ``patience`` steps at 1.3 times that rate. A warm-up that is not ended by min(1, ...) does this;
* ``no_warmup``: a network with layer normalisation and an Adam-like optimizer whose rate was at its
  peak from the first step: the loss rose above 1.5 times its first value within the first 10 steps
  and ``patience`` steps after the start is still above 0.6 of it; or, with attention or embeddings
  and a rate of 0.005 or more, it is above 0.6 of it and has not been lower in the second half of
  the run so far, of 60 steps at least;
* ``cycle``: the rate went down to a quarter and up again four-fold twice, the loss was above twice
  its start, and is still above 0.3 of it (only with known classes). A cosine over epochs that is
  stepped at every batch does this, and a cycle with too high a top.

**Remedy.** Step the scheduler once an epoch, or count its milestones in batches; warm up over the
first few hundred steps; end a cycle where the run ends.

**False alarms to expect.** Runs of less than ``max_full`` steps whose rate falls exponentially.

**Missing data.** Without a rate, or without a loss above 0 (surrogates have either sign), nothing
is inspected. NaN is passed over. A resume to earlier steps keeps what was seen.

**Source.** ``scheduler.step()`` in the inner loop: the PyTorch documentation's StepLR example steps
once an epoch, and forums are full of runs that did not. Cosine and linear schedules spend at most
7 % of a run under 1 % of their peak, an exponential one down to a thousandth a third of it, so that
``linger`` is no end of a run. Warm-up: Popel and
Bojar, "Training Tips for the Transformer" (2018); Xiong et al., "On Layer Normalization in the
Transformer Architecture" (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from trainwarden.rules._baseline import adversary, classes
from trainwarden.rules._facts import several_optimizers
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss
from trainwarden.rules._rates import NORMALISED, TOKENS, largest_rate, needs_warmup, turned
from trainwarden.rules._schedules import REMEDIES

RATES, LOSSES = Need("optimizer", "value"), Need("losses", "value")
_RECENT = 5  # saved steps in a level
_FIRST_STEPS = 10
_LONG = 100  # steps: a rate that took longer to fall must stay low for the full share
_LEAST_STEPS = 8  # a rate must have stayed low for
_FEW_FULL, _BARELY, _HALF = 25.0, 0.1, 0.5
_RAISED, _LEARNED, _LOST = 3.0, 0.6, 0.85
_GROWN, _ABOVE = 5.0, 2.0
_STRAIGHT, _SOME_FALL, _MORE_STEPS, _LEAST_RUN = 1.25, 0.8, 60, 80
_GIVEN_BACK, _TWICE, _MOST_BACK, _FASTER = 0.2, 2.0, 0.6, 1.3
_OVERSHOOT, _STILL = 1.5, 0.6
_PEAK, _WASTED = 5e-3, 60  # a rate that transformers do not start with; steps
_SWING, _TURNS, _THROWN, _UNLEARNED = 4.0, 4, 2.0, 0.3
_Told = tuple[int, float, float, str]  # first step, value, limit, message
_Judge = Callable[[Json, Observation], "_Told | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateSchedule(CheckedRule[Json]):
    """Fire when the loss shows that the learning rate came too early, too late or too much."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OPT004",
        "LearningRateSchedule",
        Severity.WARNING,
        Tier.EVIDENCE,
        (RATES, LOSSES),
        (
            "Call scheduler.step() once an epoch if its parameters are meant in epochs.",
            "Warm up, and end the schedule where the run ends.",
        ),
        "pass the optimizer and loss_fn to watch()",
        (
            "LossNotDecreasing",
            "LossSpike",
            "UnchangedTensor",
            "LearningRateTooLow",
            "LearningRateTooHigh",
        ),
    )

    min_rate: float = param(
        0.01, "Share of the peak that is no rate any more.", bounds=Bounds(gt=0, lt=1)
    )
    linger: float = param(
        0.5, "Share of the steps until then that the rate must stay there.", bounds=Bounds(gt=0)
    )
    max_full: float = param(
        60.0, "Steps at full rate that are enough for a run.", "steps", bounds=Bounds(gt=0)
    )
    patience: int = param(
        40, "Steps a restart or a start is given to recover.", "steps", bounds=Bounds(ge=1)
    )

    def start(self) -> Json:
        """No rate has been seen."""
        return {"origin": -1, "at": -1, "rate": 0.0, "peak": 0.0, "full": 0.0, "gone": -1,
                "first": [], "last": [], "best": None, "raised": None, "top": [0.0, 0.0],
                "turn": [0.0, 0], "sign": False, "began": None, "told": []}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """A rate and a loss of a training step."""
        return obs.mode is TRAIN and largest_rate(obs) is not None and main_loss(obs) is not None

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Follow rate and loss; name each kind of trouble once."""
        loss, rate = main_loss(obs), largest_rate(obs)
        if obs.mode is not TRAIN or loss is None or rate is None:
            return state, ()
        state = self._follow(state, obs.step, rate, loss[1])
        if state["sign"] or len(state["last"]) < _RECENT:
            return state, ()
        for kind, judge in self._judges(state):
            told = judge(state, obs) if kind not in state["told"] else None
            if told is not None:
                found = _finding(state, obs, kind, told)
                return {**state, "told": [*state["told"], kind]}, [found]
        return state, ()

    def _judges(self, state: Json) -> Iterator[tuple[str, _Judge]]:
        """Who has something to judge, in the order in which kinds are told."""
        if state["gone"] >= 0:
            yield "per_batch", self._per_batch
        if state["raised"] is not None:
            yield "restart", self._restart
        if state["rate"] >= state["peak"]:
            yield "rising", self._rising
            yield "uncapped", self._uncapped
        yield "no_warmup", self._no_warmup
        if state["turn"][1] >= _TURNS:
            yield "cycle", self._cycle

    def _follow(self, state: Json, step: int, rate: float, loss: float) -> Json:
        """Take one step's rate and loss into account; the rate of a gap is that at its start."""
        origin = step if state["origin"] < 0 else state["origin"]
        steps = max(0, step - state["at"]) if state["at"] >= 0 else 0
        peak = max(state["peak"], rate)
        gone = state["gone"]
        if rate > self.min_rate * peak * (1 + 1e-9) or peak == 0:
            gone = -1
        elif gone < 0:
            gone = step
        first = state["first"]
        if len(first) < _RECENT and step - origin < _FIRST_STEPS:
            first = [*first, loss]
        first = first or [loss]
        last = [*state["last"][1 - _RECENT :], loss]
        level, best = median(last), state["best"]
        if len(last) == _RECENT and (best is None or level < best[0]):
            best = [level, rate, step]
        raised = state["raised"]
        if raised is None or rate < raised[1] / _RAISED:
            low = state["rate"]
            if 0 < low * _RAISED <= rate and best is not None:
                raised = [step, rate, level if len(state["last"]) < _RECENT else
                          median(state["last"])]  # fmt: skip
            else:
                raised = None
        early, highest = state["top"]
        top = [max(early, loss) if step - origin < _FIRST_STEPS else early, max(highest, loss)]
        return {
            "origin": origin,
            "at": max(step, state["at"]),
            "rate": rate,
            "peak": peak,
            "full": state["full"] + steps * state["rate"],
            "gone": gone,
            "first": first,
            "last": last,
            "best": best,
            "raised": raised,
            "top": top,
            "turn": turned(state["turn"], rate, _SWING),
            "sign": state["sign"] or loss <= 0,
            "began": rate if state["began"] is None else state["began"],
            "told": state["told"],
        }

    def _per_batch(self, state: Json, obs: Observation) -> _Told | None:
        until = state["gone"] - state["origin"]
        if until <= 0:
            return None
        full = state["full"] / state["peak"]
        lingered = obs.step - state["gone"]
        least = max(_LEAST_STEPS, self.linger * until * min(1.0, until / _LONG))
        if lingered < least or full > self.max_full:
            return None
        start, level = median(state["first"]), median(state["last"])
        if level < (_BARELY if full <= _FEW_FULL else _HALF) * start:
            return None
        message = (
            f"the learning rate fell from {state['peak']:.3g} to {state['rate']:.3g} within "
            f"{until} steps, as if stepped per batch: so far the run had as much as {full:.0f} "
            f"steps at full rate, and the loss of {level:.4g} stays where that left it"
        )
        return state["origin"], state["rate"], self.min_rate * state["peak"], message

    def _restart(self, state: Json, obs: Observation) -> _Told | None:
        step, rate, before = state["raised"]
        if obs.step - step < self.patience:
            return None
        start, level = median(state["first"]), median(state["last"])
        if before > _LEARNED * start or level < before + _LOST * (start - before):
            return None
        message = (
            f"the loss was {before:.4g} when the learning rate was raised to {rate:.3g} at step "
            f"{step}, and is {level:.4g} at step {obs.step}: what the run had learned is lost"
        )
        return step, level, before, message

    def _rising(self, state: Json, obs: Observation) -> _Told | None:
        lowest, rate, step = state["best"]
        if not state["rate"] >= _GROWN * rate > 0:
            return None
        start, level = median(state["first"]), median(state["last"])
        if level < _ABOVE * start or obs.step - step < _LEAST_STEPS:
            return None
        message = (
            f"the learning rate has grown from {rate:.3g} at step {step}, where the loss was "
            f"{lowest:.4g}, to {state['rate']:.3g}; the loss has risen to {level:.4g}"
        )
        return step, level, _ABOVE * start, message

    def _uncapped(self, state: Json, obs: Observation) -> _Told | None:
        (lowest, rate, step), since = state["best"], state["origin"]
        ran, way = obs.step - step, median(state["first"]) - lowest
        growth = _growth(state, obs.step)
        if not growth or lowest > _SOME_FALL * median(state["first"]) or "rising" in state["told"]:
            return None
        least, back = (min(state["last"]) - lowest) / way, (median(state["last"]) - lowest) / way
        slowly = min(2 * least, back) >= _GIVEN_BACK and growth >= _TWICE
        slowly = slowly and ran >= max(_MORE_STEPS, step - since)
        soon = least >= _MOST_BACK and growth >= _FASTER and ran >= self.patience
        if not (slowly or soon) or obs.step - since < _LEAST_RUN or _game(obs):
            return None
        message = (
            f"the learning rate grows by as much at each step, from {rate:.3g} at step {step}, "
            f"where the loss was {lowest:.4g}, to {state['rate']:.3g}: the loss has risen to "
            f"{median(state['last']):.4g}, as in a warm-up that nothing ends"
        )
        return step, median(state["last"]), lowest + _GIVEN_BACK * way, message

    def _no_warmup(self, state: Json, obs: Observation) -> _Told | None:
        start, steps = state["first"][0], obs.step - state["origin"]
        if steps < self.patience or not state["full"] >= 0.99 * state["peak"] * steps:
            return None
        level = median(state["last"])
        if level < _STILL * start:
            return None
        rose = state["top"][0] >= _OVERSHOOT * start and needs_warmup(obs, NORMALISED)
        rests = steps >= _WASTED and 2 * (state["best"][2] - state["origin"]) <= steps
        if not rose and not (
            rests and state["peak"] >= _PEAK and needs_warmup(obs, NORMALISED, TOKENS)
        ):
            return None
        what = f"rose from {start:.4g} to {state['top'][0]:.4g} at once and is still {level:.4g}"
        message = (
            f"the learning rate was {state['peak']:.3g} from the first step on, without warm-up: "
            f"the loss {what if rose else f'rests at {level:.4g} and began at {start:.4g}'}"
        )
        value, limit = (state["top"][0], _OVERSHOOT * start) if rose else (state["peak"], _PEAK)
        return state["origin"], value, limit, message

    def _cycle(self, state: Json, obs: Observation) -> _Told | None:
        start, highest = state["first"][0], state["top"][1]
        if highest < _THROWN * start or not classes(obs):
            return None
        level = median(state["last"])
        if level < _UNLEARNED * start:
            return None
        message = (
            f"the learning rate goes up and down, by {_SWING:g} times and more, up to "
            f"{state['peak']:.3g}: the loss was thrown up to {highest:.4g} and is {level:.4g} "
            f"after {state['turn'][1] // 2} cycles; it began at {start:.4g}"
        )
        return state["origin"], highest, _THROWN * start, message


def _growth(state: Json, step: int) -> float:
    """Rate now over that of the lowest loss, of a rate that grows in proportion; 0.0 if none."""
    _, rate, lowest = state["best"]
    origin, began = state["origin"], state["began"]
    if not origin < lowest < step or not began < rate < state["rate"]:
        return 0.0
    before = (rate - began) / (lowest - origin)
    after = (state["rate"] - rate) / (step - lowest)
    straight = before <= _STRAIGHT * after and after <= _STRAIGHT * before
    return float(state["rate"] / rate) if straight else 0.0


def _game(obs: Observation) -> bool:
    """Say whether the loss may rise since an adversary learns."""
    return several_optimizers(obs) or adversary(obs)


def _finding(state: Json, obs: Observation, kind: str, told: _Told) -> Finding:
    since, value, limit, message = told
    evidence = {
        "kind": kind,
        "rate": state["rate"],
        "peak": state["peak"],
        "full_rate_steps": round(state["full"] / state["peak"], 1) if state["peak"] else 0.0,
        "start": median(state["first"]),
    }
    since = max(0, min(since, obs.step))
    return Finding(obs.step, "lr_0", value, limit, message, since, evidence, REMEDIES[kind], 0.8)
