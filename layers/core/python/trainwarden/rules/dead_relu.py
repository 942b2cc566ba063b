"""ACT001 DeadRelu: channels of a ReLU that no input activates any more.

**Why it hurts.** A channel that is negative for every input outputs 0 and gets gradient 0: it never
comes back, and the layer works with what is left.

**How it is computed.** Per ReLU-like output, how often each channel is above zero (unit: % of
positions). A layer is under suspicion while more than ``threshold_layer`` per cent of its channels
have an activity of at most ``threshold_inactivity`` at each saved training step. Once ``min_seen``
positions and ``min_saves`` steps in a row were seen, the rule fires if more than
``threshold_layer`` per cent are the *same* channels throughout; more than 90 in a run that learns,
whose loss has lost ``max_fall`` of its start. Once per layer, until it recovers.

The profile ``sagemaker`` has an activity of 1 % and judges each saved step by itself, as SageMaker
does: ``min_seen`` and ``min_saves`` are 1.

**Remedy.** Lower the learning rate (10 to 100 times), leaky or GELU-like activations, Kaiming
initialisation, biases that do not start far below zero.

**False alarms to expect.** Layers pruned on purpose.

**Missing data.** Layers without channel counts are not judged; evaluation passes are not looked at,
and neither are activations with NaN (NUM001's business). At most 256 layers are under suspicion at
a time, the first in the order of the layout.

**Source.** SageMaker Debugger: activity under 1 % in over 50 % of a layer. Ours counts channels
that are never active, since trained ReLU transformers have most neurons under 1 % (Li et al.,
"The Lazy Neuron Phenomenon", 2022), and 70 % of a layer, since healthy small networks on inputs
that are not centred start with up to 56 % of a layer never active. 300 positions: a channel active
at 1 % of them is missed with probability 0.99**300 = 5 % (rule of three).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.rules._selection import matching
from trainwarden.stats.catalog import INDEX

_NAN, _CHANNELS, _DEAD = (INDEX[c] for c in ("n_nan", "ch_n", "ch_dead"))
_NEARLY_ALL = 90.0  # per cent; a run that learns can do without fewer
_MAX_LAYERS = 256  # the state has to fit the job's record


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRelu(CheckedRule[Json]):
    """Fire when most channels of a ReLU stay inactive."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "ACT001",
        "DeadRelu",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("activations", "dead_fraction"), Need("losses", "value")),
        (
            "Lower the learning rate by a factor of 10 to 100, or warm it up.",
            "Use LeakyReLU, GELU or SiLU instead of ReLU.",
            "Initialise with Kaiming's method and biases at 0.",
            "Normalise the inputs; put BatchNorm or LayerNorm in front of the activation.",
        ),
        "capture the collection activations; the model must have ReLU-like modules",
        explains=("VanishingGradient", "UnchangedTensor", "LossNotDecreasing", "AllZero",
                  "Collapse"),
        sagemaker={"threshold_inactivity": 1.0, "threshold_layer": 50.0, "min_seen": 1,
                   "min_saves": 1},
    )  # fmt: skip

    tensor_regex: tuple[str, ...] = param((), "Look only at matching activations.", pattern=True)
    threshold_inactivity: float = param(
        0.0, "A channel active at most this often is dead.", "%", bounds=Bounds(ge=0, lt=100)
    )
    threshold_layer: float = param(
        70.0, "Share of dead channels in a layer.", "%", bounds=Bounds(ge=0, lt=100)
    )
    min_seen: int = param(300, "Positions in a window.", "positions", bounds=Bounds(ge=1))
    min_saves: int = param(3, "Saved steps in a window.", "saved steps", bounds=Bounds(ge=1))

    max_fall: float = param(
        0.5, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """No layer has been seen."""
        return {"layers": {}, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """Channel counts of a training step."""
        return obs.mode is TRAIN and bool(obs.channels)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Collect each layer's window; judge it when it is full."""
        if obs.mode is not TRAIN:
            return state, ()
        state = {**state, "loss": follow(state["loss"], obs)}
        if not obs.channels:
            return state, ()
        suspects, known = self._suspects(obs), state["layers"]
        if not suspects and not known:
            return state, ()
        learns = self.threshold_inactivity == 0 and fall(state["loss"]) >= self.max_fall
        least = max(self.threshold_layer, _NEARLY_ALL) if learns else self.threshold_layer
        found: list[Finding] = []
        layers = {name: kept for name, kept in known.items() if name not in obs.channels}
        again = [name for name in suspects if name in known]
        room = max(0, _MAX_LAYERS - len(layers) - len(again))
        for name in again + [name for name in suspects if name not in known][:room]:
            window = known.get(name)
            if window and window[-1]:  # told
                layers[name] = window
                continue
            layers[name], finding = self._layer(name, window, obs, least)
            if finding is not None:
                found.append(finding)
        found.sort(key=lambda f: -f.value)
        return {**state, "layers": layers}, found

    def _suspects(self, obs: Observation) -> list[str]:
        """Layers in which too many channels are inactive at this very step."""
        rows = obs.captured("activations")
        if self.threshold_inactivity > 0:  # whatever collection it was recorded in
            known = obs.layout.row_of
            rows = np.array([known[n] for n in obs.channels if n in known], dtype=np.int64)
        stats = obs.stats
        if self.threshold_inactivity == 0:
            # the dead of a window are dead at each of its steps: most layers are cleared here
            enough = stats[:, _CHANNELS][rows] * self.threshold_layer
            alive = stats[:, _DEAD][rows] * 100.0 <= enough
            if np.count_nonzero(alive) == rows.size:
                return []
            rows = rows[~alive]
        rows = rows[stats[:, _NAN][rows] == 0]
        if self.tensor_regex:
            rows = rows[np.isin(rows, matching(obs.layout, (), self.tensor_regex))]
        names, channels = obs.layout.names, obs.channels
        chosen = [names[row] for row in rows.tolist()]
        return [name for name in chosen if name in channels and channels[name].seen > 0]

    def _layer(
        self, name: str, window: Json, obs: Observation, least: float
    ) -> tuple[Json, Finding | None]:
        """``window`` is [first step, saves, positions, alive channels as bits, told].

        A full window with fewer than ``least`` per cent of dead channels waits.
        """
        since, saves, seen, bits, _ = window or [obs.step, 0, 0, "", False]
        channels = obs.channels[name]
        alive = channels.active > channels.seen * (self.threshold_inactivity / 100.0)
        if bits:
            alive = alive | _unpack(bits, alive.size)
        saves, seen = saves + 1, seen + channels.seen
        share = 100.0 * (1.0 - np.count_nonzero(alive) / alive.size)
        if share <= self.threshold_layer:  # not the same channels: begin anew
            return [obs.step + 1, 0, 0, "", False], None
        if seen < self.min_seen or saves < self.min_saves or share <= least:
            return [since, saves, seen, _pack(alive), False], None
        finding = self._finding(name, share, alive.size, seen, since, obs)
        return [since, saves, seen, "", True], finding

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
