"""OPT005 OverRegularization: decay, a penalty or dropout is stronger than what the data teach.

**Why it hurts.** Weights that shrink faster than they learn, or layers of which hardly an element
is left, keep the network at a guess. It looks like a learning rate that is too low.

**How it is computed.** The size of the network is the L2 norm of all trainable weight matrices
(unit: the weights' own), against that of its first saved step. A run is *stuck* if its loss
function, taken without penalties, has stayed above 0.9 x ln C of C classes over the last 5 saved
steps, or the predictions of a regression vary by less than a fifth of the targets' variation, or,
where neither is known, it has lost less than a tenth of its start. evidence.kind says what it is:

* *weight_decay*: an optimizer decays weights, and the size is under ``shrunk`` of its start in a
  run that is stuck for ``min_steps`` steps; or learning rate x weight decay, under SGD divided by
  1 - momentum, is at least ``max_rate`` a step, and the size is under 0.9 of its start for as
  long: what was learned is forgotten within 1 / ``max_rate`` steps; or the decay is part of the
  gradient, as Adam's is and AdamW's is not, weight decay x size is at least the norm of all
  gradients (dividing by its own size, Adam follows whichever is larger), and the size is under 0.9
  of its start, in a run that is stuck for as long;
* *penalty*: no optimizer decays weights, and the size is under ``shrunk`` of its start in a run
  that is stuck: a penalty in the loss;
* *dropout*: dropout of ``max_dropout`` or more in a run that is stuck for 60 steps;
* *smoothing*: label smoothing of ``max_smoothing`` or more in one: what the labels say is less than
  half of what the loss asks for.

**Remedy.** Weight decay of 1e-4 to 0.1 with AdamW, 1e-4 to 1e-3 with SGD; a penalty of about that
size against the loss; dropout of 0.1 to 0.5; label smoothing of 0.05 to 0.2.

**False alarms to expect.** Networks that are pruned by decay on purpose and are stuck all the same.

**Missing data.** Without weights only dropout is judged; NaN is NUM001's business.

**Source.** ln C: a uniform guess. Loshchilov and Hutter (2019) for the product of rate and decay;
usual values are 1e-6 to 1e-3 a step, 20 times under ``max_rate``. Measured: healthy runs keep over
90 % of their size in the first hundred steps.
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
from trainwarden.rules._facts import fact, functions, loop, rounded, skipped, suspicions
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss
from trainwarden.rules._selection import clean, squares, weight_matrices

_KEPT = 5  # losses in each median
_GUESS, _CONSTANT, _FALL = 0.9, 0.2, 0.1
_SMALLER = 0.9
_LONGER = {"dropout": 60, "smoothing": 60}  # steps
_REGRESSIONS = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
_TOLD = {
    "weight_decay": (
        "a weight decay of {decay:.3g} at a learning rate of {lr:.3g} outweighs what is learned: "
        "the weights are {share:.0%} of their size at the start"
    ),
    "penalty": (
        "the weights are {share:.0%} of their size at the start though no optimizer decays them: "
        "a penalty in the loss outweighs it"
    ),
    "dropout": "dropout of {dropout:g} leaves too little to learn from",
    "smoothing": "label smoothing of {smoothing:g} leaves too little of the labels",
}
_REMEDIES = {
    "weight_decay": ("Lower weight_decay 100 times: 0.01 is usual for AdamW, 1e-4 for SGD.",),
    "penalty": ("Lower the penalty's factor 100 times; print it beside the loss.",),
    "dropout": ("Drop 0.1 to 0.5; PyTorch's p is the share that is dropped, not kept.",),
    "smoothing": ("Smooth by 0.05 to 0.2: label_smoothing is the share that is taken away.",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverRegularization(CheckedRule[Json]):
    """Fire when regularization keeps the network from learning."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OPT005",
        "OverRegularization",
        Severity.WARNING,
        Tier.EVIDENCE,
        (
            Need("losses", "value"),
            Need("optimizer", "value"),
            Need("loop", "value"),
            Need("objective", "value"),
            Need("weights", "l2"),
        ),
        (
            "Train without regularization first; add it when the model overfits.",
            "Lower weight decay, the penalty's factor or dropout.",
        ),
        "capture the collections losses, weights, optimizer and loop",
        explains=(
            "Collapse",
            "DeadRelu",
            "LearningRateTooLow",
            "LossNotDecreasing",
            "TensorVariance",
            "UnchangedTensor",
            "VanishingGradient",
            "WeightUpdateRatio",
        ),
    )

    shrunk: float = param(
        0.3, "Size of the weights over that at the start.", bounds=Bounds(gt=0, lt=1)
    )
    min_steps: int = param(20, "Steps it must last.", "steps", bounds=Bounds(ge=1))
    max_rate: float = param(
        0.02, "Share of the weights that decays in a step.", "1/step", bounds=Bounds(gt=0, le=1)
    )
    max_dropout: float = param(0.8, "Least dropout that is ill.", bounds=Bounds(gt=0, le=1))
    max_smoothing: float = param(
        0.5, "Least label smoothing that is ill.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """Nothing was measured."""
        return {"at": -1, "size": None, "first": [], "last": [], "kept": {}, "told": False}

    def inspects(self, obs: Observation) -> bool:
        """A training step whose loss and weights or dropout are known."""
        there = obs.captured("weights").size > 0 or "dropout_max" in obs.scalars.get("loop", {})
        return obs.mode is TRAIN and there and bool(obs.scalars.get("losses"))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Measure weights and loss; tell the first kind that lasted."""
        if obs.mode is not TRAIN or state["told"] or skipped(obs):
            return state, ()
        size, loss = _size(obs), _task_loss(obs)
        state = {
            "at": obs.step if state["at"] < 0 else state["at"],
            "size": size if state["size"] is None and size > 0 else state["size"],
            "first": state["first"] if len(state["first"]) >= _KEPT or loss is None
            else [*state["first"], loss],
            "last": state["last"] if loss is None else [*state["last"][1 - _KEPT :], loss],
            "kept": state["kept"],
            "told": False,
        }  # fmt: skip
        share = size / state["size"] if state["size"] else math.nan
        kept = suspicions(state["kept"], obs.step, self._kinds(obs, state, share))
        state["kept"] = kept
        for suspect, (since, count) in kept.items():
            kind = suspect.partition(" ")[0]
            least = _LONGER.get(kind, self.min_steps)
            if count >= _KEPT and obs.step - since >= least:
                found = self._finding(obs, kind, (since, count), share, state)
                return {**state, "kept": {}, "told": True}, [found]
        return state, ()

    def _kinds(self, obs: Observation, state: Json, share: float) -> Iterator[str]:
        decay, _, rate = _decay(obs) if share < _SMALLER else (0.0, 0.0, 0.0)
        if rate >= self.max_rate:
            yield "weight_decay forgets"
        found = ""
        if share < _SMALLER and _outweighs(obs):
            found = "weight_decay outweighs"
        elif share < self.shrunk:
            found = "weight_decay shrinks" if decay > 0 else "penalty"
        elif loop(obs)["dropout_max"] >= self.max_dropout:
            found = "dropout"
        elif _smoothing(obs) >= self.max_smoothing:
            found = "smoothing"
        if found and _stuck(obs, state):
            yield found

    def _finding(
        self, obs: Observation, kind: str, lasted: tuple[int, int], share: float, state: Json
    ) -> Finding:
        since, count = lasted
        decay, lr, rate = _decay(obs)
        dropout = fact(obs, "loop", "dropout_max")
        numbers = {"decay": decay, "lr": lr, "share": share, "dropout": dropout}
        why = _TOLD[kind].format(**numbers, smoothing=_smoothing(obs))
        now = median(state["last"]) if state["last"] else math.nan
        message = f"{why}, over {count} saved steps since step {since}; the loss is {now:.4g}"
        numbers = {"weight_decay": decay, "learning_rate": lr, "decay_a_step": rate,
                   "size_share": share, "dropout_max": dropout, "loss": now}  # fmt: skip
        evidence = {"kind": kind, **{name: rounded(v) for name, v in numbers.items()}}
        value, limit = {
            "dropout": (dropout, self.max_dropout),
            "smoothing": (_smoothing(obs), self.max_smoothing),
        }.get(kind, (share, self.shrunk))
        return Finding(
            obs.step, "", value, limit, message, since, evidence, _REMEDIES[kind], confidence=0.9
        )


def _size(obs: Observation) -> float:
    """L2 norm of all trainable matrices; NaN if it is not known, or some are not finite."""
    rows = obs.among(weight_matrices(obs.layout))
    if not rows.size or not (clean(obs) or not obs.stats[rows, 1:4].any()):
        return math.nan
    total = float(squares(obs)[rows].sum())
    return math.sqrt(total) if 0 <= total < math.inf else math.nan


def _task_loss(obs: Observation) -> float | None:
    """The loss function's own value where it is known beside a sum with penalties."""
    losses = obs.scalars.get("losses", {})
    for name in functions(obs):
        value = losses.get(name, math.nan)
        if math.isfinite(value):
            return value
    found = main_loss(obs)
    return None if found is None else found[1]


def _smoothing(obs: Observation) -> float:
    """Largest label smoothing of a loss function; 0 without one."""
    return max((facts.get("smoothing", 0.0) for facts in functions(obs).values()), default=0.0)


def _decay(obs: Observation) -> tuple[float, float, float]:
    """Weight decay, learning rate and share lost a step of the group that decays most."""
    found = (0.0, math.nan, 0.0)
    for name, decay in obs.scalars.get("optimizer", {}).items():
        prefix, _, last = name.rpartition("weight_decay_")
        lr = fact(obs, "optimizer", f"{prefix}lr_{last}")
        if not last.isdigit() or not 0 < decay < math.inf or not 0 < lr < math.inf:
            continue
        momentum = fact(obs, "optimizer", f"{prefix}momentum_{last}")
        adaptive = fact(obs, "optimizer", f"{prefix}adaptive_{last}") > 0
        kept = 1.0 if adaptive or not 0 <= momentum < 1 else 1.0 - momentum
        found = max(found, (decay, lr, lr * decay / kept), key=lambda one: one[2])
    return found


def _outweighs(obs: Observation) -> bool:
    """Say whether an Adam's decay, part of its gradient, is larger than all that the loss adds."""
    told = obs.scalars.get("optimizer", {})
    decays = {value for name, value in told.items() if name.startswith("weight_decay_")}
    if len(decays) != 1 or told.get("decoupled_0") != 0 or told.get("adaptive_0") != 1:
        return False
    rows = obs.among(obs.layout.rows("gradients"))
    gradients = math.sqrt(float(squares(obs)[rows].sum())) if rows.size else 0.0
    return gradients > 0 and decays.pop() * _size(obs) >= gradients


def _stuck(obs: Observation, state: Json) -> bool:
    """Say whether the run is where a guess is."""
    if len(state["last"]) < _KEPT:
        return False
    now = median(state["last"])
    for title, facts in functions(obs).items():
        function, classes = title.partition(":")[0], facts.get("classes", math.nan)
        if function in {"cross_entropy", "nll_loss"} and 1 < classes < math.inf:
            return bool(now > _GUESS * math.log(classes))
        spread, wanted = facts.get("input_std", math.nan), facts.get("target_std", math.nan)
        if function in _REGRESSIONS and wanted > 0 and spread >= 0:
            return spread < _CONSTANT * wanted
    start = median(state["first"])
    return bool(start > 0 and now > (1 - _FALL) * start)
