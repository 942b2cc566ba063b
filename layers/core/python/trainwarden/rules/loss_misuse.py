"""OBJ001 LossMisuse: the loss function is given something it is not made for.

**Why it hurts.** Nothing crashes and the loss even falls, but it measures something else: two
softmax in a row squash the gradients and keep the loss above its minimum, shapes that broadcast
compare each prediction with every target, and the best answer to that is one number for all.

**How it is computed.** From inputs and targets of the functions of torch.nn.functional, through
which torch's loss modules go. At ``patience`` saved training steps in a row at least ``share`` of
the rows (unit: 1) look like the wrong thing; evidence.kind says what it is:

* *double_softmax*: cross_entropy, which applies softmax itself, gets rows in [0, 1] that sum to 1;
* *probabilities_to_nll*, *probabilities_to_kl*: nll_loss or kl_div, which expect logarithms, get
  such rows;
* *logits_to_nll*: nll_loss gets rows whose exponentials do not sum to 1: bare scores, or a softmax
  over the wrong dimension;
* *softmax_of_one*: binary_cross_entropy gets 1 for everything, as from a softmax over one output,
  and the model does not end in a sigmoid;
* *targets_outside*: a binary cross entropy gets real numbers, a fifth of them or more outside of
  [0, 1] and some under -0.5 or above 1.5, which are neither two values nor between two integers
  (-1 and 1 excepted): standardised images, which it has no least for;
* *broadcast*: inputs and targets of an elementwise loss have as many elements but another shape,
  (N, 1) and (N), so that the loss has N x N terms;
* *single_class*: cross_entropy over one class is always 0;
* *double_sigmoid*, *sigmoid_to_cross_entropy*: a loss that applies sigmoid or softmax itself gets
  inputs that all lie in [0, 1], and the model ends in a sigmoid module; or they do so at ``long``
  saved steps in a row that span ``min_steps`` steps, some over 0.5, under one optimizer;
* *maximised*: cross_entropy over at least 3 classes is over 1.5 x ln C and at most a third of what
  a guess gets right is right, over ``long`` saved steps: the loss is made to rise;
* *negated*: the loss was below 0 at each of ``long`` saved steps or more that span ``min_steps``,
  although the one function it is made of cannot be, and that grows. Outputs are so far from the
  targets that mse_loss or its like is 10 times the targets' variance (unit: the target's, squared)
  or more, and the loss at least minus half of that; a binary cross entropy is over 1.5 x ln 2 with
  at most a sixth right; one over C classes, 3 or more, began between -0.7 and -3 x ln C, is under
  -5 x ln C, and no more than twice what a guess gets right is right. Written by hand, without a
  function of torch: squares likewise, from means and deviations of output and targets; a likelihood
  of C classes, if the loss began between -0.95 x ln C and -1.05 x ln C - v, with v <= ln C the
  variance of the scores, and is under -20 x ln C (a warning). Such losses are no larger than scores
  lie apart.

Not counted: log_softmax in front of cross_entropy, which changes nothing; single elements; targets
that broadcast from fewer elements on purpose.

**Remedy.** Logits into cross_entropy and binary_cross_entropy_with_logits, log_softmax into
nll_loss and kl_div, target.view_as(output) into elementwise losses.

**False alarms to expect.** Scores that are bounded to [0, 1] on purpose and multiplied by nothing.

**Missing data.** Without the collection objective (other losses, other frameworks) only losses
below 0 are looked at.

**Source.** PyTorch's documentation of the functions; UMLAUT's "missing softmax" and its inverse. A
softmax over C values cannot come under ln(1 + (C - 1)/e), 1.46 for 10 classes. A root mean square
is a norm: of the difference it is at least the difference of those of both.
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
from trainwarden.rules._facts import fact, functions, rounded, several_optimizers, suspicions
from trainwarden.rules._misuses import REMEDIES, TOLD
from trainwarden.rules._output import Bounded, output_activation
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss
from trainwarden.rules._signs import negated, scatter
from trainwarden.rules._targets import no_probabilities

_SLOW = frozenset({"double_sigmoid", "sigmoid_to_cross_entropy", "maximised"})
_SIGMOIDS = frozenset({"Sigmoid", "Hardsigmoid"})
_HALF = 0.5
_WIDTH = 0.2
_CHANCE, _ABOVE = 1 / 3, 1.5
_MANY = 3  # classes: with two, an adversary's labels look alike


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMisuse(CheckedRule[Json]):
    """Fire when a loss function gets what it is not made for."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OBJ001",
        "LossMisuse",
        Severity.ERROR,
        Tier.CRITICAL,
        (
            Need("objective", "value"),
            Need("losses", "value"),
            Need("activations", "range"),
            Need("outputs", "mean"),
            Need("labels", "mean"),
        ),
        ("Give the loss what its documentation asks for: raw scores, logarithms, equal shapes.",),
        "capture the collection objective; trainwarden.watch() does so by default",
        explains=(
            "Collapse",
            "Confusion",
            "ExplodingGradient",
            "ExplodingTensor",
            "InitialLoss",
            "LearningRateTooLow",
            "LossNotDecreasing",
            "Overfit",
            "OutputRange",
            "Overtraining",
            "SaturatedActivation",
            "VanishingGradient",
            "WeightUpdateRatio",
        ),
    )

    patience: int = param(2, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    share: float = param(0.99, "Share of the rows.", bounds=Bounds(gt=0.5, le=1))
    long: int = param(
        10, "Saved steps in a row where values alone must tell.", "saved steps", bounds=Bounds(ge=1)
    )
    min_steps: int = param(20, "Steps these must span.", "steps", bounds=Bounds(ge=0))

    def start(self) -> Json:
        """No loss function was seen."""
        return {"kept": {}, "told": [], "below": None}

    def inspects(self, obs: Observation) -> bool:
        """A training step at which a loss function was seen at work, or a loss below 0."""
        if obs.mode is not TRAIN:
            return False
        return bool(obs.scalars.get("objective")) or fact(obs, "losses", "loss") < 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Look at what each function was given; tell each kind once."""
        if obs.mode is not TRAIN:
            return state, ()
        told: Sequence[Finding] = ()
        if state["below"] != []:
            state, told = self._below(state, obs)
        if not obs.scalars.get("objective"):
            return state, told
        ill = {
            kind: (function, facts)
            for function, facts in functions(obs).items()
            for kind in self._kinds(obs, function.partition(":")[0], facts)
            if kind not in state["told"]
        }
        if not ill and not state["kept"]:
            return state, told
        kept = suspicions(state["kept"], obs.step, ill)
        found = list(told)
        for kind, (since, count) in kept.items():
            certain = kind not in _SLOW or _from_sigmoid(obs, kind, ill[kind][1])
            lasted = count >= self.long and obs.step - since >= self.min_steps
            lasted = lasted and not several_optimizers(obs)  # critics are unsure for long
            lasted = lasted and (kind == "maximised" or _wide(ill[kind][1]))
            if (certain and count >= self.patience) or lasted:
                found.append(self._finding(obs, kind, *ill[kind], (since, count)))
        kinds = [str(finding.evidence["kind"]) for finding in found]
        kept = {kind: one for kind, one in kept.items() if kind not in kinds}
        return {**state, "kept": kept, "told": sorted({*state["told"], *kinds})}, found

    def _below(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Follow a run whose loss was never 0 or above.

        [first step, saved steps, first loss, variance of the output's elements then]
        """
        loss = main_loss(obs)
        if loss is None:
            return state, ()
        if not loss[1] < 0:
            return {**state, "below": []}, ()
        since, count, *first = state["below"] or (obs.step, 0, loss[1], scatter(obs))
        state = {**state, "below": [since, count + 1, *first]}
        if count + 1 < self.long or obs.step - since < self.min_steps or several_optimizers(obs):
            return state, ()
        one = negated(obs, first[0], first[1], loss[1])
        if one is None:
            return state, ()
        message = (
            f"the loss is {loss[1]:.4g}, and was below 0 at {count + 1} saved steps since step "
            f"{since}, as is the negative of {one.what}: {one.sign}"
        )
        evidence = {"kind": "negated", "function": one.what, "saved_steps": count + 1}
        known = bool(obs.scalars.get("objective"))
        finding = Finding(
            obs.step, "", loss[1], 0.0, message, since, evidence, REMEDIES["negated"],
            1.0 if known else 0.8, None if known else Severity.WARNING,
        )  # fmt: skip
        return {**state, "below": [], "told": sorted([*state["told"], "negated"])}, [finding]

    def _kinds(self, obs: Observation, function: str, facts: Mapping[str, float]) -> Iterator[str]:
        """What this function was given that it is not made for."""
        if function == "cross_entropy":
            yield from self._cross_entropy(obs, facts)
        elif function in {"nll_loss", "kl_div"}:
            if self._probable(facts):
                yield "probabilities_to_nll" if function == "nll_loss" else "probabilities_to_kl"
            elif function == "nll_loss" and facts.get("log_rows_sum_to_one", 1.0) <= 1 - self.share:
                yield "logits_to_nll"
            elif function == "nll_loss" and self._maximised(obs, facts):
                yield "maximised"
        elif function.startswith("binary_cross_entropy"):
            yield from _binary(obs, function, facts)
        if facts.get("broadcast") == 1 and _crossed(facts):
            yield "broadcast"

    def _cross_entropy(self, obs: Observation, facts: Mapping[str, float]) -> Iterator[str]:
        if facts.get("classes") == 1:
            yield "single_class"
        elif self._probable(facts):
            yield "double_softmax"
        elif _sigmoidal(facts) and not _other_activation(obs):
            yield "sigmoid_to_cross_entropy"
        elif self._maximised(obs, facts):
            yield "maximised"

    def _probable(self, facts: Mapping[str, float]) -> bool:
        return facts.get("rows_sum_to_one", 0.0) >= self.share

    def _maximised(self, obs: Observation, facts: Mapping[str, float]) -> bool:
        classes, right = facts.get("classes", 0.0), facts.get("accuracy", 1.0)
        if not _MANY <= classes < math.inf or not right <= _CHANCE / classes:
            return False
        loss = fact(obs, "losses", "loss")
        counts = obs.labels.get("label/0", {})
        mixed = len(counts) >= _MANY and 2 * max(counts.values()) <= sum(counts.values())
        return mixed and _ABOVE * math.log(classes) < abs(loss) < math.inf

    def _finding(
        self,
        obs: Observation,
        kind: str,
        function: str,
        facts: Mapping[str, float],
        lasted: tuple[int, int],
    ) -> Finding:
        since, count = lasted
        names = ("classes", "input_min", "input_max", "input_size", "target_size", "accuracy",
                 "rows_sum_to_one", "log_rows_sum_to_one", "inside_unit",
                 "impossible_targets", "target_min", "target_max")  # fmt: skip
        known = {name: facts[name] for name in names if math.isfinite(facts.get(name, math.nan))}
        shown = {**dict.fromkeys(names, 0.0), **known}
        floor = math.log1p(max(0.0, shown["classes"] - 1) / math.e)
        why = TOLD[kind].format(function=function, floor=floor, **shown)
        message = f"at {count} saved steps in a row since step {since} {why}"
        evidence = {
            "kind": kind,
            "function": function,
            "saved_steps": count,
            **{name: rounded(value) for name, value in known.items()},
        }
        value, limit = known.get("rows_sum_to_one", float(count)), self.share
        return Finding(obs.step, "", value, limit, message, since, evidence, REMEDIES[kind])


def _binary(obs: Observation, function: str, facts: Mapping[str, float]) -> Iterator[str]:
    if function == "binary_cross_entropy_with_logits" and _sigmoidal(facts):
        if not _other_activation(obs):
            yield "double_sigmoid"
    elif function == "binary_cross_entropy" and _all_one(facts) and not _sigmoid(obs):
        yield "softmax_of_one"
    if no_probabilities(function, facts, obs):
        yield "targets_outside"


def _crossed(facts: Mapping[str, float]) -> bool:
    """Say whether two shapes of as many elements broadcast: each element meets each other."""
    size = facts.get("input_size", 0.0)
    return size > 1 and size == facts.get("target_size")


def _all_one(facts: Mapping[str, float]) -> bool:
    size = facts.get("input_size", 0.0)
    return size > 1 and facts.get("input_min") == 1 == facts.get("input_max")


def _sigmoid(obs: Observation) -> Bounded | None:
    """Return the sigmoid module that makes the model's output, if one does."""
    last = output_activation(obs)
    return last if last is not None and last.kind in _SIGMOIDS else None


def _sigmoidal(facts: Mapping[str, float]) -> bool:
    """Say whether values look like a sigmoid's: all in [0, 1], and not all near 0 as at a start."""
    return facts.get("inside_unit", 0.0) >= 1 and facts.get("input_max", 0.0) >= _HALF


def _wide(facts: Mapping[str, float]) -> bool:
    """Say whether values tell samples apart: all near 0.5 may be scores of a stuck model."""
    return facts.get("input_max", 0.0) - facts.get("input_min", 0.0) >= _WIDTH


def _other_activation(obs: Observation) -> bool:
    """Say whether the model ends in another bounded module: OBJ002's business."""
    last = output_activation(obs)
    return last is not None and last.kind not in _SIGMOIDS


def _from_sigmoid(obs: Observation, kind: str, facts: Mapping[str, float]) -> bool:
    """Say whether what the loss gets comes straight from a sigmoid module."""
    last = _sigmoid(obs) if kind != "maximised" else None
    return last is not None and last.feeds(facts)
