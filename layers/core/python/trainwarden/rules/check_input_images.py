"""DAT004 CheckInputImages: images enter the model as raw pixels, or far from zero mean.

**Why it hurts.** Networks for images are made, and pre-trained, for pixels of about zero mean and
unit size; raw ones slow the first layers down or kill them.

**How it is computed.** Images are float inputs of four dimensions (unit: the pixels' own). It fires
once when

* pixels lie between 0 and 255, some above 150, and raw they reach the first layer, whose gradients
  show inputs of a root mean square above ``reached`` (see DAT003) at ``saves`` saved steps; or
* with ``threshold_mean`` given, SageMaker's meaning: the |mean| of all images so far is above
  ``threshold_mean`` once ``threshold_samples`` images were seen.

**Remedy.** transforms.ToTensor() or x / 255, then transforms.Normalize(mean, std) with the numbers
of the training set, or of the pre-trained model.

**False alarms to expect.** In SageMaker's meaning, images in [0, 1], which train well.

**Missing data.** Without images nothing is inspected; models that begin with a normalisation layer
are not judged. NaN is passed over.

**Source.** SageMaker Debugger's CheckInputImages: threshold_mean 0.2 after 500 samples. Not
evaluated unless asked for, since NotNormalizedData (DAT003) judges images with all other inputs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from trainwarden.model import TRAIN, Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import _batch
from trainwarden.rules._batch import Facts, fact
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_IMAGE = 3  # dimensions without the batch
_RAW, _MOST = 150.0, 255.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputImages(CheckedRule[Json]):
    """Fire when images are not normalised."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT004",
        "CheckInputImages",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("batch", "value"),),
        (
            "Scale and normalise: transforms.ToTensor(), then transforms.Normalize(mean, std).",
            "Use the numbers that a pre-trained model was trained with.",
        ),
        "capture the inputs: images are float inputs (samples, channels, height, width)",
        explains=("SaturatedActivation", "DeadRelu", "LossNotDecreasing", "InitialLoss"),
        default=False,
        sagemaker={"threshold_mean": 0.2, "threshold_samples": 500},
    )

    threshold_mean: float | None = param(
        None, "Largest |mean| of all images, SageMaker's meaning.", "x", bounds=Bounds(ge=0)
    )
    threshold_samples: int = param(500, "Images before that.", "images", bounds=Bounds(ge=1))
    regex: tuple[str, ...] = param((), "Inputs to look at; none means all images.", pattern=True)
    reached: float = param(10.0, "Largest size at the first layer.", "x", bounds=Bounds(gt=0))
    saves: int = param(3, "Saved steps in the median.", "saved steps", bounds=Bounds(ge=1, le=20))

    def start(self) -> Json:
        """No image has been seen."""
        return {"seen": {}, "told": []}

    def inspects(self, obs: Observation) -> bool:
        """Facts of an image input at a training step."""
        return obs.mode is TRAIN and bool(self._images(obs))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Judge each image input until it was told."""
        if obs.mode is not TRAIN or "batch" not in obs.scalars:
            return state, ()
        seen, told, found = dict(state["seen"]), list(state["told"]), []
        for name, facts in self._images(obs).items():
            if name in told:
                continue
            if self.threshold_mean is not None:
                finding = self._mean(obs, name, facts, self.threshold_mean)
            else:
                size = _batch.reaching(obs, name)
                seen[name] = [*seen.get(name, []), *([] if size is None else [size])][-self.saves :]
                finding = self._raw(obs, name, facts, seen[name])
            if finding is not None:
                found.append(finding)
                told.append(name)
        return {"seen": seen, "told": told}, found

    def _images(self, obs: Observation) -> dict[str, Facts]:
        found = {}
        for name, facts in _batch.inputs(obs).items():
            row = obs.layout.row_of.get(name)
            wanted = not self.regex or any(re.match(p, name) for p in self.regex)
            if row is not None and len(obs.layout.tensors[row].shape) == _IMAGE and wanted:
                found[name] = facts
        return found

    def _mean(self, obs: Observation, name: str, facts: Facts, limit: float) -> Finding | None:
        mean, seen = abs(fact(facts, "mean")), fact(facts, "seen")
        if not (seen >= self.threshold_samples and mean > limit):
            return None
        message = f"the mean of {seen:.0f} images of {name} is {fact(facts, 'mean'):.3g}, not 0"
        return Finding(obs.step, name, mean, limit, message, 0, {"kind": "mean", "samples": seen})

    def _raw(
        self, obs: Observation, name: str, facts: Facts, sizes: Sequence[float]
    ) -> Finding | None:
        least, most = fact(facts, "min"), fact(facts, "max")
        raw = least >= 0 and _RAW < most <= _MOST
        if not raw or not sizes or _batch.entrance(obs.layout).normalises:
            return None
        size = median(sizes)
        if len(sizes) < self.saves or size <= self.reached:
            return None
        message = f"the pixels of {name} go from {least:.4g} to {most:.4g} and are not normalised"
        evidence = {"kind": "pixels", "min": least, "max": most, "reaching": size}
        return Finding(obs.step, name, size, self.reached, message, 0, evidence)
