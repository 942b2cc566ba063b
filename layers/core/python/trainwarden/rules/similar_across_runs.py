"""CMP001 SimilarAcrossRuns: a tensor differs from that of another run at the same step.

**Why it hurts.** A run that cannot be repeated cannot be debugged: a change of the result may be
the change of the code or chance. Two runs that are meant to differ and do not (seeds, shards of
data) are one run, paid for twice.

**How it is computed.** At each step that both runs saved in the same mode, every tensor of
``collection_names`` and ``tensor_regex`` (all that were captured, if neither is given) that both
have, and every loss. With ``rtol`` 0 two tensors are the same if their elements are, bit by bit, by
two fingerprints of 64 bits (unit: bits); else if mean, smallest, largest and L2 norm differ by no
more than ``rtol`` x the larger L2 norm ÷ √n (mean) or the larger absolute value (the others; unit:
the tensor's own). It fires once: at the first step at which one differs, with the first of them in
the order of the model; or with ``expect_difference`` at the ``patience``-th compared step in a row
at which none does.

The profile ``sagemaker`` means the same; SageMaker's tolerance is not documented.

**Remedy.** Seed every generator (torch, NumPy, random, workers of the DataLoader); torch.use_
deterministic_algorithms(True); the same versions, devices, batch and world size. The first tensor
that differs says where: an input is the data's doing, a weight at step 0 the initial seed's, an
activation or gradient the operation's that made it.

**False alarms to expect.** Other hardware, libraries or numbers of workers: give ``rtol`` 1e-3.

**Missing data.** Evaluated only where another run can be read: by ``trainwarden replay`` and
``trainwarden.engine.replay`` with ``paired``. While a job runs in the cloud nothing is inspected,
since judging it would cost reading another job at every step. Without fingerprints (statistics of
another program, merged from several workers) give ``rtol``. NaN equals NaN.

**Source.** SageMaker Debugger's SimilarAcrossRuns; PyTorch's notes on reproducibility.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from trainwarden.model import (
    Finding,
    FloatArray,
    IntArray,
    Json,
    Layout,
    Mode,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._selection import matching, once
from trainwarden.stats.catalog import INDEX, Flag
from trainwarden.stats.derived import STATISTICS

_N, _FLAGS, _FINGERPRINT = INDEX["n"], INDEX["flags"], [INDEX["fp_xor"], INDEX["fp_sum"]]
_BOUNDS = ("min", "max", "l2")
_SHOWN = 10
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarAcrossRuns(CheckedRule[Json]):
    """Fire when a tensor differs from another run's, or none does."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "CMP001",
        "SimilarAcrossRuns",
        Severity.WARNING,
        Tier.CRITICAL,
        (Need("weights", "fp_xor"), Need("weights", "fp_sum"), Need("losses", "value")),
        (
            "Seed torch, NumPy, random and the DataLoader's workers in both runs.",
            "Call torch.use_deterministic_algorithms(True).",
            "Compare versions, devices, batch size and world size of the two runs.",
        ),
        "replay the run with other_trial= naming a recorded run that saved the same steps",
        default=False,
        sagemaker={},
    )

    other_trial: str = param("", "The other run: a job's name, a folder or s3://bucket/jobs/job.")
    collection_names: tuple[str, ...] = param((), "Collections to compare.")
    tensor_regex: tuple[str, ...] = param((), "Tensors to compare.", pattern=True)
    rtol: float = param(0.0, "Relative tolerance; 0 compares bits.", bounds=Bounds(ge=0))
    expect_difference: bool = param(False, "Fire where nothing differs.")
    patience: int = param(
        3, "Compared steps without difference.", "saved steps", bounds=Bounds(ge=1)
    )

    def start(self) -> Json:
        """Nothing has been compared."""
        return {"alike": 0, "since": -1, "told": False}

    def inspects(self, obs: Observation) -> bool:
        """The other run has saved this step, too."""
        return _counterpart(obs, self.other_trial) is not None

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Compare with the other run's step."""
        other = _counterpart(obs, self.other_trial)
        if other is None or state["told"]:
            return state, ()
        names, differ = self._compared(obs, other)
        if not names:
            return state, ()
        if differ and not self.expect_difference:
            return {**state, "told": True}, [self._difference(obs, other, names, differ)]
        alike = 0 if differ else state["alike"] + 1
        since = obs.step if alike == 1 else min(state["since"], obs.step)
        state = {**state, "alike": alike, "since": since}
        if not self.expect_difference or alike < self.patience:
            return state, ()
        message = (
            f"all {len(names)} tensors are those of {self.other_trial} at {alike} compared steps, "
            f"though the runs are meant to differ"
        )
        evidence = {"compared": len(names), "steps": alike}
        found = Finding(obs.step, "", 0.0, self.rtol, message, since, evidence)
        return {**state, "told": True}, [found]

    def _compared(self, obs: Observation, other: Observation) -> tuple[list[str], list[str]]:
        """Names of what was compared, and of what differs, in the order of the model."""
        rows, theirs = self._rows(obs, other)
        mine, there = obs.stats[rows], other.stats[theirs]
        unlike = _differ(mine, there, self.rtol)
        names = [obs.layout.names[row] for row in rows.tolist()]
        differ = [name for name, bad in zip(names, unlike.tolist(), strict=True) if bad]
        if not self.collection_names or "losses" in self.collection_names or self.tensor_regex:
            ours, others = (o.scalars.get("losses", {}) for o in (obs, other))
            for name in sorted(ours.keys() & others.keys()):
                if self._wanted(name):
                    names.append(name)
                    if not _same(ours[name], others[name], self.rtol):
                        differ.append(name)
        return names, differ

    def _wanted(self, loss: str) -> bool:
        """Say whether a loss is among what was asked for."""
        asked = self.collection_names or self.tensor_regex
        return (
            not asked
            or "losses" in self.collection_names
            or any(re.match(pattern, loss) for pattern in self.tensor_regex)
        )

    def _rows(self, obs: Observation, other: Observation) -> tuple[IntArray, IntArray]:
        """Rows of the tensors that both captured, inputs first, then in forward order."""
        if self.collection_names or self.tensor_regex:
            rows = matching(obs.layout, self.collection_names, self.tensor_regex)
        else:
            rows = np.arange(len(obs.layout.tensors), dtype=np.int64)
        order = once(obs.layout, "model's order", _model_order)
        rows = rows[np.argsort(order[rows], kind="stable")]
        rows = rows[rows < obs.stats.shape[0]]
        rows = rows[~np.isnan(obs.stats[rows, _N])]
        row_of = other.layout.row_of
        theirs = np.array([row_of.get(obs.layout.names[r], -1) for r in rows.tolist()], np.int64)
        there = (theirs >= 0) & (theirs < other.stats.shape[0])
        rows, theirs = rows[there], theirs[there]
        there = ~np.isnan(other.stats[theirs, _N])
        return rows[there], theirs[there]

    def _difference(
        self, obs: Observation, other: Observation, names: Sequence[str], differ: Sequence[str]
    ) -> Finding:
        first = differ[0]
        values = [_shown(one, first) for one in (obs, other)]
        message = (
            f"{len(differ)} of {len(names)} tensors differ from those of {self.other_trial}, first "
            f"{first} ({values[0]:.6g} here, {values[1]:.6g} there)"
        )
        evidence = {"compared": len(names), "differ": list(differ[:_SHOWN]), "count": len(differ)}
        finite = [v if math.isfinite(v) else 0.0 for v in values]
        return Finding(obs.step, first, finite[0], finite[1], message, obs.step, evidence)


