"""DAT003 NotNormalizedData: the inputs are far from zero mean and unit variance.

**Why it hurts.** Initialisations, learning rates and activation functions are made for inputs of
about unit size. Raw pixels (0 … 255) or a raw table saturate tanh and sigmoid, kill ReLUs, blow up
the first gradients; a column of thousands drowns all others.

**How it is computed.** From the float inputs of all training steps so far (unit: the input's own),

    size = √(mean² + std²) over all elements, or the largest |mean| or std of a feature if larger

and from the gradients of the layer that the input enters, the size of what reaches it:

    seen = |∂L/∂W| ÷ (|∂L/∂b| √fan_in)

which is the root mean square of x, since ∂L/∂W = Σ δ xᵀ and ∂L/∂b = Σ δ. It fires when size is
above ``threshold`` and the median of seen over the last ``saves`` saved steps is above
``reached``, so that raw inputs which the model scales itself are no finding. Evidence ``kind``:

* ``pixels``: 0 … 255, not scaled;
* ``offset``: the mean of a feature is more than ten times its std;
* ``spread``: the stds of the features differ by more than a factor 1,000;
* ``range``: everything else;
* ``tiny``: all |x| are below ``smallest``, seen confirms it, and the loss has not moved after
  ``patience`` steps.

With ``threshold_mean`` or ``threshold_samples`` given the plain reading of the documentation is
used: zero mean and unit variance of each input, once ``threshold_samples`` samples were seen: it
fires when a feature's |mean| is above ``threshold_mean`` or its std is further from 1 than that.

**Remedy.** Subtract the mean and divide by the standard deviation of the training set, column by
column (pixels: divide by 255 first); or let the model begin with a normalisation layer.

Not judged: models that begin with a normalisation layer (one of the first two modules), models
whose first layer is frozen, token ids and other integers.

**False alarms to expect.** A first layer that is scale-free for reasons of its own.

**Missing data.** Without gradients of a first layer that has a bias, the size of the first
activations stands in: their root mean square above ``reached`` ÷ 2, or over half of them saturated.
Without either nothing is inspected. Facts that are NaN are unknown (DAT005 tells of NaN in inputs).

**Source.** Zero mean and unit variance: LeCun et al., "Efficient BackProp" (1998). Measured:
standardised inputs, one-hot rows, [0, 1] and 0 … 16 pixels have sizes up to 8 and seen up to 12 in
single steps; raw pixels 25 to 150, raw tables 75 to 860.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from trainwarden.model import TRAIN, Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import _batch, _progress
from trainwarden.rules._batch import Facts, fact
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_OFFSET = 10.0  # a mean of so many stds
_SPREAD = 1000.0  # largest over smallest std of the features
_PIXEL_MAX, _PIXEL_LEAST = 255.0, 150.0
_CANCELLED = 100.0  # a bias whose gradient cancels shows inputs far larger than they are
_FEWEST = 16  # samples
_FIRST_STEPS = 100  # what training makes of the gradients later is not about the data
_FLAT = 0.02  # share of the loss that must be gone
_MAX_INPUTS = 4
_GIVE_UP = 20  # saved steps without evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNormalizedData(CheckedRule[Json]):
    """Fire when inputs of another order of size than 1 reach the first layer."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT003",
        "NotNormalizedData",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("batch", "value"),),
        (
            "Standardise: (x - mean) / std with the statistics of the training set, by feature.",
            "Or begin the model with a normalisation layer: nn.BatchNorm1d(features).",
            "Use the same numbers for validation and inference.",
        ),
        "capture the inputs: call the model that trainwarden.watch() was given, with float inputs",
        explains=(
            "CheckInputImages", "SaturatedActivation", "DeadRelu", "ExplodingTensor",
            "ExplodingGradient", "VanishingGradient", "InitialLoss", "PoorWeightInitialization",
            "LossNotDecreasing", "LossSpike", "LearningRateTooHigh", "LearningRateTooLow",
            "UnchangedTensor", "Collapse", "TensorVariance", "WeightUpdateRatio",
        ),
    )  # fmt: skip

    threshold: float = param(25.0, "Largest size of inputs.", "x", bounds=Bounds(gt=0))
    reached: float = param(10.0, "Largest size at the first layer.", "x", bounds=Bounds(gt=0))
    saves: int = param(3, "Saved steps in the median.", "saved steps", bounds=Bounds(ge=1, le=20))
    smallest: float = param(1e-3, "Inputs below this are tiny.", "x", bounds=Bounds(ge=0))
    patience: int = param(100, "Steps before tiny inputs are told.", "steps", bounds=Bounds(ge=1))
    threshold_mean: float | None = param(
        None, "Largest |mean| of a feature, and |std - 1|.", "x", bounds=Bounds(gt=0)
    )
    threshold_samples: int | None = param(
        None, "Samples before the plain reading judges.", "samples", bounds=Bounds(ge=1)
    )

    def start(self) -> Json:
        """No input has been seen."""
        return {"n": 0, "seen": {}, "told": [], "loss": _progress.begin()}

    def inspects(self, obs: Observation) -> bool:
        """Facts of a float input at a training step."""
        return obs.mode is TRAIN and bool(_batch.inputs(obs))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Judge every input that has not been told yet, while the run is young."""
        if state == {} or obs.mode is not TRAIN or "batch" not in obs.scalars:
            return state, ()
        if self.threshold_mean is not None or self.threshold_samples is not None:
            return self._plain(state, obs)
        entrance = _batch.entrance(obs.layout)
        over = obs.step > max(_FIRST_STEPS, self.patience) and state["n"] >= _GIVE_UP
        if entrance.normalises or entrance.frozen or over:
            return {}, ()
        seen, told, found = dict(state["seen"]), list(state["told"]), []
        after = {
            "n": state["n"] + 1,
            "seen": seen,
            "told": told,
            "loss": _progress.follow(state["loss"], obs),
        }
        for name, facts in sorted(_batch.inputs(obs).items())[:_MAX_INPUTS]:
            if name in told or fact(facts, "seen") < _FEWEST:
                continue
            sizes = [*seen.get(name, []), _batch.reaching(obs, name)][-self.saves :]
            seen[name] = sizes = [size for size in sizes if size is not None]
            finding = self._judge(obs, name, facts, sizes, after)
            if finding is not None:
                found.append(finding)
                told.append(name)
        return after, found

    def _judge(
        self, obs: Observation, name: str, facts: Facts, sizes: Sequence[float], state: Json
    ) -> Finding | None:
        if not sizes or (len(sizes) < self.saves and state["n"] < self.saves):
            return None  # a net that died at once leaves the first step's gradients only
        reached, size = median(sizes), _size(facts)
        least, most = fact(facts, "min"), fact(facts, "max")
        if size > self.threshold:
            if not self.reached < reached < _CANCELLED * size:
                return None
            kind, text = _kind(facts)
            message = (
                f"{name} is not normalised: {text}; what reaches the first layer has a root mean "
                f"square of about {reached:.3g} instead of 1"
            )
            evidence = _evidence(facts, kind, reached)
            since = 0 if obs.step < _FIRST_STEPS else obs.step
            return Finding(obs.step, _known(obs, name), size, self.threshold, message, since,
                           evidence, _REMEDIES[kind])  # fmt: skip
        peak = max(abs(least), abs(most))
        if not 0 < peak < self.smallest or not reached < _OFFSET * self.smallest:
            return None
        if obs.step < self.patience or not _progress.fall(state["loss"]) < _FLAT:
            return None
        message = (
            f"{name} is tiny: no element is above {peak:.3g} in size, and the loss has not moved "
            f"in {obs.step} steps"
        )
        evidence, since = _evidence(facts, "tiny", reached), state["loss"]["at"]
        return Finding(obs.step, _known(obs, name), peak, self.smallest, message, since, evidence)

    def _plain(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        limit = 0.2 if self.threshold_mean is None else self.threshold_mean
        enough = 500 if self.threshold_samples is None else self.threshold_samples
        told, found = list(state["told"]), []
        for name, facts in sorted(_batch.inputs(obs).items())[:_MAX_INPUTS]:
            if name in told or not fact(facts, "seen") >= enough:
                continue
            told.append(name)
            mean = _first(abs(fact(facts, "feature_mean_max")), abs(fact(facts, "mean")))
            std = _first(fact(facts, "feature_std_max"), fact(facts, "std"))
            worst = max((x for x in (mean, abs(std - 1.0)) if not math.isnan(x)), default=0.0)
            if worst > limit:
                message = f"{name} has features of mean {mean:.3g} and std {std:.3g}, not 0 and 1"
                found.append(Finding(obs.step, _known(obs, name), worst, limit, message, obs.step,
                                     _evidence(facts, "range", math.nan)))  # fmt: skip
        return {**state, "told": told}, found


_REMEDIES: dict[str, tuple[str, ...]] = {
    "pixels": (
        "Scale the pixels: transforms.ToTensor() or x / 255, then transforms.Normalize(mean, std).",
        "Use the same transform for validation and inference.",
    ),
    "offset": (
        "Subtract each feature's mean (years, temperatures in kelvin, ids taken for numbers).",
        "Standardise: (x - mean) / std with the statistics of the training set, by feature.",
    ),
    "spread": (),
    "range": (),
    "tiny": (),
}


def _size(facts: Facts) -> float:
    values = [
        math.hypot(fact(facts, "mean"), fact(facts, "std")),
        abs(fact(facts, "feature_mean_max")),
        fact(facts, "feature_std_max"),
    ]
    return max((v for v in values if math.isfinite(v)), default=0.0)


def _kind(facts: Facts) -> tuple[str, str]:
    least, most = fact(facts, "min"), fact(facts, "max")
    mean, std = fact(facts, "feature_mean_max"), fact(facts, "feature_std_max")
    low = fact(facts, "feature_std_min")
    told = f"its elements go from {least:.4g} to {most:.4g}"
    if least == 0 and _PIXEL_LEAST < most <= _PIXEL_MAX:
        return "pixels", f"its pixels go from {least:.4g} to {most:.4g}"
    if abs(mean) > _OFFSET * std:
        return "offset", f"a feature has a mean of {mean:.4g} and stds are at most {std:.3g}"
    if std > _SPREAD * low > 0:
        return "spread", f"{told}, and the stds of its features from {low:.3g} to {std:.3g}"
    return "range", told


def _evidence(facts: Facts, kind: str, reached: float) -> dict[str, Json]:
    wanted = ("mean", "std", "min", "max", "feature_mean_max", "feature_std_max", "feature_std_min")
    known = {name: fact(facts, name) for name in wanted}
    known["reaching"] = reached
    return {"kind": kind, **{k: v for k, v in known.items() if not math.isnan(v)}}


def _known(obs: Observation, name: str) -> str:
    return name if name in obs.layout.row_of else ""


def _first(*values: float) -> float:
    return next((v for v in values if not math.isnan(v)), math.nan)
