"""Recorded runs as observations, so that rules run over them.

A trace's tensors are reduced as the hook reduces them. What a rule knows a tensor by is guessed
from what was recorded:

* collection: the one it was recorded in, ``losses`` and ``gradients`` before a user's own;
* ``losses``, ``metrics`` and ``scalar/…`` are scalars, too; ``learning_rate`` is ``lr_0``;
* outputs of a ReLU (named so, or in a collection named so) have channels along the second axis;
* inputs of tanh and sigmoid have SageMaker's bounds, their outputs the hook's;
* ``labels`` and ``predictions`` are counted by class.

Where only reductions were saved, the columns that they tell are filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from trainwarden.merge import merge
from trainwarden.model import Channels, Collection, FloatArray, Mode, Observation
from trainwarden.stats.reductions import EMPTY_ROW, channel_columns, channels, row
from trainwarden.trial.classes import count_classes
from trainwarden.trial.own import OwnSource
from trainwarden.trial.recorded import RecordedCell, RecordedSource
from trainwarden.trial.roles import Role, layout_of
from trainwarden.trial.saved import row_of_reductions
from trainwarden.trial.source import Array, Moment, Unknown
from trainwarden.trial.trial import Trial

_SCALARS = frozenset({"losses", "metrics", "sm_metrics"})


def observations(trial: Trial, *, truncated: bool = False) -> Iterator[Observation]:
    """Yield every complete saved step of a trial, its workers merged, in order.

    Args:
        trial: Our own run, or a trace of SageMaker Debugger.
        truncated: Take labels and predictions for class numbers by cutting their fraction off, as
            SageMaker Debugger's rules do; without it probabilities become the likeliest class and
            a regression has no classes.

    Raises:
        MalformedObjectError: something in the trace that nobody can read.
    """
    source = trial.source
    if isinstance(source, OwnSource):
        yield from source.observations()
    elif isinstance(source, RecordedSource):
        yield from _Reducer(source, truncated=truncated).run(set(trial.steps()))


class _Reducer:
    """Reduces a trace step by step; remembers values, so that updates are known."""

    def __init__(self, source: RecordedSource, *, truncated: bool) -> None:
        self._source, self._truncated = source, truncated
        self._layout, self._roles = layout_of(source)
        self._previous: dict[tuple[str, Mode, str], Array] = {}
        self._ranks = {name: _rank(name, i) for i, name in enumerate(source.workers)}
        if len(set(self._ranks.values())) < len(self._ranks):
            self._ranks = {name: i for i, name in enumerate(source.workers)}

    def run(self, steps: set[int]) -> Iterator[Observation]:
        """Yield the steps wanted."""
        cells: dict[Moment, list[tuple[int, Mapping[str, RecordedCell]]]] = {}
        for index, name in enumerate(self._layout.names):
            for moment, by_worker in self._source.cells(name).items():
                cells.setdefault(moment, []).append((index, by_worker))
        for moment in sorted(cells):
            if moment.step in steps:
                workers = sorted({w for _, by_worker in cells[moment] for w in by_worker})
                yield merge([self._one(moment, cells[moment], worker) for worker in workers])

    def _one(
        self,
        moment: Moment,
        cells: Iterable[tuple[int, Mapping[str, RecordedCell]]],
        worker: str,
    ) -> Observation:
        stats = np.tile(EMPTY_ROW, (len(self._layout.tensors), 1))
        scalars: dict[str, dict[str, float]] = {}
        active: dict[str, Channels] = {}
        values: dict[str, Array] = {}
        time = 0.0
        for index, by_worker in cells:
            if worker not in by_worker:
                continue
            cell, role = by_worker[worker], self._roles[index]
            time = time or cell.time()
            value = _numbers(cell)
            if value is None:
                stats[index] = row_of_reductions(_saved(cell), cell.known_shape)
                continue
            values[cell.tensor] = value
            stats[index] = self._row(value, cell.tensor, moment.mode, worker, role)
            if role.channels and value.ndim > 1 and value.size:
                active[cell.tensor] = channels(value)
                channel_columns(stats[index], active[cell.tensor])
            _add_scalar(scalars, cell.tensor, self._layout.tensors[index].collection, value)
        labels = self._labels(values, scalars)
        return Observation(
            *(moment.step, moment.mode, moment.mode_step, time, self._layout, stats),
            *(scalars, active, labels, (self._ranks[worker],)),
        )

    def _row(self, value: Array, name: str, mode: Mode, worker: str, role: Role) -> FloatArray:
        key = (name, mode, worker)
        before = self._previous.get(key)
        if before is not None and (before.shape != value.shape or before.dtype != value.dtype):
            before = None
        first = key not in self._previous
        self._previous[key] = value
        return row(
            value,
            dtype=str(value.dtype),
            previous=before,
            bounds=role.bounds,
            per_unit=role.weight and first,
        )

    def _labels(
        self, values: Mapping[str, Array], scalars: dict[str, dict[str, float]]
    ) -> dict[str, dict[int, int]]:
        labels = self._first(values, Collection.LABELS.value)
        predictions = self._first(values, "predictions")
        if labels is None:
            return {}
        tables, facts = count_classes(labels, predictions, truncated=self._truncated)
        if facts:
            scalars[Collection.OBJECTIVE.value] = facts
        return tables

    def _first(self, values: Mapping[str, Array], collection: str) -> Array | None:
        for index in self._layout.rows(collection).tolist():
            name = self._layout.names[index]
            if name in values:
                return values[name]
        return None


def _rank(worker: str, otherwise: int) -> int:
    number = worker.removeprefix("worker_")
    return int(number) if number.isascii() and number.isdigit() else otherwise


def _numbers(cell: RecordedCell) -> Array | None:
    """Return the values, None if they were not saved or are text."""
    if cell.place is None:
        return None
    try:
        value = cell.value()
    except Unknown:
        return None
    return value if value.dtype.kind in "biufc" else None


def _saved(cell: RecordedCell) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in cell.saved:
        plain = name.removeprefix("abs_")
        try:
            found[name] = cell.reduction(plain, absolute=plain != name)
        except Unknown:
            continue  # its event file is missing
    return found


def _add_scalar(
    scalars: dict[str, dict[str, float]], name: str, collection: str, value: Array
) -> None:
    if value.size != 1 or value.dtype.kind not in "biuf":
        return
    number = float(value.reshape(-1)[0])
    if collection in _SCALARS:
        into = "metrics" if collection == "sm_metrics" else collection
        scalars.setdefault(into, {})[name] = number
    elif name.startswith("scalar/"):
        scalars.setdefault("metrics", {})[name.removeprefix("scalar/")] = number
    elif name.partition(":")[0].endswith("learning_rate"):
        scalars.setdefault("optimizer", {})["lr_0"] = number
