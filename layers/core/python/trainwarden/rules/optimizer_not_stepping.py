"""LOP002 OptimizerNotStepping: the training loop runs, and the model stays as it was.

**Why it hurts.** Forward and backward passes cost all the time of training and teach nothing. It
looks like a learning rate that is too low, and no learning rate helps.

**How it is computed.** From what the hook sees of the loop, over ``patience`` saved steps in a row;
evidence.kind says what it is:

* *step_missing*: gradients are computed and thrown away, no optimizer ever steps and no weight
  moves; or as many evaluation passes have come, with training in between, before any step;
* *zeroed_before_step*: the gradients are thrown away between backward() and step(), which finds
  none;
* *foreign_tensors*: at least 90 % of the optimizer's tensors are not the model's, and at least 90 %
  of the model's are in no optimizer, get gradients and do not move;
* *output_layer_left_out*: the last layer is in no optimizer and does not move, though its gradient
  is not 0 and other layers move;
* *layers_left_out*: the same of weight matrices while two or more others move, which still lie as
  torch draws them, uniformly within 1 ÷ √fan-in (their largest |weight| is 0.9 to 1 of that, their
  mean |weight| half of it within 4 standard errors);
* *zero_learning_rate*: every learning rate is 0 and never was anything else, for ``min_steps``;
* *no_change*: no float32 or float64 weight matrix changes in one bit over ``min_steps`` steps,
  though learning rate and gradients are large enough to be seen in the weights: over a millionth of
  their mean |weight| (unit: the weight's own).

Steps that GradScaler skipped are passed over.

**Remedy.** Call optimizer.step() after backward() and zero_grad() before it; build the optimizer
from the parameters of the very model that is trained, after it was moved, wrapped or copied.

**False alarms to expect.** A loop that only measures gradients. Random layers that are to stay as
they were drawn: say so by requires_grad_(False), which saves their gradients, too. Parts trained by
an optimizer that is not torch's, if their weights are not captured.

**Missing data.** Layers with requires_grad=False from the start are silent, meant or forgotten
(GRD003 looks at the output layer alone): compare with ``model.named_parameters()``. Without the
collections loop and optimizer the kinds that need them are not looked for. bfloat16 and float16
weights that round updates away are NUM002's business.

**Source.** TrainCheck and TheDeepChecker check step() and the optimizer's tensors as invariants.
A millionth: 8 times the spacing of float32 numbers (2**-23). 1 ÷ √fan-in: torch.nn.Linear's and
the convolutions' reset_parameters; training pushes the largest weights beyond, so that layers kept
from an earlier training on purpose do not look so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from trainwarden.model import (
    EVAL,
    TRAIN,
    Finding,
    FloatArray,
    IntArray,
    Json,
    Layout,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import fact, learning_rates, loop, rests, skipped, suspicions
from trainwarden.rules._motion import changes
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._selection import gradient_of, once, weight_matrices
from trainwarden.rules._still import REMEDIES, TOLD
from trainwarden.stats.catalog import INDEX

_CHANGE, _MIN, _MAX, _ABS = (INDEX[c] for c in ("u_maxabs", "min", "max", "sum_abs"))
_MOST = 0.9  # of the tensors: a shared embedding or a loss with parameters of its own may be left
_VISIBLE = 1e-6  # update over mean |weight| that float32 cannot round away
_BODY = 2  # matrices that move: a head alone is meant, on random features, too
_DRAWN, _DRAWN_ERRORS = 0.9, 4.0  # least share of the bound; of the mean, in standard errors
_EXACT = frozenset({"float32", "float64"})


class _Weights(NamedTuple):
    """What the trainable weight matrices did since the saved step before.

    ``change`` (T,) is the largest |change| of each row, NaN where there is nothing to compare with.
    """

    obs: Observation
    rows: IntArray
    change: FloatArray
    moved: bool

    @property
    def rest(self) -> bool:
        """Not one bit changed."""
        return bool(self.rows.size) and not self.moved and bool((self.change == 0).all())

    def gradients(self) -> FloatArray:
        """Largest |gradient| of each matrix, (T,); 0 where there is none."""
        stats = self.obs.stats
        rows = gradient_of(self.obs.layout)[self.rows]
        there = (rows >= 0) & (rows < stats.shape[0])
        rows[~there] = 0
        found: FloatArray = np.maximum(stats[rows, _MAX], -stats[rows, _MIN])
        found[~there | np.isnan(found)] = 0.0
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerNotStepping(CheckedRule[Json]):
    """Fire when the loop runs and the optimizer does not move the model."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOP002",
        "OptimizerNotStepping",
        Severity.ERROR,
        Tier.CRITICAL,
        (
            Need("loop", "value"),
            Need("optimizer", "value"),
            Need("losses", "value"),
            Need("weights", "update_max"),
            Need("gradients", "abs_max"),
        ),
        (
            "Build the optimizer from the parameters of the very model that is trained.",
            "Call optimizer.zero_grad(), loss.backward() and optimizer.step() in this order.",
            "Check that nothing loads or copies old weights back after the step.",
        ),
        "capture the collections loop and optimizer; trainwarden.watch() does so by default",
        explains=(
            "Collapse",
            "InitialLoss",
            "LearningRateTooLow",
            "LossNotDecreasing",
            "MissingGradient",
            "StalledTrainingRule",
            "UnchangedTensor",
            "VanishingGradient",
            "WeightUpdateRatio",
        ),
    )

    patience: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=2))
    min_steps: int = param(
        20, "Steps without a learning rate or a change.", "steps", bounds=Bounds(ge=1)
    )

    def start(self) -> Json:
        """Nothing is suspected."""
        return {"kept": {}, "told": False, "passes": 0, "rated": False}

    def inspects(self, obs: Observation) -> bool:
        """A training step of which the loop or the learning rate is known."""
        known = obs.scalars.get("loop") or learning_rates(obs)
        return obs.mode is TRAIN and bool(known) and not rests(obs, "gradients")

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend what is suspected; tell the first kind that lasted."""
        if state["told"]:
            return state, ()
        if obs.mode is not TRAIN:
            return self._without_steps(state, obs)
        if skipped(obs) or rests(obs, "gradients"):
            return {**state, "passes": -1}, ()
        weights = _weights(obs)
        rates = learning_rates(obs)
        kept = suspicions(state["kept"], obs.step, self._kinds(state, obs, weights, rates))
        state = {
            "kept": kept,
            "told": False,
            "passes": -1 if loop(obs)["stepped"] != 0 else state["passes"],
            "rated": state["rated"] or any(rates),
        }
        for kind, (since, count) in kept.items():
            slow = kind in {"zero_learning_rate", "no_change"}
            if count >= self.patience and (not slow or obs.step - since >= self.min_steps):
                told = self._finding(obs, kind, since, count, weights)
                return {**state, "kept": {}, "told": True}, [told]
        return state, ()

    def _kinds(
        self, state: Json, obs: Observation, weights: _Weights, rates: list[float]
    ) -> Iterator[str]:
        known = loop(obs)
        if known["stepped"] == 0:
            if not weights.moved:
                yield "step_missing"
            return
        held, foreign = known["optimizer_tensors"], known["optimizer_tensors_foreign"]
        own, left = known["parameters"], known["parameters_without_optimizer"]
        discarded = known["gradients_discarded"] >= 1
        foreign_only = 0 < _MOST * held <= foreign and 0 < _MOST * own <= left
        if not weights.moved and (discarded or foreign_only):
            pushed = bool(weights.gradients().any())
            bare = known["parameters_without_gradient"]
            if discarded and ((bare >= held - foreign > 0) or (weights.rows.size and not pushed)):
                yield "zeroed_before_step"
            if foreign_only and pushed:
                yield "foreign_tensors"
        if left >= 1 and not foreign_only:
            yield from _partly(weights)
        if rates and not any(rates) and not state["rated"]:
            yield "zero_learning_rate"
        elif weights.rest and _visible(weights, rates):
            yield "no_change"

    def _without_steps(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count evaluation passes before the first step; training batches end each of them."""
        if obs.mode is not EVAL or state["passes"] < 0:
            return state, ()
        passes = state["passes"] + 1
        if passes < self.patience:
            return {**state, "passes": passes}, ()
        message = (
            f"{passes} evaluation passes have come, with training batches between them, and no "
            "optimizer has taken one step"
        )
        evidence = {"kind": "step_missing", "passes": passes}
        found = Finding(
            obs.step, "", float(passes), float(self.patience), message, obs.step, evidence,
            REMEDIES["step_missing"],
        )  # fmt: skip
        return {**state, "kept": {}, "told": True}, [found]

    def _finding(
        self, obs: Observation, kind: str, since: int, count: int, weights: _Weights
    ) -> Finding:
        names = ("optimizer_tensors", "optimizer_tensors_foreign", "parameters",
                 "parameters_without_optimizer", "parameters_without_gradient")  # fmt: skip
        known = {name: loop(obs)[name] for name in names}
        held, foreign, own, left, _ = known.values()
        rows = weights.rows[-1:] if kind == "output_layer_left_out" else _left_out(weights)
        name = obs.layout.names[int(rows[0])] if kind.endswith("left_out") else ""
        why = TOLD[kind].format(held=held, foreign=foreign, own=own, left=left, name=name)
        evidence = {
            "kind": kind,
            "saved_steps": count,
            **{name: value for name, value in known.items() if math.isfinite(value)},
        }
        message = f"over {count} saved steps since step {since} {why}"
        value, limit = float(count), float(self.patience)
        remedies = REMEDIES.get(kind, ())
        return Finding(obs.step, name, value, limit, message, since, evidence, remedies)


