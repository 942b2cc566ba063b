"""Observations as a trial's source: what our own runs saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainwarden.merge import merge
from trainwarden.model import FloatArray, Layout, Observation
from trainwarden.trial import numbers
from trainwarden.trial.source import Array, Cell, CollectionInfo, Moment, Unknown, Workers
from trainwarden.trial.tensor import MERGED

_NO_VALUES = "runs of trainwarden keep statistics, not values: ask for reduction_value(step, name)"


@dataclass(frozen=True)
class RowCell:
    """A tensor of which statistics were kept: ``row`` is (32,) float64."""

    row: FloatArray
    known_shape: tuple[int, ...]

    @property
    def saved(self) -> Sequence[str]:
        """Every reduction but the product."""
        return (*numbers.FROM_ROW, *(f"abs_{name}" for name in numbers.FROM_ROW))

    def value(self) -> Array:
        """There are none."""
        raise Unknown(f"{_NO_VALUES} with one of {', '.join(numbers.FROM_ROW)}")

    def reduction(self, name: str, *, absolute: bool) -> float:
        """Return a reduction, worked out from the statistics."""
        return numbers.of_row(self.row, name, absolute=absolute)

    def shape(self) -> tuple[int, ...]:
        """Return the shape that the manifest names."""
        return self.known_shape


@dataclass(frozen=True)
class ScalarCell:
    """A number: a loss, a metric, a learning rate."""

    number: float

    @property
    def saved(self) -> Sequence[str]:
        """Every reduction of one number is clear."""
        return numbers.REDUCTIONS

    def value(self) -> Array:
        """Return it, an array of shape ()."""
        return np.array(self.number)

    def reduction(self, name: str, *, absolute: bool) -> float:
        """Return a reduction of the one number."""
        return numbers.of_array(self.value(), name, absolute=absolute)

    def shape(self) -> tuple[int, ...]:
        """A number has no dimensions."""
        return ()


def worker_name(rank: int) -> str:
    """Return a worker's name as SageMaker Debugger writes it."""
    return f"worker_{rank}"


def moment_of(obs: Observation) -> Moment:
    """Return when an observation was saved."""
    return Moment(obs.step, obs.mode, obs.mode_step)


class Seen:
    """Keeps observations by worker and gives them out as tensors.

    A scalar goes by its own name; where a tensor or a scalar of another collection has it already,
    by ``collection/name``.
    """

    def __init__(self) -> None:
        self._by_moment: dict[Moment, dict[int, Observation]] = {}
        self._tensors: dict[str, dict[Moment, dict[str, Cell]]] | None = None
        self._collections: dict[str, CollectionInfo] = {}

    def add(self, obs: Observation, worker: int) -> None:
        """Keep an observation; of several for one step and worker the last stands."""
        self._by_moment.setdefault(moment_of(obs), {})[worker] = obs
        self._tensors = None

    @property
    def moments(self) -> Mapping[Moment, frozenset[str]]:
        """Every saved step with its workers, in order."""
        return {
            moment: frozenset(worker_name(rank) for rank in self._by_moment[moment])
            for moment in sorted(self._by_moment)
        }

    @property
    def workers(self) -> Sequence[str]:
        """Names of the workers, ascending."""
        return [
            worker_name(rank) for rank in sorted({r for by in self._by_moment.values() for r in by})
        ]

    @property
    def tensors(self) -> Mapping[str, Mapping[Moment, Workers]]:
        """Tensor or scalar → saved step → worker → what was kept."""
        if self._tensors is None:
            self._tensors = {}
            members, owners = dict[str, set[str]](), dict[str, str]()
            for moment in sorted(self._by_moment):
                for worker, obs in self._views(moment).items():
                    for (collection, *further), name, cell in _cells(obs):
                        owner = owners.setdefault(name, collection)
                        known = name if owner == collection else f"{collection}/{name}"
                        for one in (collection, *further):
                            members.setdefault(one, set()).add(known)
                        by_moment = self._tensors.setdefault(known, {})
                        by_moment.setdefault(moment, {})[worker] = cell
            self._collections = {
                name: CollectionInfo(name, frozenset(found)) for name, found in members.items()
            }
        return self._tensors

    @property
    def collections(self) -> Mapping[str, CollectionInfo]:
        """Collections by name, with the tensors and scalars that were saved."""
        assert self.tensors is not None  # noqa: S101 - builds both
        return self._collections

    def merged(self) -> Iterable[Observation]:
        """Yield each saved step once, its workers merged, in order."""
        for moment in sorted(self._by_moment):
            yield merge(list(self._by_moment[moment].values()))

    def _views(self, moment: Moment) -> dict[str, Observation]:
        """Return worker → observation; several workers merged, too."""
        by_rank = self._by_moment[moment]
        views = {worker_name(rank): by_rank[rank] for rank in sorted(by_rank)}
        if len(views) > 1:
            views[MERGED] = merge(list(by_rank.values()))
        return views


def _cells(obs: Observation) -> Iterable[tuple[tuple[str, ...], str, Cell]]:
    """Yield collections, its own first, name and what was kept of each tensor."""
    layout: Layout = obs.layout
    for row in np.flatnonzero(obs.there).tolist():
        tensor = layout.tensors[row]
        collections = (str(tensor.collection), *tensor.also)
        yield collections, tensor.name, RowCell(obs.stats[row], tensor.shape)
    for collection, values in obs.scalars.items():
        for name, value in values.items():
            yield (str(collection),), name, ScalarCell(value)
