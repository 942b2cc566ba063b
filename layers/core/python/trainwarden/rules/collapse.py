"""OUT001 Collapse: a model that has nothing to compare with gives every input the same output.

**Why it hurts.** Without negatives, a margin or a strong critic the easiest answer is one point for
all: the loss is at its best, and the outputs are worth nothing.

**How it is computed.** *Cosine* is the mean cosine of two outputs of a batch, *spread* the standard
deviation over the batch by the RMS of the output (both unit: 1), *size* that deviation itself (the
output's unit). Outputs are alike while the cosine is at least ``min_cosine`` and the spread under
half of its value at the start, in a run that started below ``start_cosine``, at each of 5 saved
steps and more. evidence.kind says what it is:

* *trivial_optimum*: they are so for ``min_steps`` steps, and as long the loss has lost 90 % of its
  start without passing through 0, or lies between -0.95 and -1, the least that a negative cosine
  can be;
* *mode_collapse*: they are so for ``min_steps`` steps under several optimizers, as in a GAN, the
  spread under a fifth of its start;
* *posterior_collapse*: they are so for ``long_steps`` steps in a model that rebuilds its input, or
  whose loss nobody knows, though the loss has lost ``max_fall`` of its start, and their size is
  under half of its start and not above 1.5 times its least (what a warm-up keeps small grows
  again), or another output, such as the mean of a posterior, has lost three quarters of its own.
  Wherever outputs point: the size is so small, and under ``max_share`` of the standard deviation
  of what is rebuilt, another output has lost as much, and the loss a twentieth;
* *margin*: the cosine is at least ``min_cosine`` and the size under a tenth of its start for
  ``min_steps`` steps, not above 1.5 times its least, while the loss is the same to one part in a
  thousand whatever the batch: a margin that no pair can pass. It may start anywhere.

Not judged: outputs of one number, without several optimizers those of fewer than 8; classifiers and
regressions, whose targets may be alike, and whose constant answers other rules explain; one
direction of outputs that have grown more than tenfold alone, since they learn an offset.

**Remedy.** Negatives, a stop-gradient, a margin or a variance term; equal strength of generator and
critic; a smaller weight of the divergence, warmed up.

**False alarms to expect.** Losses written by hand whose targets are nearly all the same.

**Missing data.** Without the collection batch nothing is inspected; NaN is passed over.

**Source.** Chen and He (2021) for collapse without negatives; Bowman et al. (2016) for posteriors.
Measured: healthy encoders, GANs and VAEs stay under a cosine of 0.9 once they have begun to learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from trainwarden.rules._facts import (
    fact,
    functions,
    rounded,
    several_optimizers,
    skipped,
    suspicions,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import column

RMS = Need("outputs", "rms")
_OUTPUT, _OTHERS = "output/0", ("output/1", "output/2", "output/3")
_SPREAD, _COSINE, _RMS, _SIZE = 0, 1, 2, 3
_Numbers = list[float]
_MIN, _MAX = INDEX["min"], INDEX["max"]
_KEPT = 5
_SMALLER, _MUCH_SMALLER, _GROWN, _TRIVIAL = 0.5, 0.2, 10.0, 0.9
_LEAST_COSINE = (-1.0 - 1e-6, -0.95)  # a loss that is a negative cosine, at its optimum
_AGAIN = 1.5  # times its least: a size that grows again
_BESIDE, _LOST = 0.25, 0.05  # of another output's size, of the loss
_STILL, _POINT = 1e-3, 0.1  # of the loss, of the size at the start
_EMBEDDING = 8  # numbers: fewer are a regression's, whose loss may be written by hand
_REBUILDING = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                         "binary_cross_entropy", "binary_cross_entropy_with_logits"})  # fmt: skip
_FREE = frozenset({"cosine_embedding_loss", "triplet_margin_loss", "margin_ranking_loss"})
_TOLD = {
    "trivial_optimum": "and the loss has come down to {loss:.4g}: one point for all is its optimum",
    "mode_collapse": "under several optimizers: the generator makes one thing of all its inputs",
    "posterior_collapse": "and the loss has fallen by {fallen:.0%}: the input is not used",
    "margin": "and the loss rests at {loss:.4g} whatever the batch: a margin that no pair can pass",
}
_REMEDIES = {
    "trivial_optimum": (
        "Give the loss something that keeps outputs apart: negatives, a margin, a variance term.",
        "Stop the gradient of one of two views.",
    ),
    "mode_collapse": (
        "Give critic and generator equal learning rates, or the critic more steps.",
        "Use a Wasserstein loss with a gradient penalty, or minibatch discrimination.",
    ),
    "posterior_collapse": (
        "Lower the weight of the divergence, or warm it up from 0.",
        "Sum the reconstruction over elements as the divergence is summed.",
    ),
    "margin": (
        "Begin with all or with semi-hard pairs, and mine the hardest ones later.",
        "Lower the learning rate, or scale the outputs to length 1.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse(CheckedRule[Json]):
    """Fire when all outputs have become alike and nothing else explains it."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OUT001",
        "Collapse",
        Severity.WARNING,
        Tier.EVIDENCE,
        (
            Need("batch", "value"),
            Need("losses", "value"),
            Need("objective", "value"),
            RMS,
        ),
        (
            "Look at the outputs of a batch side by side.",
            "Give the loss a reason to keep them apart.",
        ),
        "capture the collection batch; trainwarden.watch() does so by default",
        explains=("TensorVariance", "LossNotDecreasing"),
    )

    min_cosine: float = param(0.98, "Cosine of outputs that are alike.", bounds=Bounds(gt=0, lt=1))
    start_cosine: float = param(
        0.95, "Cosine under which a run has to start.", bounds=Bounds(gt=0, lt=1)
    )
    min_steps: int = param(30, "Steps it must last.", "steps", bounds=Bounds(ge=1))
    long_steps: int = param(
        80, "Steps for models that rebuild their input.", "steps", bounds=Bounds(ge=1)
    )
    max_fall: float = param(
        0.3, "Share of the loss that such a model has lost.", bounds=Bounds(gt=0, le=1)
    )
    max_share: float = param(
        0.15, "Size of outputs over that of what they rebuild.", bounds=Bounds(gt=0, lt=1)
    )

    def start(self) -> Json:
        """No output was seen."""
        return {"first": [], "kept": {}, "low": None, "told": False, "rests": -1, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """A training step at which the outputs of a batch were compared."""
        return obs.mode is TRAIN and f"{_OUTPUT}.batch_spread" in obs.scalars.get("batch", {})

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Compare how alike outputs are with how alike they were."""
        if state["told"] or not self.inspects(obs) or skipped(obs):
            return state, ()
        state = {**state, "loss": follow(state["loss"], obs)}
        here = _outputs(obs)
        if here is None:
            return state, ()
        if len(state["first"]) < _KEPT:
            return {**state, "first": [*state["first"], here]}, ()
        began = [median(values) for values in zip(*state["first"], strict=False)]
        low = here[_SIZE] if state["low"] is None else min(here[_SIZE], state["low"])
        rests = state["rests"] if state["rests"] >= 0 else obs.step
        rests = rests if _at_optimum(state["loss"]) else -1
        state = {**state, "low": low, "rests": rests}
        forms = list(self._forms(obs, here, began, state["loss"]["last"]))
        if not forms and not state["kept"]:
            return state, ()
        state = {**state, "kept": suspicions(state["kept"], obs.step, forms)}
        for form, (since, count) in state["kept"].items():
            kind = self._kind(obs, form, (here, began), state)
            least = self.long_steps if kind == "posterior_collapse" else self.min_steps
            if kind and count >= _KEPT and obs.step - since >= least:
                found = _finding(obs, (form, kind), (since, count), (here, began), state["loss"])
                return {**state, "kept": {}, "told": True}, [found]
        return state, ()

    def _forms(
        self, obs: Observation, here: _Numbers, began: _Numbers, losses: _Numbers
    ) -> Iterator[str]:
        """In which ways outputs are alike: all one direction, flat beside their targets, a point.

        ``here`` and ``began``: spread, cosine, RMS and size of the first output, sizes of others.
        """
        near = here[_COSINE] >= self.min_cosine
        closer = began[_COSINE] <= self.start_cosine and here[_SPREAD] < _SMALLER * began[_SPREAD]
        offset = here[_RMS] > _GROWN * began[_RMS] and not _beside(here, began)
        if near and closer and not offset:
            yield "direction"
        if here[_SIZE] >= _SMALLER * began[_SIZE]:
            return
        if _beside(here, began) and here[_SIZE] < self.max_share * _rebuilt(obs):
            yield "flat"
        still = len(losses) >= _KEPT and max(losses) - min(losses) <= _STILL * min(losses)
        if near and still and here[_SIZE] < _POINT * began[_SIZE]:
            yield "point"

    def _kind(
        self, obs: Observation, form: str, sizes: tuple[_Numbers, _Numbers], state: Json
    ) -> str:
        """Say which collapse it may be; empty for none."""
        (here, began), fallen = sizes, fall(state["loss"])
        if several_optimizers(obs):
            few = here[_SPREAD] < _MUCH_SMALLER * began[_SPREAD]
            return "mode_collapse" if form == "direction" and few else ""
        if math.prod(obs.layout.tensors[obs.layout.row_of[_OUTPUT]].shape) < _EMBEDDING:
            return ""
        free = not set(functions(obs)) - _FREE
        grows = here[_SIZE] > _AGAIN * state["low"]
        if form == "point":
            return "margin" if free and not grows else ""
        if form == "direction" and free and 0 <= state["rests"] <= obs.step - self.min_steps:
            return "trivial_optimum"
        small = here[_SIZE] < _SMALLER * began[_SIZE] and not grows
        if not small and not (form == "direction" and _beside(here, began)):
            return ""
        least = self.max_fall if form == "direction" else _LOST
        return "posterior_collapse" if least <= fallen <= 1 and (free or _rebuilt(obs) > 0) else ""


def _at_optimum(loss: Json) -> bool:
    """Say whether a loss is where it is best: near 0, or near -1 if it is a cosine."""
    low, high = _LEAST_COSINE
    last: _Numbers = loss["last"]
    return _TRIVIAL <= fall(loss) <= 1 or bool(last and low <= median(last) <= high)


def _beside(here: _Numbers, began: _Numbers) -> bool:
    """Say whether an output next to the first one has become small, as a posterior's mean does."""
    others = zip(here[_SIZE + 1 :], began[_SIZE + 1 :], strict=False)
    return any(0 < now < _BESIDE * was for now, was in others)


def _finding(
    obs: Observation,
    what: tuple[str, str],
    lasted: tuple[int, int],
    sizes: tuple[_Numbers, _Numbers],
    loss: Json,
) -> Finding:
    (form, kind), (since, count), (here, began) = what, lasted, sizes
    fallen, by = fall(loss), _SIZE if form == "flat" else _COSINE
    told = "differ by" if form == "flat" else "have a cosine of"
    why = _TOLD[kind].format(fallen=fallen, loss=loss["last"][-1] if loss["last"] else math.nan)
    message = (
        f"since step {since} any two outputs of a batch {told} {here[by]:.3f}, "
        f"{began[by]:.2f} at the start, {why}"
    )
    evidence = {"kind": kind, "saved_steps": count, "loss_fall": rounded(fallen)}
    for name, at in (("cosine", _COSINE), ("batch_spread", _SPREAD), ("size", _SIZE)):
        evidence |= {name: rounded(here[at]), f"{name}_at_start": rounded(began[at])}
    return Finding(
        obs.step, _OUTPUT, here[by], began[by], message, since, evidence, _REMEDIES[kind], 0.8,
    )  # fmt: skip


def _outputs(obs: Observation) -> _Numbers | None:
    """Spread, cosine, RMS and size of the first output, then sizes of others, 0 if unknown.

    None if the first is one number a sample or not captured, or if one of these is not finite.
    """
    row = obs.layout.row_of.get(_OUTPUT, -1)
    if row < 0 or math.prod(obs.layout.tensors[row].shape) < 2:  # noqa: PLR2004 - a cosine needs two
        return None
    names, _, values = column(obs, RMS)
    sizes = {name: float(value) for name, value in zip(names, values.tolist(), strict=True)}
    facts = obs.scalars["batch"]
    spread, cosine = facts[f"{_OUTPUT}.batch_spread"], fact(obs, "batch", f"{_OUTPUT}.cosine")
    cosine = 1.0 if spread == 0 and math.isnan(cosine) else cosine
    rms = sizes.get(_OUTPUT, math.nan)
    found = [spread, cosine, rms, spread * rms]
    if not all(map(math.isfinite, found)):
        return None
    for name in _OTHERS:
        size = facts.get(f"{name}.batch_spread", 0.0) * sizes.get(name, 0.0)
        found.append(size if math.isfinite(size) else 0.0)
    return found


def _rebuilt(obs: Observation) -> float:
    """Standard deviation of what the model rebuilds, its input; 0.0 if it rebuilds nothing.

    The loss says what it compares with; written by hand, the shape of outputs that are several.
    """
    known = functions(obs)
    for name, facts in known.items():
        function = name.partition(":")[0]
        same = _is_input(obs, facts.get("target_min"), facts.get("target_max"))
        if function in _REBUILDING and same:
            return facts.get("target_std", math.inf)
    shapes = [obs.layout.tensors[obs.layout.row_of[name]].shape
              for name in (_OUTPUT, "input/0") if name in obs.layout.row_of]  # fmt: skip
    if known or len(shapes) < 2 or shapes[0] != shapes[1]:  # noqa: PLR2004 - one of each
        return 0.0
    return fact(obs, "batch", "input/0.std")


def _is_input(obs: Observation, least: float | None, most: float | None) -> bool:
    """Say whether the targets are the model's input: they have its range, here or so far."""
    if least is None or most is None:
        return False
    ranges = [(fact(obs, "batch", "input/0.min"), fact(obs, "batch", "input/0.max"))]
    row = obs.layout.row_of.get("input/0", -1)
    if 0 <= row < obs.stats.shape[0]:
        ranges.append((float(obs.stats[row, _MIN]), float(obs.stats[row, _MAX])))
    for low, high in ranges:
        room = 0.1 * (high - low)
        if room > 0 and abs(least - low) <= room and abs(most - high) <= room:
            return True
    return False