def _weights(obs: Observation) -> _Weights:
    rows = obs.among(weight_matrices(obs.layout))
    change, moved = changes(obs, rows)
    return _Weights(obs, rows, change, moved > 0)


def _head_rests(weights: _Weights) -> bool:
    """Say whether the last matrix rests though pushed, and all that moves lies before it."""
    if not weights.moved or weights.change[-1] != 0 or weights.gradients()[-1] == 0:
        return False
    tensors = weights.obs.layout.tensors
    moving = [tensors[row].depth for row in weights.rows[weights.change > 0].tolist()]
    return bool(max(moving) < tensors[int(weights.rows[-1])].depth)


def _partly(weights: _Weights) -> Iterator[str]:
    if _head_rests(weights):
        yield "output_layer_left_out"
    elif _left_out(weights).size:
        yield "layers_left_out"


def _left_out(weights: _Weights) -> IntArray:
    """Return the rows of matrices that rest though pushed and lie as torch drew them, (K,)."""
    rows, stats = weights.rows, weights.obs.stats
    if np.count_nonzero(weights.change > 0) < _BODY or not (still := weights.change == 0).any():
        return rows[:0]
    bounds = 1 / np.sqrt(once(weights.obs.layout, "fan-in", _fan_in)[rows])
    with np.errstate(all="ignore"):
        mean = stats[rows, _ABS] / stats[rows, 0] / bounds
        largest = np.maximum(stats[rows, _MAX], -stats[rows, _MIN]) / bounds
        error = _DRAWN_ERRORS / np.sqrt(12 * stats[rows, 0])  # of the mean of U(0, 1)
        drawn = (largest >= _DRAWN) & (largest <= 1) & (np.abs(mean - 0.5) <= error)
    found: IntArray = rows[still & drawn & (weights.gradients() > 0)]
    return found


