"""ACT001 DeadRelu: channels of a ReLU that no input activates any more.

**Why it hurts.** A channel that is negative for every input outputs 0 and gets gradient 0: it never
comes back, and the layer works with what is left.

**How it is computed.** Per ReLU-like output, the share of positions at which each channel is above
zero (unit: %). Saved training steps are collected until ``min_seen`` positions and ``min_saves``
steps were seen; a channel is dead in that window if its activity stayed at or below
``threshold_inactivity`` at every one of its steps. The rule fires when more than
``threshold_layer`` per cent of a layer's channels are dead in ``patience`` windows in a row.

**Remedy.** Lower the learning rate (10 to 100 times), leaky or GELU-like activations, Kaiming
initialisation, biases that do not start far below zero.

**False alarms to expect.** Layers pruned on purpose.

**Missing data.** Layers without channel counts are not judged; evaluation passes are not looked at,
and neither are activations with NaN (NUM001's business).

**Source.** SageMaker Debugger: activity under 1 % in over 50 % of a layer. Ours counts channels
that are never active, since trained ReLU transformers have most neurons under 1 % (Li et al.,
"The Lazy Neuron Phenomenon", 2022). 300 positions: a channel active at 1 % of them is missed with
probability 0.99**300 = 5 % (rule of three).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    Channels,
    Finding,
    Json,
    Mode,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._selection import matching
from trainwarden.stats.catalog import INDEX

_NAN = INDEX["n_nan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRelu(CheckedRule[Json]):
    """Fire when most channels of a ReLU stay inactive."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "ACT001",
        "DeadRelu",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("activations", "dead_fraction"),),
        (
            "Lower the learning rate by a factor of 10 to 100, or warm it up.",
            "Use LeakyReLU, GELU or SiLU instead of ReLU.",
            "Initialise with Kaiming's method and biases at 0.",
            "Normalise the inputs; put BatchNorm or LayerNorm in front of the activation.",
        ),
        "capture the collection activations; the model must have ReLU-like modules",
    )

    tensor_regex: tuple[str, ...] = param((), "Look only at matching activations.", pattern=True)
    threshold_inactivity: float = param(
        0.0, "A channel active at most this often is dead.", "%", bounds=Bounds(ge=0, lt=100)
    )
    threshold_layer: float = param(
        50.0, "Share of dead channels in a layer.", "%", bounds=Bounds(ge=0, lt=100)
    )
    min_seen: int = param(300, "Positions in a window.", "positions", bounds=Bounds(ge=1))
    min_saves: int = param(3, "Saved steps in a window.", "saved steps", bounds=Bounds(ge=1))
    patience: int = param(1, "Windows in a row.", "windows", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No layer has been seen."""
        return {}

    def inspects(self, obs: Observation) -> bool:
        """Channel counts of a training step."""
        return obs.mode is Mode.TRAIN and bool(obs.channels)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Collect each layer's window; judge it when it is full."""
        if obs.mode is not Mode.TRAIN or not obs.channels:
            return state, ()
        layers, found = dict(state), []
        wanted, row_of = self._wanted(obs), obs.layout.row_of
        for name, channels in obs.channels.items():
            if (wanted is not None and name not in wanted) or channels.seen <= 0:
                continue
            row = row_of.get(name, -1)
            if 0 <= row < obs.stats.shape[0] and obs.stats[row, _NAN] > 0:
                continue
            layers[name], finding = self._layer(name, layers.get(name), channels, obs)
            if finding is not None:
                found.append(finding)
        found.sort(key=lambda f: -f.value)
        return layers, found

    def _wanted(self, obs: Observation) -> frozenset[str] | None:
        if not self.tensor_regex:
            return None
        rows = matching(obs.layout, (), self.tensor_regex)
        return frozenset(obs.layout.names[r] for r in rows.tolist())

    def _layer(
        self, name: str, window: Json, channels: Channels, obs: Observation
    ) -> tuple[Json, Finding | None]:
        """``window`` is [first step, saves, positions, alive bits, full windows that were dead]."""
        since, saves, seen, bits, dead_windows, first_bad = window or [obs.step, 0, 0, "", 0, -1]
        alive = channels.active > channels.seen * (self.threshold_inactivity / 100.0)
        if bits:
            alive = alive | _unpack(bits, alive.size)
        saves, seen = saves + 1, seen + channels.seen
        if seen < self.min_seen or saves < self.min_saves:
            return [since, saves, seen, _pack(alive), dead_windows, first_bad], None
        share = 100.0 * (1.0 - np.count_nonzero(alive) / alive.size)
        fresh = [obs.step + 1, 0, 0, ""]
        if share <= self.threshold_layer:
            return [*fresh, 0, -1], None
        first_bad = since if dead_windows == 0 else first_bad
        dead_windows += 1
        finding = None
        if dead_windows == self.patience:
            finding = self._finding(name, share, alive.size, seen, first_bad, obs)
        return [*fresh, dead_windows, first_bad], finding

    def _finding(
        self, name: str, share: float, size: int, seen: int, since: int, obs: Observation
    ) -> Finding:
        dead = round(share * size / 100)
        message = (
            f"{dead} of {size} channels of {name} ({share:.0f} %) were not active once "
            f"in {seen} positions since step {since}"
        )
        evidence = {"channels": size, "dead": dead, "positions": seen}
        return Finding(obs.step, name, share, self.threshold_layer, message, since, evidence)


def _pack(alive: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> str:
    return np.packbits(alive).tobytes().hex()


def _unpack(bits: str, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    packed = np.frombuffer(bytes.fromhex(bits), dtype=np.uint8)
    if packed.size != (size + 7) // 8:
        return np.zeros(size, dtype=np.bool_)
    return np.unpackbits(packed, count=size).astype(np.bool_)
