"""What a rule of SageMaker Debugger's shape sees while a run is folded step by step.

At each saved step everything of that step is there. Of earlier steps only what the rule has asked
for is kept, in numbers that fit the state: the newest ``MAX_MOMENTS`` saved steps, ``MAX_NUMBERS``
numbers in all, a tensor being 12 of them and a scalar one. Older steps are ``StepUnavailable``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from trainwarden.model import FloatArray, Json, Mode, Observation
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.reductions import EMPTY_ROW
from trainwarden.trial.exceptions import StepNotYetAvailable, StepUnavailable
from trainwarden.trial.seen import RowCell, ScalarCell, Seen, moment_of
from trainwarden.trial.source import Cell, CollectionInfo, Moment, Workers
from trainwarden.trial.tensor import Tensor
from trainwarden.trial.trial import Trial

MAX_MOMENTS, MAX_NUMBERS = 100, 2000
_KEPT = ("n", "n_nan", "n_pinf", "n_ninf", "n_zero", "min", "max", "absmin_nz", "shift", "sum_d")
_COLUMNS = [INDEX[name] for name in (*_KEPT, "sum_d2", "sum_abs")]
_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Past(NamedTuple):
    """One earlier saved step: tensor → what was kept of it."""

    moment: Moment
    cells: dict[str, Cell]


class FoldSource:
    """One observation with what was kept of earlier ones.

    Args:
        obs: The step that is judged.
        past: Earlier steps, the oldest first.
        members: Tensor → the collection it belongs to, of what was kept.
    """

    name = ""
    finished = False
    num_workers = 1
    workers: Sequence[str] = ("worker_0",)

    def __init__(self, obs: Observation, past: Sequence[Past], members: Mapping[str, str]) -> None:
        self.now = moment_of(obs)
        seen = Seen()
        seen.add(obs, 0)
        self.tensors: dict[str, dict[Moment, Workers]] = {
            name: dict(cells) for name, cells in seen.tensors.items()
        }
        self.moments: dict[Moment, frozenset[str]] = {}
        for moment, cells in past:
            self.moments[moment] = frozenset(self.workers)
            for name, cell in cells.items():
                self.tensors.setdefault(name, {})[moment] = {self.workers[0]: cell}
        self.moments[self.now] = frozenset(self.workers)
        names = {name: set(found.tensor_names) for name, found in seen.collections.items()}
        for name, collection in members.items():
            names.setdefault(collection, set()).add(name)
        self.collections = {c: CollectionInfo(c, frozenset(found)) for c, found in names.items()}

    def refresh(self) -> None:
        """Nothing comes while a step is judged."""

    def collection_of(self, tensor: str) -> str:
        """Return the collection of a tensor, empty if it has none."""
        return next((c.name for c in self.collections.values() if tensor in c.tensor_names), "")


class FoldTrial(Trial):
    """The trial that a rule gets in a fold.

    Attributes:
        touched: Tensors that the rule has asked for, in that order.
    """

    def __init__(self, source: FoldSource) -> None:
        super().__init__(source, sleep=self._never)
        self._now = source.now
        self.touched: dict[str, None] = {}

    def tensor(self, name: str) -> Tensor:
        """Return a tensor and remember that it was asked for.

        Raises:
            TensorUnavailable: it is not there.
        """
        found = super().tensor(name)
        self.touched[name] = None
        return found

    def moments_at(self, step: int, mode: Mode) -> list[Moment]:
        """Return what is known of a step; at the present one only what was saved just now.

        Raises:
            StepUnavailable: an earlier step that was not kept.
        """
        if mode is Mode.GLOBAL and step == self._now.step:
            return [self._now]
        found = super().moments_at(step, mode)
        if not found and mode is Mode.GLOBAL and step < self._now.step:
            why = f"it was not saved, or is none of the last {MAX_MOMENTS} kept for this rule"
            raise StepUnavailable(step, mode, why)
        return found

    def _never(self, seconds: float) -> NoReturn:
        del seconds  # a fold does not wait: the step comes when it comes
        raise StepNotYetAvailable(self._now.step + 1)


def past_of(state: Json) -> tuple[list[Past], dict[str, str]]:
    """Return what ``remember`` kept: earlier steps, and tensor → collection."""
    members = {name: entry[0] for name, entry in state["members"].items()}
    shapes = {name: tuple(entry[1]) for name, entry in state["members"].items()}
    found = []
    for step, mode, mode_step, kept in state["past"]:
        cells: dict[str, Cell] = {}
        for name, numbers in kept.items():
            if isinstance(numbers, list):
                cells[name] = RowCell(_row(numbers), shapes.get(name, ()))
            else:
                cells[name] = ScalarCell(_WORDS.get(numbers, numbers))
        found.append(Past(Moment(step, Mode(mode), mode_step), cells))
    return found, members


def remember(state: Json, trial: FoldTrial, source: FoldSource) -> Json:
    """Return the part of the state with what later steps may ask for."""
    members = dict(state["members"])
    kept: dict[str, Json] = {}
    now = source.now
    for name in [*members, *(name for name in trial.touched if name not in members)]:
        cells = source.tensors.get(name, {}).get(now)
        if cells:
            cell = next(iter(cells.values()))
            kept[name] = _numbers(cell)
            members.setdefault(name, [source.collection_of(name), list(cell.shape())])
    past = [one for one in state["past"] if one[:3] != [*now]]
    past = [*past, [now.step, now.mode.value, now.mode_step, kept]][-MAX_MOMENTS:]
    sizes = [sum(len(n) if isinstance(n, list) else 1 for n in one[3].values()) for one in past]
    total = sum(sizes)
    first = 0
    while total > MAX_NUMBERS:
        total -= sizes[first]
        first += 1
    past = past[first:]
    alive = {name for one in past for name in one[3]} | set(trial.touched)
    return {"past": past, "members": {n: entry for n, entry in members.items() if n in alive}}


def _numbers(cell: Cell) -> Json:
    if isinstance(cell, RowCell):
        return [_plain(value) for value in cell.row[_COLUMNS].tolist()]
    return _plain(float(cell.value()))


def _plain(value: float) -> Json:
    return value if math.isfinite(value) else str(value)


def _row(numbers: Sequence[Json]) -> FloatArray:
    row = EMPTY_ROW.copy()
    row[_COLUMNS] = np.array([_WORDS.get(n, n) for n in numbers], dtype=np.float64)
    return row
