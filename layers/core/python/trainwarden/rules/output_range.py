"""OBJ002 OutputRange: the model's output cannot reach the targets, or is far too slow to.

**Why it hurts.** A sigmoid never puts out 40. The output goes to the end of its range, where the
gradient is next to 0, and the loss stays at the distance between that end and the targets.

**How it is computed.** The range of the output is that of the last activation module, a sigmoid,
tanh, ReLU or their like behind all weights, if its smallest and largest element are those of the
model's output and the loss sees at least 70 % of what lies between them. Without such a module it
is [0, 1] or [-1, 1] where the outputs stayed within, and within 0.2 % of an end, at ``long`` saved
steps in a row that span ``min_steps`` steps. evidence.kind says what it is:

* *unreachable_targets*: with t the range of the targets (unit: the target's own), at ``patience``
  saved training steps in a row at least ``gap`` of t lies outside the range of the output, in an
  elementwise loss;
* *bounded_logits*: a tanh, ReLU or the like makes what cross_entropy or
  binary_cross_entropy_with_logits takes for logits, in a run whose loss has lost less than
  ``max_fall`` of its start after ``min_steps`` steps;
* *unscaled_targets*: after t steps, 50 at least, a linear output has come less than a hundredth of
  its way of 1,000 or more, and less than (t ÷ 1000)² of it, so that, since the way grows with t² at
  most, neither 1,000 steps nor ten times those so far will do. The way is the distance between all
  targets and the outputs, or the targets' standard deviation if that is larger, and how far the
  output has come is its largest element, at ``patience`` saved steps in a row of a run whose
  elementwise loss, as large as such a distance makes it, has lost less than 5 %. Numbers that
  mark gaps in the targets are DAT006's business.

Sigmoid in front of these is OBJ001's business.

**Remedy.** No activation at the output of a regression, or targets scaled into its range; raw
scores for losses that take logits. Targets standardised, or the last bias set to their mean.

**False alarms to expect.** Targets that are clipped on purpose by the output's range; raw targets
of thousands in a run of very many steps, which gets there in the end.

**Missing data.** Without the collection objective nothing is inspected; without activations only
outputs that came to an end of their range are judged.

**Source.** UMLAUT's and NeuraLint's check of the last activation against the targets. A fifth
of the range: outliers leave a tanh by a tenth, and the rest is learned all the same. Under Adam
each layer's weights move by the rate a step, and an output that two layers carry by its square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from trainwarden.rules._facts import functions, rounded, skipped, suspicions
from trainwarden.rules._output import Bounded, output_activation
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow, main_loss
from trainwarden.rules._targets import ELEMENTWISE, apart, least_distance, regression

_LOGITS = frozenset({"cross_entropy", "binary_cross_entropy_with_logits"})
_BY_SIGMOID = frozenset({"Sigmoid", "Hardsigmoid", "LogSigmoid"})  # log-probabilities are logits
_CLOSE = 0.002  # of the range: a linear output passes this by in a few steps
_GUESSES = ((0.0, 1.0), (-1.0, 1.0))
_FEW_STEPS, _MANY_STEPS, _TENFOLD = 50, 1000.0, 10.0
_STILL, _MADE_OF_IT = 0.05, 0.9  # of the starting loss; of the loss that the distance makes
_LARGE, _CLOSE_TO_IT, _SMALLEST = 1000.0, 0.99, 1e-9
_SCALE = (
    "Standardise the targets: subtract their mean, divide by their standard deviation.",
    "Or set the bias of the last layer to the targets' mean before training.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRange(CheckedRule[Json]):
    """Fire when the targets lie where the output cannot go."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OBJ002",
        "OutputRange",
        Severity.WARNING,
        Tier.CRITICAL,
        (
            Need("objective", "value"),
            Need("losses", "value"),
            Need("activations", "range"),
            Need("outputs", "range"),
        ),
        (
            "Take the activation out of the model's end: a regression has a linear output.",
            "Or scale the targets into its range, and the predictions back.",
            "Give losses that take logits raw scores.",
        ),
        "capture the collections objective and activations; trainwarden.watch() does by default",
        explains=(
            "Collapse",
            "DeadRelu",
            "LearningRateTooLow",
            "LossNotDecreasing",
            "SaturatedActivation",
            "VanishingGradient",
        ),
    )

    patience: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    gap: float = param(
        0.2, "Share of the targets' range that is out of reach.", bounds=Bounds(gt=0, le=1)
    )
    long: int = param(
        4, "Saved steps in a row where outputs alone must tell.", "saved steps", bounds=Bounds(ge=1)
    )
    min_steps: int = param(30, "Steps these must span.", "steps", bounds=Bounds(ge=0))
    max_fall: float = param(
        0.3, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """No target was seen."""
        return {"kept": {}, "told": False, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """A training step at which a loss function was seen at work."""
        return obs.mode is TRAIN and bool(obs.scalars.get("objective"))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Hold the range of the targets against that of the output."""
        if state["told"] or not self.inspects(obs) or skipped(obs):
            return state, ()
        loss = follow(state["loss"], obs)
        last = output_activation(obs)
        ill = dict(self._suspects(obs, last))
        if last is None and not ill and obs.step >= loss["at"] + _FEW_STEPS:
            ill = dict(_unscaled(obs, obs.step - loss["at"]))
            if ill and not fall(loss) < _STILL:
                ill = {}
        if not ill and not state["kept"]:
            return {**state, "loss": loss}, ()
        kept = suspicions(state["kept"], obs.step, ill)
        state = {"kept": kept, "told": False, "loss": loss}
        for kind, (since, count) in kept.items():
            if not self._lasted(kind, count, obs.step - since, fall(loss)):
                continue
            return {**state, "kept": {}, "told": True}, [
                self._finding(obs, kind, ill[kind], (since, count))
            ]
        return state, ()

    def _lasted(self, kind: str, count: int, span: int, fallen: float) -> bool:
        if kind in {"unreachable_targets", "unscaled_targets"}:
            return count >= self.patience
        if kind == "bounded_logits":
            return count >= self.patience and span >= self.min_steps and fallen < self.max_fall
        return count >= self.long and span >= self.min_steps

    def _suspects(self, obs: Observation, last: Bounded | None) -> Iterator[tuple[str, _Suspect]]:
        for title, facts in functions(obs).items():
            function = title.partition(":")[0]
            made = last if last is not None and last.feeds(facts) else None
            if function in ELEMENTWISE:
                yield from self._regression(obs, function, facts, made)
            elif function in _LOGITS and made is not None and made.kind not in _BY_SIGMOID:
                name = obs.layout.names[made.row]
                yield "bounded_logits", _Suspect(function, made.low, made.high, name, facts)

    def _regression(
        self, obs: Observation, function: str, facts: Mapping[str, float], last: Bounded | None
    ) -> Iterator[tuple[str, _Suspect]]:
        if last is not None:
            name = obs.layout.names[last.row]
            one = _Suspect(function, last.low, last.high, name, facts)
            if one.gap >= self.gap:
                yield "unreachable_targets", one
            return
        for low, high in _GUESSES:
            one = _Suspect(function, low, high, "", facts)
            if one.inside and one.near and one.gap >= self.gap:
                yield f"within {low:g} and {high:g}", one
                return

    def _finding(
        self, obs: Observation, kind: str, one: _Suspect, lasted: tuple[int, int]
    ) -> Finding:
        if kind == "unscaled_targets":
            return _slow(obs, one)
        since, count = lasted
        who = one.name or "the output"
        top = f"{one.high:g}" if math.isfinite(one.high) else "infinity"
        if kind == "bounded_logits":
            what = f"{one.function} takes its values for logits, and the loss does not fall"
            gap = 0.0
        else:
            kind, gap = "unreachable_targets", one.gap
            what = (
                f"the targets of {one.function} lie between {one.targets[0]:.4g} and "
                f"{one.targets[1]:.4g}, {gap:.0%} of that out of reach"
            )
        lower = f"{one.low:g}" if math.isfinite(one.low) else "-infinity"
        message = f"{who} stays between {lower} and {top} since step {since}; {what}"
        evidence = {
            "kind": kind,
            "function": one.function,
            "saved_steps": count,
            "out_of_reach": rounded(gap),
            **{name: rounded(value) for name, value in one.known.items()},
        }
        confidence = 1.0 if one.name else 0.8
        return Finding(
            obs.step, one.name, gap, self.gap, message, since, evidence, confidence=confidence
        )


def _unscaled(obs: Observation, steps: int) -> Iterator[tuple[str, _Suspect]]:
    """Say whether a linear output has hardly begun to come to its targets after so many steps."""
    found = regression(obs)
    if found is None:
        return
    function, facts = found
    farthest = max(facts.get("target_max", 0.0), -facts.get("target_min", 0.0))
    if not farthest >= _CLOSE_TO_IT * _LARGE:  # an output that near makes it no large way
        return
    one = _Suspect(function, facts.get("input_min", math.nan), facts.get("input_max", math.nan),
                   "", facts)  # fmt: skip
    least = max(_TENFOLD, _MANY_STEPS / steps) ** 2 * one.reach
    if not max(least, _LARGE) <= one.way < math.inf or apart(obs) is not None:
        return
    loss, distance = main_loss(obs), least_distance(function, facts)
    if loss is not None and _MADE_OF_IT * distance <= loss[1]:
        yield "unscaled_targets", one


def _slow(obs: Observation, one: _Suspect) -> Finding:
    low, high = one.targets
    times = one.way / max(one.reach, _SMALLEST)
    message = (
        f"the targets of {one.function} lie between {low:.4g} and {high:.4g}; the output has come "
        f"to {one.low:.4g} to {one.high:.4g} by step {obs.step}, and the loss stays where it began"
    )
    evidence = {
        "kind": "unscaled_targets",
        "function": one.function,
        "times": rounded(times),
        **{name: rounded(value) for name, value in one.known.items()},
    }
    limit = _TENFOLD * _TENFOLD
    return Finding(obs.step, "", times, limit, message, obs.step, evidence, _SCALE, 0.8)


@dataclass(frozen=True)
class _Suspect:
    """A loss function whose input is bounded to [low, high] by ``name``, empty for a guess."""

    function: str
    low: float
    high: float
    name: str
    facts: Mapping[str, float]

    @property
    def targets(self) -> tuple[float, float]:
        """Smallest and largest target; NaN if they are not known."""
        return self.facts.get("target_min", math.nan), self.facts.get("target_max", math.nan)

    @property
    def gap(self) -> float:
        """Share of the targets' range that the output cannot reach; NaN if it is not known."""
        least, most = self.targets
        if not math.isfinite(most - least) or most < least:
            return math.nan
        if most == least:
            return float(not self.low <= least <= self.high)
        reached = max(0.0, min(most, self.high) - max(least, self.low))
        return 1.0 - reached / (most - least)

    @property
    def reach(self) -> float:
        """How far from 0 the output has come."""
        return max(abs(self.low), abs(self.high))

    @property
    def way(self) -> float:
        """How far the targets lie from the output, or from each other."""
        least, most = self.targets
        gap = max(least - self.high, self.low - most)
        return max(gap, self.facts.get("target_std", 0.0))

    @property
    def inside(self) -> bool:
        """Say whether all values lie in the range."""
        least, most = self.facts.get("input_min", math.nan), self.facts.get("input_max", math.nan)
        return self.low <= least and most <= self.high

    @property
    def near(self) -> bool:
        """Say whether one of them is close to its end."""
        least, most = self.facts.get("input_min", math.nan), self.facts.get("input_max", math.nan)
        room = _CLOSE * (self.high - self.low)
        return most >= self.high - room or least <= self.low + room

    @property
    def known(self) -> dict[str, float]:
        """Numbers for evidence."""
        names = ("target_min", "target_max", "input_min", "input_max")
        return {name: self.facts[name] for name in names if name in self.facts}
