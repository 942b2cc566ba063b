"""NUM001 ExplodingTensor: a tensor holds NaN or infinity.

**Why it hurts.** One NaN spreads to every weight within a step; from then on the job burns money
without learning, and the last good checkpoint gets older.

**How it is computed.** At each saved step, elements that are NaN, +inf or -inf are counted exactly
for every captured tensor (unit: elements). The rule fires at the first saved step with a count
above 0 and names the *first* tensor in the order of computation: weights (saved before the step's
update), inputs, activations by depth, outputs, losses, gradients from the last layer backwards. It
fires once per episode: again only after a saved step without any.

With neither ``collection_names`` nor ``tensor_regex`` these are normal and not counted:

* gradients of a step that GradScaler skipped; a scale that is halved ``max_skipped`` times in a row
  without success is no warm-up any more and fires;
* -inf in activations, inputs and outputs: that is how masks are written;
* NaN and +inf in activations, inputs, outputs, labels and custom tensors while loss and gradients
  of the same step are there and finite: the network does not pass them on.

The profile ``sagemaker`` counts these, too (``everything``).

A non-finite *validation* loss is a warning, since training itself is not ill.

**What it says.** ``kind`` in the evidence is where it began: ``nan_input`` (inputs or labels; data
given to the named operation), ``forward``, ``loss``, ``backward`` (gradients of finite values) or
``weights`` (broken by the update of the step before). ``module`` and ``operation`` name the first
operation with a result that is not finite, from the graph of the loss, where the hook saw the loss
in that very step (on the CPU); ``order`` ranks the first tensors; ``losses`` are the last before.

**Remedy.** Look at the named tensor first: a logarithm, square root, division or norm of zero in
front of it, then the learning rate, then the data of that step.

**False alarms to expect.** A loss that is infinite on purpose for some batches.

**Missing data.** Tensors that were not captured are not judged. After a resume an episode goes on.

**Source.** SageMaker Debugger's ExplodingTensor (any NaN or infinity); GradScaler's documentation
for skipped steps; halving 2**32 times covers every start value in use (2**16 by default).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    TRAIN,
    Finding,
    IntArray,
    Json,
    Layout,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules import _origin
from trainwarden.rules._facts import skipped
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._selection import clean, matching, once
from trainwarden.stats.catalog import INDEX

LOSSES = Need("losses", "value")
_STAGES = {
    "weights": 0,
    "biases": 0,
    "inputs": 1,
    "labels": 1,
    "activations": 2,
    "activation_inputs": 2,
    "module_outputs": 2,
    "outputs": 3,
    "gradients": 5,
}
_LOSS_STAGE, _OTHER_STAGE = 4, 6
_NONE: IntArray = np.empty(0, dtype=np.int64)
_STRICT = frozenset({0, 5})  # stages whose values reach the weights
_NAN, _PINF, _NINF = (INDEX[c] for c in ("n_nan", "n_pinf", "n_ninf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingTensor(CheckedRule[Json]):
    """Fire at the first saved step at which a tensor holds NaN or infinity."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "NUM001",
        "ExplodingTensor",
        Severity.ERROR,
        Tier.CRITICAL,
        (),
        (
            "Look for log, sqrt, division or a norm of zero in front of the named tensor; add eps.",
            "Lower the learning rate, or warm it up.",
            "Clip gradients: torch.nn.utils.clip_grad_norm_(parameters, 1.0).",
            "Under fp16 use GradScaler, or bf16, whose range is that of float32.",
            "Check the inputs of that step for NaN and for values far out of range.",
        ),
        "capture losses, gradients or weights; trainwarden.watch() does so by default",
        sagemaker={"everything": True},
    )

    collection_names: tuple[str, ...] = param((), "Look only at these collections.")
    tensor_regex: tuple[str, ...] = param((), "Look only at matching tensors.", pattern=True)
    only_nan: bool = param(False, "Ignore infinities.")
    everything: bool = param(False, "Count what is normal, too: SageMaker's meaning.")
    max_skipped: int = param(
        32,
        "Saved steps in a row that GradScaler may skip.",
        "saved steps",
        bounds=Bounds(ge=1),
    )

    def start(self) -> Json:
        """No step has been seen."""
        return {"bad": False, "skipped": 0, "since": -1, "seen": -1}

    def inspects(self, obs: Observation) -> bool:
        """Any captured tensor or loss will do."""
        return bool(obs.stats.size) or bool(obs.scalars.get("losses"))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count non-finite elements; a skipped step's gradients are normal until they are not."""
        left_out = not self.everything and skipped(obs)
        count = state["skipped"] + 1 if left_out else 0
        bad = self._bad_rows(obs, skipped=left_out)
        losses = self._bad_losses(obs)
        since = obs.step if count == 1 else state["since"]
        now = {"bad": bool(bad.size or losses), "skipped": count, "since": since, "seen": obs.step}
        if now["bad"] and not state["bad"]:
            return now, self._found(obs, bad, losses, state["seen"])
        if count == self.max_skipped + 1:
            return now, [self._collapse(obs, since, count)]
        return now, ()

    def _narrowed(self) -> bool:
        return bool(self.collection_names or self.tensor_regex)

    def _bad_losses(self, obs: Observation) -> list[tuple[str, float]]:
        if self._narrowed() and "losses" not in self.collection_names:
            return []
        found = obs.scalars.get("losses") or {}
        return [
            (name, value)
            for name, value in found.items()
            if math.isnan(value) or (math.isinf(value) and not self.only_nan)
        ]

    def _bad_rows(self, obs: Observation, *, skipped: bool) -> IntArray:
        """Rows with non-finite elements that matter, in the order of computation."""
        if clean(obs):
            return _NONE
        counts = obs.stats[:, _NAN]
        if not self.only_nan:
            counts = counts + obs.stats[:, _PINF] + obs.stats[:, _NINF]
        rows = np.flatnonzero(counts > 0)  # false for a row that was not captured
        if not rows.size:
            return rows
        if self._narrowed():
            wanted = matching(obs.layout, self.collection_names, self.tensor_regex)
            rows = rows[np.isin(rows, wanted)]
        order, stage = once(obs.layout, "order of computation", _order)
        if skipped:
            rows = rows[stage[rows] != _STAGES["gradients"]]
        if not self._narrowed() and not self.everything:
            rows = self._that_matter(obs, rows, stage)
        ranked: IntArray = rows[np.argsort(order[rows], kind="stable")]
        return ranked

    def _that_matter(self, obs: Observation, rows: IntArray, stage: IntArray) -> IntArray:
        strict = np.isin(stage[rows], list(_STRICT))
        masks = obs.stats[rows, _NAN] + obs.stats[rows, _PINF] == 0
        rows, strict = rows[strict | ~masks], strict[strict | ~masks]
        if strict.any() or self._bad_losses(obs):
            return rows
        judged = obs.layout.rows("gradients")
        seen = judged.size > 0 and obs.captured("gradients").size > 0
        return rows[:0] if seen or obs.scalars.get("losses") else rows

    def _found(
        self, obs: Observation, rows: IntArray, losses: list[tuple[str, float]], seen: int
    ) -> list[Finding]:
        _, stage = once(obs.layout, "order of computation", _order)
        first_is_loss = losses and not (rows.size and stage[rows[0]] < _LOSS_STAGE)
        total = rows.size + len(losses)
        if first_is_loss:
            name, value = losses[0]
            what, count = f"the loss {name} is {value}", 1.0
        else:
            row = int(rows[0])
            name, stats = obs.layout.names[row], obs.stats[row]
            count = float(stats[_NAN] + stats[_PINF] + stats[_NINF])
            infinite = int(stats[_PINF] + stats[_NINF])
            what = (
                f"{name} holds {int(stats[_NAN])} NaN and {infinite} infinite values "
                f"among {int(stats[0])}"
            )
        source = _origin.origin(obs, name, ranked=not self._narrowed())
        start, before = _origin.first_step(obs), _origin.losses_before(obs)
        message = ", ".join(
            part
            for part in (
                f"{what} at step {obs.step}",
                _origin.story(source, name),
                f"first of {total} such tensors in the order of computation" if total > 1 else "",
            )
            if part
        )
        message += _origin.clean(obs, start, before, seen)
        evidence = {
            "kind": source.kind,
            "module": source.module,
            "operation": source.operation,
            "order": list(source.order),
            "tensors": [n for n, _ in losses][:3] + [obs.layout.names[r] for r in rows[:7]],
            "count": total,
            "last_clean_step": before[-1][0] if before else seen,
            "losses": [[step, loss] for step, loss in before[-5:]],
        }
        severity = Severity.WARNING if obs.mode is not TRAIN and not rows.size else None
        remedies = _origin.remedies(source, before)
        return [
            Finding(
                obs.step,
                source.tensor,
                count,
                0.0,
                message,
                start,
                evidence,
                remedies,
                severity=severity,
            )
        ]

    def _collapse(self, obs: Observation, since: int, count: int) -> Finding:
        scale = obs.scalars.get("optimizer", {}).get("loss_scale", math.nan)
        message = (
            f"GradScaler has skipped {count} saved steps in a row since step {since}: the "
            "gradients stay non-finite however small the loss scale gets"
        )
        evidence: dict[str, Json] = {} if math.isnan(scale) else {"loss_scale": scale}
        return Finding(
            obs.step, "", float(count), float(self.max_skipped), message, since, evidence
        )


def _order(layout: Layout) -> tuple[IntArray, IntArray]:
    """Rank of each row in the order of computation, and its stage, both (R,) int64."""
    stage = np.array(
        [_STAGES.get(str(t.collection), _OTHER_STAGE) for t in layout.tensors],
        dtype=np.int64,
    )
    depth = np.array([t.depth for t in layout.tensors], dtype=np.int64)
    signed = np.where(stage == _STAGES["gradients"], -depth, depth)
    order = np.empty(len(layout.tensors), dtype=np.int64)
    order[np.lexsort((np.arange(len(order)), signed, stage))] = np.arange(len(order))
    return order, stage
