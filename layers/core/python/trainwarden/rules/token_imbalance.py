"""NLP002 TokenImbalance: padding makes up most of the target tokens, and the loss counts it.

**Why it hurts.** The model learns to say "padding", its loss looks low and falls fast, and the
gradients of true tokens are drowned.

**How it is computed.** At each training step with token targets (unit: tokens): integer inputs of
which the labels have at least half as many and half as varied. It fires when at ``saves`` saved
steps in a row, with ``samples`` targets or more,

* one and the same token has more than ``threshold`` of all targets, ``ratio`` times as many as the
  second, and
* more than ``threshold_input`` of the inputs too, as padding has.

Not judged: targets that the loss ignores (ignore_index; the hook's ``ignored`` share), a loss that
weights its tokens, one that is reduced by a mask of one's own (the mean of the loss function is not
what training minimises), fewer than eight different tokens.

**Remedy.** ignore_index=padding in the loss; pad to the longest of the batch, batch sequences of
similar length.

**False alarms to expect.** Tasks whose answer is mostly one symbol, such as copying after a delay.

**Missing data.** Without integer inputs and targets of at most 1,000 distinct tokens nothing is
inspected.

**Source.** Measured: spaces are 18 % of English prose, 35 % of Python source; the commonest word is
6 % of a text. SageMaker Debugger has only NLPSequenceRatio (NLP001), which looks at inputs alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import _batch
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_ALPHABET = 8  # fewer different tokens are no language
_IGNORES = 0.02  # share of targets that a loss which ignores something ignores
_SAME = 1e-6  # relative difference of two losses that are one


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenImbalance(CheckedRule[Json]):
    """Fire when one token dominates targets and inputs alike."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "NLP002",
        "TokenImbalance",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("labels", "n"), Need("inputs", "n")),
        (
            "Exclude padding from the loss: CrossEntropyLoss(ignore_index=…).",
            "Pad to the longest sequence of the batch, and batch sequences of similar length.",
            "Report the loss per true token.",
        ),
        "capture token counts: integer inputs and targets with at most 1,000 distinct values, and "
        "the loss function",
        explains=("ClassImbalance", "Collapse", "NLPSequenceRatio"),
    )

    threshold: float = param(0.45, "Largest share of a target token.", bounds=Bounds(gt=0, lt=1))
    threshold_input: float = param(
        0.3, "Least share of it among inputs.", bounds=Bounds(ge=0, lt=1)
    )
    ratio: float = param(3.0, "Times the second commonest token.", bounds=Bounds(ge=1))
    samples: int = param(500, "Targets before they are judged.", "tokens", bounds=Bounds(ge=1))
    saves: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No step has been ill."""
        return {}

    def inspects(self, obs: Observation) -> bool:
        """Tokens in and tokens out, at a training step."""
        return _batch.trains(obs) and bool(_batch.labels(obs)) and bool(_batch.tokens(obs))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend or end the row of ill steps."""
        if "told" in state or not _batch.trains(obs) or not obs.labels:
            return state, ()
        name = next(iter(_batch.labels(obs)), "")
        if not name or not _batch.per_token(obs, name):
            return ({} if state and name else state), ()
        token, share, inputs = _top(obs.labels[name], _batch.tokens(obs), self.ratio)
        ill = share > self.threshold and inputs > self.threshold_input and not _left_out(obs)
        if not ill:
            return {}, ()
        same = state.get("token") == token
        saves, since = (state["saves"] + 1, state["since"]) if same else (1, obs.step)
        seen = sum(obs.labels[name].values()) + (state["seen"] if same else 0)
        if saves < self.saves or seen < self.samples:
            return {"token": token, "saves": saves, "since": since, "seen": seen}, ()
        message = (
            f"token {token} makes up {share:.0%} of the targets and {inputs:.0%} of the inputs: "
            "padding is counted in the loss"
        )
        evidence = {"kind": "padding", "token": token, "inputs": inputs, "targets": seen}
        return {"told": token}, (
            Finding(obs.step, name, share, self.threshold, message, since, evidence),
        )


def _top(
    targets: Mapping[int, int], inputs: Mapping[int, int], ratio: float
) -> tuple[int, float, float]:
    """Commonest target, its shares of targets and inputs; (-1, 0, 0) if none stands out."""
    if len(targets) < _ALPHABET:
        return -1, 0.0, 0.0
    (second, _), (most, token) = sorted((n, t) for t, n in targets.items())[-2:]
    if most < ratio * second:
        return -1, 0.0, 0.0
    return token, most / sum(targets.values()), inputs.get(token, 0) / sum(inputs.values())


def _left_out(obs: Observation) -> bool:
    """Say whether the loss does not count all targets alike."""
    facts = _batch.objectives(obs)
    if any(f.get("ignored", 0.0) > _IGNORES or f.get("weighted", 0.0) > 0 for f in facts.values()):
        return True
    if obs.scalars.get("labels", {}).get("weighted", 0.0) > 0:
        return True
    losses = obs.scalars.get("losses", {})
    loss = losses.get("loss")
    others = [v for n, v in losses.items() if n in facts]
    return loss is not None and any(not abs(v - loss) <= _SAME * abs(loss) for v in others)
