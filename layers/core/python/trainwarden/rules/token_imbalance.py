"""NLP002 TokenImbalance: padding or unknown tokens drown the others, in targets or in inputs.

**Why it hurts.** The model learns to say "padding", its loss looks low and falls fast, and the
gradients of true tokens are drowned. A state that is read after the padding, or a mean that counts
it, has forgotten the text.

**How it is computed.** At each training step with token targets (unit: tokens): integer inputs of
which the labels have at least half as many and half as varied. The finding's ``kind`` is

* ``padding``: at ``saves`` saved steps in a row, with ``samples`` targets or more, one and the same
  token has more than ``threshold`` of all targets, ``ratio`` times as many as the second, and more
  than ``threshold_input`` of the inputs too, as padding has;
* ``vocabulary``: of three to seven different tokens one has more than ``threshold_few`` of the
  targets and of the inputs; at twice ``saves`` saved steps in a row, that span ``min_steps`` steps
  or more, it is the only one that is ever said right, and the loss is at least 0.9 of the entropy
  of the targets' shares in that very batch; or it has the shares of ``padding``, and the loss has
  20 times as many classes as there are different tokens: a vocabulary that does not know the text;
* ``padded_inputs``: of labels that are classes of whole sequences: one token has more than
  ``threshold_padded`` of the inputs, and over ``stuck_steps`` steps or more no saved step had a
  loss below 0.95 of the entropy of its labels' shares: of what was read only the padding is left.

Not judged: targets that the loss ignores (ignore_index; the hook's ``ignored`` share), a loss that
weights its tokens, one that is reduced by a mask of one's own (the mean of the loss function is not
what training minimises).

**Remedy.** ignore_index=padding in the loss; pad to the longest of the batch, batch sequences of
similar length; build the vocabulary from the text that it is for; read the state at the last true
token (pack_padded_sequence), mask padding in means and attention.

**False alarms to expect.** Tasks whose answer is mostly one symbol, such as copying after a delay.
Of few symbols, and of padded inputs, only before such a task is learned at all.

**Missing data.** Without integer inputs and targets of at most 1,000 distinct tokens nothing is
inspected.

**Source.** Measured: spaces are 18 % of English prose, 35 % of Python source; the commonest word is
6 % of a text. Whoever says the same of every place has at least the entropy of the shares as loss
(Gibbs' inequality). SageMaker Debugger has only NLPSequenceRatio (NLP001), which looks at inputs
alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import _batch
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss

_ALPHABET = 8  # fewer different tokens are no language
_VOCABULARY = (
    "Build the vocabulary from the text that it is for, with the same tokenizer.",
    "Count how many places of a batch are the unknown token.",
)
_PADDED = (
    "Read the state at the last true token: pack_padded_sequence, or index by length.",
    "Pad to the longest sequence of the batch, and batch sequences of similar length.",
    "Mask padding in means and in attention.",
)
_NOTHING_MORE, _NOTHING = 0.9, 0.95  # of the entropy of the targets' shares
_UNUSED = 20  # classes for each token that occurs
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
        (Need("labels", "n"), Need("inputs", "n"), Need("losses", "value")),
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
    threshold_few: float = param(
        0.9, "Largest share of one of few different tokens.", bounds=Bounds(gt=0, lt=1)
    )
    min_steps: int = param(30, "Steps before few tokens are judged.", "steps", bounds=Bounds(ge=0))

    threshold_padded: float = param(
        0.7, "Largest share of a token among inputs of which nothing is learned.",
        bounds=Bounds(gt=0, lt=1),
    )  # fmt: skip
    stuck_steps: int = param(
        100, "Steps after which nothing is learned of them.", "steps", bounds=Bounds(ge=1)
    )

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
        if not name:
            return state, ()
        judge = self._tokens if _batch.per_token(obs, name) else self._classes
        return judge(state, obs, name)

    def _tokens(self, state: Json, obs: Observation, name: str) -> tuple[Json, Sequence[Finding]]:
        """Judge a step whose labels are tokens."""
        few = len(obs.labels[name]) < _ALPHABET
        token, share, inputs = _top(obs.labels[name], _batch.tokens(obs), self.ratio)
        dominates = share > self.threshold and inputs > self.threshold_input
        if few:
            ill = min(share, inputs) > self.threshold_few and _says_nothing_else(obs, name, token)
            ill = ill or (dominates and _unused(obs, name))
        else:
            ill = dominates
        if not ill or _left_out(obs):
            return ({} if state else state), ()
        same = state.get("token") == token
        saves, since = (state["saves"] + 1, state["since"]) if same else (1, obs.step)
        seen = sum(obs.labels[name].values()) + (state["seen"] if same else 0)
        state = {"token": token, "saves": saves, "since": since, "seen": seen}
        if saves < (2 * self.saves if few else self.saves) or seen < self.samples:
            return state, ()
        if few and obs.step - since < self.min_steps:
            return state, ()
        return {"told": token}, (self._finding(obs, state, (share, inputs), few=few),)

    def _classes(self, state: Json, obs: Observation, name: str) -> tuple[Json, Sequence[Finding]]:
        """Judge a step whose labels are classes of sequences."""
        inputs = _batch.tokens(obs)
        token = max(inputs, key=lambda one: inputs[one], default=-1)
        share = inputs.get(token, 0) / max(sum(inputs.values()), 1)
        loss, known = main_loss(obs), _entropy(obs.labels[name])
        guess = loss is not None and loss[1] >= _NOTHING * known > 0
        if not guess or share <= self.threshold_padded or _left_out(obs):
            return ({} if state else state), ()
        since = state["since"] if state.get("token") == token else obs.step
        if obs.step - since < self.stuck_steps:
            return {"token": token, "saves": 0, "since": since, "seen": 0}, ()
        message = (
            f"token {token} makes up {share:.0%} of the inputs, and in {obs.step - since} steps "
            f"the loss of {loss[1] if loss else math.nan:.4g} has not gone below a guess: only the "
            "padding seems to be read"
        )
        evidence = {"kind": "padded_inputs", "token": token, "guess": round(known, 4)}
        limit = self.threshold_padded
        finding = Finding(
            obs.step, name, share, limit, message, since, evidence, _PADDED, confidence=0.7
        )
        return {"told": token}, (finding,)

    def _finding(
        self, obs: Observation, state: Json, shares: tuple[float, float], *, few: bool
    ) -> Finding:
        token, (share, inputs) = state["token"], shares
        why = "padding is counted in the loss"
        if few:
            why = "the other tokens are too few to be learned: does the vocabulary fit the text?"
        made_up = f"{share:.0%} of the targets and {inputs:.0%} of the inputs"
        message = f"token {token} makes up {made_up}: {why}"
        evidence = {"kind": "vocabulary" if few else "padding", "token": token, "inputs": inputs,
                    "targets": state["seen"]}  # fmt: skip
        limit = self.threshold_few if few and share > self.threshold_few else self.threshold
        name = next(iter(_batch.labels(obs)))
        return Finding(obs.step, name, share, limit, message, state["since"], evidence,
                       _VOCABULARY if few else ())  # fmt: skip


def _top(
    targets: Mapping[int, int], inputs: Mapping[int, int], ratio: float
) -> tuple[int, float, float]:
    """Commonest target, its shares of targets and inputs; (-1, 0, 0) if none stands out."""
    (second, _), (most, token) = sorted((n, t) for t, n in targets.items())[-2:]
    if most < ratio * second:
        return -1, 0.0, 0.0
    return token, most / sum(targets.values()), inputs.get(token, 0) / sum(inputs.values())


def _says_nothing_else(obs: Observation, name: str, token: int) -> bool:
    """Say whether a model has learned no more than how frequent tokens are."""
    right, loss = _batch.beside(obs, name, _batch.CORRECT), main_loss(obs)
    if right is None or loss is None or any(n > 0 for t, n in right.items() if t != token):
        return False
    return loss[1] >= _NOTHING_MORE * _entropy(obs.labels[name]) > 0


def _unused(obs: Observation, name: str) -> bool:
    """Say whether hardly a token of the vocabulary occurs."""
    classes = _batch.fact(_batch.classifier(obs), "classes")
    return classes >= _UNUSED * len(obs.labels[name])


def _entropy(labels: Mapping[int, int]) -> float:
    """Entropy in nats of the shares of labels: the least loss of who says the same of each."""
    counts = [n for n in labels.values() if n > 0]
    total = sum(counts)
    return -sum(n / total * math.log(n / total) for n in counts)


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