def _fan_in(layout: Layout) -> FloatArray:
    """Inputs of a unit of each row's tensor, (R,); NaN for vectors."""
    shapes = [tensor.shape for tensor in layout.tensors]
    return np.array([math.prod(s[1:]) if len(s) > 1 and all(s) else math.nan for s in shapes])


def _exact(layout: Layout) -> npt.NDArray[np.bool_]:
    """Whether each row's tensor keeps small changes, (R,) bool."""
    return np.array([tensor.dtype in _EXACT for tensor in layout.tensors], dtype=np.bool_)


def _visible(weights: _Weights, rates: list[float]) -> bool:
    """Say whether a step must be seen in at least half of the matrices."""
    obs, positive = weights.obs, [rate for rate in rates if rate > 0]
    if len(positive) < len(rates) or not positive:
        return False
    if not once(obs.layout, "exact tensors", _exact)[weights.rows].all():
        return False
    gradients, stats = weights.gradients(), obs.stats[weights.rows]
    steps = np.ones(gradients.size) if fact(obs, "optimizer", "adaptive_0") > 0 else gradients
    with np.errstate(all="ignore"):
        least = _VISIBLE * stats[:, _ABS] / stats[:, 0]
        seen = (gradients > 0) & (min(positive) * steps > least)
    return bool(2 * np.count_nonzero(seen) >= seen.size)