def paired(
    run: Iterable[Observation], others: Mapping[str, Iterable[Observation]]
) -> Iterator[Observation]:
    """Yield ``run`` with the observations of ``others`` of the same step and mode beside it.

    Args:
        run: The run that is judged.
        others: Value of ``other_trial`` → that run.
    """
    tables = {name: {(obs.step, obs.mode): obs for obs in other} for name, other in others.items()}
    for obs in run:
        pair(obs, tables)
        yield obs


def pair(obs: Observation, tables: Mapping[str, Mapping[tuple[int, Mode], Observation]]) -> None:
    """Put the other runs' observations of the same step and mode beside this one."""
    for name, table in tables.items():
        other = table.get((obs.step, obs.mode))
        if other is not None:
            obs.memo[_key(name)] = other


def _key(name: str) -> tuple[str, str]:
    return ("other run", name)


def _counterpart(obs: Observation, name: str) -> Observation | None:
    found: Observation | None = obs.memo.get(_key(name))
    return found


def _model_order(layout: Layout) -> IntArray:
    """Position of each row: what goes in first, then by depth, as listed within it."""
    first = {"inputs": -2, "labels": -2}
    places = [
        (first.get(str(t.collection), t.depth if t.depth >= 0 else len(layout.tensors)), row)
        for row, t in enumerate(layout.tensors)
    ]
    order = np.empty(len(places), dtype=np.int64)
    order[[row for _, row in sorted(places)]] = np.arange(len(places))
    return order


def _differ(mine: FloatArray, there: FloatArray, rtol: float) -> _Bools:
    """Tell which rows differ; the sample of a tensor says nothing about all of it."""
    unlike = _unlike(mine, there, rtol)
    sampled = [rows[:, _FLAGS].astype(np.int64) & Flag.SAMPLED for rows in (mine, there)]
    unlike &= sampled[0] == sampled[1]
    return unlike


def _unlike(mine: FloatArray, there: FloatArray, rtol: float) -> _Bools:
    unlike: _Bools = mine[:, _N] != there[:, _N]
    if rtol == 0:
        ours, theirs = (
            np.ascontiguousarray(rows[:, _FINGERPRINT]).view(np.uint64) for rows in (mine, there)
        )
        unlike |= (ours != theirs).any(axis=1)
        return unlike
    with np.errstate(all="ignore"):
        norms = [STATISTICS["l2"].compute(rows) for rows in (mine, there)]
        size = np.maximum(*norms) / np.sqrt(np.maximum(mine[:, _N], 1))
        means = [STATISTICS["mean"].compute(rows) for rows in (mine, there)]
        unlike |= ~_near(means[0], means[1], rtol * size)
        for name in _BOUNDS:
            a, b = (STATISTICS[name].compute(rows) for rows in (mine, there))
            unlike |= ~_near(a, b, rtol * np.maximum(np.abs(a), np.abs(b)))
    return unlike


def _near(a: FloatArray, b: FloatArray, within: FloatArray) -> _Bools:
    near: _Bools = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= within)
    return near


def _same(a: float, b: float, rtol: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=rtol, abs_tol=0.0)


def _shown(obs: Observation, name: str) -> float:
    """Mean of a tensor, or the loss of that name."""
    row = obs.layout.row_of.get(name)
    if row is None:
        return obs.scalars.get("losses", {}).get(name, math.nan)
    return float(STATISTICS["mean"].compute(obs.stats[row : row + 1])[0])
