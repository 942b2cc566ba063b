"""NLP001 NLPSequenceRatio: given tokens make up too much of the input sequences.

**Why it hurts.** Padding and unknown-word tokens carry nothing; steps are paid for and wasted.

**How it is computed.** At each step, from the counts of tokens in the integer inputs (unit: % of
all tokens), it fires when the share of one of ``token_values`` is above its threshold in
``token_thresholds_percent`` (one for all, or one each). Each token is told once.

**Remedy.** Batch sequences of similar length (bucketing), pack short ones together, pad to the
longest of the batch only; extend the vocabulary if the token is the unknown word.

**False alarms to expect.** Padded batches whose padding the loss ignores train well. It is not
evaluated unless asked for; padding that harms is TokenImbalance's (NLP002) business.

**Missing data.** Without integer inputs of at most 1,000 distinct tokens nothing is inspected.

**Source.** SageMaker Debugger's NLPSequenceRatio: token_values 0, token_thresholds_percent 50.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.errors import ConfigError
from trainwarden.model import Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import _batch
from trainwarden.rules._parameters import CheckedRule, param


@dataclass(frozen=True, slots=True, kw_only=True)
class NLPSequenceRatio(CheckedRule[Json]):
    """Fire when a token's share of the inputs is above its threshold."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "NLP001",
        "NLPSequenceRatio",
        Severity.WARNING,
        Tier.CRITICAL,
        (Need("inputs", "n"),),
        (
            "Batch sequences of similar length, and pad to the longest of the batch only.",
            "Pack short sequences together.",
            "If it is the unknown word: extend the vocabulary.",
        ),
        "capture token counts: integer inputs with at most 1,000 distinct values",
        default=False,
        sagemaker={"token_values": "0", "token_thresholds_percent": "50"},
    )

    token_values: tuple[str, ...] = param(("0",), "Tokens to count.")
    token_thresholds_percent: tuple[str, ...] = param(
        ("50",), "Largest share of each token, or one for all.", "%"
    )

    def __post_init__(self) -> None:
        CheckedRule.__post_init__(self)
        self._limits()

    def start(self) -> Json:
        """No token has been told."""
        return []

    def inspects(self, obs: Observation) -> bool:
        """Token counts of an input."""
        return bool(_batch.tokens(obs))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Compare each token's share with its limit."""
        counts = _batch.tokens(obs)
        total, told, found = sum(counts.values()), list(state), []
        if total <= 0:
            return state, ()
        for token, limit in self._limits().items():
            share = 100.0 * counts.get(token, 0) / total
            if share <= limit or token in told:
                continue
            told.append(token)
            message = f"token {token} makes up {share:.0f} % of the {total} tokens of the input"
            evidence = {"token": token, "tokens": total}
            name = "input/0" if "input/0" in obs.labels else ""
            found.append(Finding(obs.step, name, share, limit, message, obs.step, evidence))
        return told, found

    def _limits(self) -> dict[int, float]:
        """Token → largest share in %."""
        try:
            values = [int(v) for v in self.token_values]
            limits = [float(v) for v in self.token_thresholds_percent]
        except ValueError as exc:
            found = repr((self.token_values, self.token_thresholds_percent))
            raise ConfigError("token_values and thresholds to be numbers", found[:80]) from exc
        if len(limits) == 1:
            limits *= len(values)
        if len(limits) != len(values) or not all(0 <= limit <= 100 for limit in limits):  # noqa: PLR2004 - %
            raise ConfigError(
                "token_thresholds_percent to hold one number from 0 to 100 for each token",
                repr(self.token_thresholds_percent)[:80],
            )
        return dict(zip(values, limits, strict=True))
